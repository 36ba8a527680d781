//! What a section of the configuration is: its keys, each with a kind, a default and a sentence. The struct, its parser, its defaults and its
//! page in the reference all come from one `section!` block, so that they can't drift apart. Which keys there are is left to `server` and
//! `site`, which values a key takes to `kinds`.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kinds::{Describe, Kind};
use super::mistake::{Mistake, Severity};
use super::suggest;

/// What a key is when the file doesn't say.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Fallback {
    /// This value, written as in the file.
    Toml(&'static str),
    /// What `[limits]` says under the same key, or else this value.
    Limits(&'static str),
    /// What `[schedule]` says under the same key, or else this value.
    Schedule(&'static str),
    /// A value that only the running system or another key can give; the text says which.
    Otherwise(&'static str),
    /// Nothing: the file must say.
    Required,
}

/// One key of a section.
pub(in crate::config) struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// Lines of its description.
    pub doc: &'static [&'static str],
    /// The values that it takes.
    pub kind: &'static dyn Describe,
    /// What it is when the file doesn't say.
    pub fallback: Fallback,
}

/// A section as the reference and the messages know it.
pub(in crate::config) struct Schema {
    /// As written in the file: `[limits]`, `[[site]]`; empty for the top level.
    pub header: &'static str,
    /// Lines of its description.
    pub doc: &'static [&'static str],
    /// A short piece of configuration that shows it at work.
    pub example: &'static str,
    /// In the order of the reference.
    pub keys: &'static [Key],
}

impl Schema {
    /// The header as messages name it.
    pub(super) fn place(&self) -> String {
        if self.header.is_empty() { "at the top level".to_owned() } else { format!("in {}", self.header) }
    }
}

/// A struct made by `section!`.
pub(in crate::config) trait Section: Default {
    /// Its keys and their words.
    const SCHEMA: &'static Schema;

    /// Takes every key from the file; mistakes go to the reader's context and leave the default in their place.
    fn read(reader: &Reader<'_>) -> Self;
}

/// What all readers of one file share.
pub(in crate::config) struct Context<'a> {
    /// Relative paths start here.
    pub base: &'a Path,
    /// The whole file.
    pub root: Option<&'a DeTable<'a>>,
    /// Whether all of it could be parsed: else nothing is said to be missing.
    pub is_whole: bool,
    /// Found so far, in the order of reading.
    pub mistakes: RefCell<Vec<Mistake>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(base: &'a Path, root: Option<&'a DeTable<'a>>) -> Self {
        Context { base, root, is_whole: true, mistakes: RefCell::default() }
    }

    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.mistakes.borrow_mut().push(Mistake::new(Severity::Error, span, message, help));
    }
}

/// Where a kind reads: the key, for its messages, and the file.
#[derive(Clone, Copy)]
pub(in crate::config) struct At<'a> {
    /// As written in the file.
    pub key: &'static str,
    /// Shared by the whole file.
    pub context: &'a Context<'a>,
}

impl At<'_> {
    pub(super) fn error(&self, span: Range<usize>, message: impl AsRef<str>, help: impl Into<String>) {
        self.context.error(span, format!("`{}`: {}", self.key, message.as_ref()), help);
    }

    /// Reports a value of another TOML type than `wanted`.
    pub(super) fn wrong_type(&self, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(value.span(), format!("this is {found}"), format!("write {wanted}"));
    }
}

/// Reads one table as a section.
pub(in crate::config) struct Reader<'a> {
    table: Option<&'a DeTable<'a>>,
    span: Range<usize>,
    schema: &'static Schema,
    context: &'a Context<'a>,
}

impl<'a> Reader<'a> {
    /// A reader that finds nothing, so that every key has its default.
    pub(super) fn empty(schema: &'static Schema, context: &'a Context<'a>) -> Self {
        Reader { table: None, span: 0..0, schema, context }
    }

    /// A reader of `table`, which is to be blamed for missing keys at `span`. Reports unknown keys at once.
    pub(super) fn new(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        schema: &'static Schema,
        context: &'a Context<'a>,
    ) -> Self {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if schema.keys.iter().all(|known| known.name != name) {
                let message = format!("unknown key `{name}` {}", schema.place());
                context.error(key.span(), message, suggest::key(name, schema));
            }
        }
        Reader { table: Some(table), span, schema, context }
    }

    /// The value of `key`: the file's, or the default when the file has none or a wrong one.
    pub(super) fn value<K: Kind>(&self, key: &'static str, kind: &K, fallback: Fallback) -> K::Value {
        let at = At { key, context: self.context };
        match self.table.and_then(|table| table.get(key)) {
            Some(value) => kind.read(value, &at).unwrap_or_else(|| self.fallback(key, kind, fallback)),
            None => {
                if let (Fallback::Required, Some(_), true) = (fallback, self.table, self.context.is_whole) {
                    let help = format!("add `{key} = {}`", kind.example());
                    self.context.error(self.span.clone(), format!("`{key}` is missing {}", self.schema.place()), help);
                }
                self.fallback(key, kind, fallback)
            }
        }
    }

    fn fallback<K: Kind>(&self, key: &'static str, kind: &K, fallback: Fallback) -> K::Value {
        // What is wrong in the other section is reported there.
        let quiet = Context::new(self.context.base, None);
        let at = At { key, context: &quiet };
        let of = |section| self.context.root.and_then(|root| root.get(section)).and_then(|v| v.get_ref().get(key));
        let (elsewhere, text) = match fallback {
            Fallback::Toml(text) => (None, text),
            Fallback::Limits(text) => (of("limits"), text),
            Fallback::Schedule(text) => (of("schedule"), text),
            Fallback::Otherwise(_) | Fallback::Required => {
                return kind
                    .otherwise(&At { key, context: self.context })
                    .expect("such keys have a kind that has a value all the same: a test makes them all");
            }
        };
        if let Some(value) = elsewhere.and_then(|value| kind.read(value, &at)) {
            return value;
        }
        let value = DeValue::parse(text).expect("defaults are TOML: a test parses them all");
        kind.read(&value, &at).expect("defaults are valid: a test reads them all")
    }
}

/// Declares a section: its header, an example, and for each key its sentence, name (the file's in brackets where it differs from the
/// field's), Rust type, kind and fallback. Gives the struct, [`Section`] and `Default`. Fields after `computed` aren't read from the file.
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])*
        $name:ident $header:literal example $example:literal {
            $(
                $(#[doc = $doc:literal])*
                $field:ident $(($key:literal))?: $type:ty = $kind:expr, $fallback:expr;
            )*
        }
        $(computed { $( $(#[doc = $computed_doc:literal])* $computed:ident: $computed_type:ty; )* })?
    ) => {
        $(#[doc = $section_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $type, )*
            $($( $(#[doc = $computed_doc])* pub $computed: $computed_type, )*)?
        }

        impl $crate::config::schema::Section for $name {
            const SCHEMA: &'static $crate::config::schema::Schema = &$crate::config::schema::Schema {
                header: $header,
                doc: &[$($section_doc),*],
                example: $example,
                keys: &[$(
                    $crate::config::schema::Key {
                        name: $crate::config::schema::key_name!($field $($key)?),
                        doc: &[$($doc),*],
                        kind: &$kind,
                        fallback: $fallback,
                    },
                )*],
            };

            fn read(reader: &$crate::config::schema::Reader<'_>) -> Self {
                Self {
                    $( $field: reader.value($crate::config::schema::key_name!($field $($key)?), &$kind, $fallback), )*
                    $($( $computed: Default::default(), )*)?
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                use $crate::config::schema::{Context, Reader, Section};
                Self::read(&Reader::empty(Self::SCHEMA, &Context::new(std::path::Path::new("."), None)))
            }
        }
    };
}

macro_rules! key_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

pub(super) use {key_name, section};
