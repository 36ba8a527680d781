//! Strings, and what is made of them: one of several words, lists, tables of pairs. Also booleans.

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::{Describe, Kind};
use crate::config::schema::At;
use crate::config::suggest;

/// Why a string isn't a value: what is wrong, as a clause that follows the string, and what would be right.
pub(in crate::config) struct Wrong {
    pub(in crate::config) what: String,
    pub(in crate::config) help: String,
}

impl Wrong {
    pub(in crate::config) fn new<T>(what: impl Into<String>, help: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong { what: what.into(), help: help.into() })
    }
}

/// A string that `parse` makes a value of; relative paths start at the directory that it is given.
pub(in crate::config) struct Text<T> {
    pub(in crate::config) description: &'static str,
    pub(in crate::config) example: &'static str,
    pub(in crate::config) parse: fn(&str, &Path) -> Result<T, Wrong>,
}

impl<T> Describe for Text<T> {
    fn describe(&self) -> String {
        self.description.to_owned()
    }

    fn example(&self) -> String {
        format!("\"{}\"", self.example)
    }
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<T> {
        let DeValue::String(written) = value.get_ref() else {
            at.wrong_type(value, &format!("a string, as in {}", self.example()));
            return None;
        };
        let parsed = (self.parse)(written, at.context.base);
        parsed.map_err(|wrong| at.error(value.span(), format!("{written:?} {}", wrong.what), wrong.help)).ok()
    }
}

/// `true` or `false`.
pub(in crate::config) struct Flag;

impl Describe for Flag {
    fn describe(&self) -> String {
        "boolean".to_owned()
    }

    fn example(&self) -> String {
        "true".to_owned()
    }
}

impl Kind for Flag {
    type Value = bool;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<bool> {
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        at.wrong_type(value, "true or false, without quotes");
        None
    }
}

/// One of several words, each with its value.
pub(in crate::config) struct Choice<T: 'static>(pub(in crate::config) &'static [(&'static str, T)]);

impl<T> Describe for Choice<T> {
    fn describe(&self) -> String {
        code(self.0.iter().map(|(word, _)| *word))
    }

    fn example(&self) -> String {
        self.0.first().map_or_else(String::new, |(word, _)| format!("\"{word}\""))
    }
}

impl<T: Copy> Kind for Choice<T> {
    type Value = T;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<T> {
        let word = word(value, self.0.iter().map(|(word, _)| *word), at)?;
        self.0.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }
}

pub(super) fn word<'a>(
    value: &Spanned<DeValue<'_>>,
    words: impl IntoIterator<Item = &'a str, IntoIter: Clone>,
    at: &At<'_>,
) -> Option<&'a str> {
    let words = words.into_iter();
    let DeValue::String(written) = value.get_ref() else {
        at.wrong_type(value, &quoted(words));
        return None;
    };
    let found = words.clone().find(|word| word == written);
    if found.is_none() {
        let all = quoted(words.clone());
        let help = match suggest::nearest(written, words) {
            Some(word) => format!("did you mean \"{word}\"? It may be {all}"),
            None => format!("write {all}"),
        };
        at.error(value.span(), format!("{written:?} isn't known here"), help);
    }
    found
}

/// The same for the reference.
pub(super) fn code<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

/// `"a", "b" or "c"`.
fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// A list of values, none of them twice. One value may stand without brackets.
pub(in crate::config) struct ListOf<K>(pub(in crate::config) K);

impl<K: Describe> Describe for ListOf<K> {
    fn describe(&self) -> String {
        format!("list: {}", self.0.describe())
    }

    fn example(&self) -> String {
        format!("[{}]", self.0.example())
    }
}

impl<K: Kind<Value: PartialEq>> Kind for ListOf<K> {
    type Value = Vec<K::Value>;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Self::Value> {
        let DeValue::Array(items) = value.get_ref() else {
            if let DeValue::String(_) = value.get_ref() {
                return self.0.read(value, at).map(|item| vec![item]);
            }
            at.wrong_type(value, &format!("a list, as in {}", self.example()));
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        let mut complete = true;
        for item in items.iter() {
            match self.0.read(item, at) {
                Some(value) if values.contains(&value) => {
                    at.error(item.span(), "this is in the list already", "take it out");
                    complete = false;
                }
                Some(value) => values.push(value),
                None => complete = false,
            }
        }
        complete.then_some(values)
    }
}

/// A table whose keys are values too. `make` joins both; pairs come in the order of the file.
pub(in crate::config) struct Pairs<K, V, T> {
    pub(in crate::config) key: Text<K>,
    pub(in crate::config) value: Text<V>,
    pub(in crate::config) make: fn(K, V) -> T,
}

impl<K, V, T> Describe for Pairs<K, V, T> {
    fn describe(&self) -> String {
        format!("table: {} = {}", self.key.description, self.value.description)
    }

    fn example(&self) -> String {
        format!("{{ \"{}\" = \"{}\" }}", self.key.example, self.value.example)
    }
}

impl<K: PartialEq, V, T> Kind for Pairs<K, V, T> {
    type Value = Vec<T>;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Vec<T>> {
        let DeValue::Table(table) = value.get_ref() else {
            at.wrong_type(value, &format!("a table, as in {}", self.example()));
            return None;
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (name, value) in &entries {
            let key = (self.key.parse)(name.get_ref(), at.context.base);
            let key = key
                .map_err(|wrong| at.error(name.span(), format!("{:?} {}", name.get_ref(), wrong.what), wrong.help))
                .ok();
            let value = self.value.read(value, at);
            let Some((key, value)) = key.zip(value) else { continue };
            if keys.contains(&key) {
                at.error(name.span(), format!("{:?} is in the table already", name.get_ref()), "take one of them out");
                continue;
            }
            keys.push(key);
            values.push(value);
        }
        let complete = keys.len() == entries.len();
        complete.then(|| keys.into_iter().zip(values).map(|(key, value)| (self.make)(key, value)).collect())
    }
}

/// A site's name: a label of metrics and logs.
pub(in crate::config) const NAME: Text<String> = Text { description: "string", example: "docs", parse: parse_name };

fn parse_name(written: &str, _: &Path) -> Result<String, Wrong> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:*[]".contains(c);
    if written.is_empty() || written.len() > 253 || !written.chars().all(good) {
        let help = "write 1 to 253 letters, digits and -_.:*[], as in \"docs\": it is a label of metrics and logs";
        return Wrong::new("isn't a name", help);
    }
    Ok(written.to_owned())
}

/// The name of an owner; none when empty.
pub(in crate::config) const OWNER: Text<String> =
    Text { description: "name of an owner or `\"\"`", example: "press", parse: parse_owner };

fn parse_owner(written: &str, base: &Path) -> Result<String, Wrong> {
    if written.is_empty() { Ok(String::new()) } else { parse_name(written, base) }
}

/// The charset parameter of text types; none when empty.
pub(in crate::config) const CHARSET: Text<String> =
    Text { description: "charset name or `\"\"`", example: "utf-8", parse: parse_charset };

fn parse_charset(written: &str, _: &Path) -> Result<String, Wrong> {
    // RFC 2978, section 2.3, less the signs that would need quoting in a header.
    if written.len() > 40 || !written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+:".contains(&byte)) {
        return Wrong::new("isn't the name of a charset", "write a name as in \"utf-8\", or \"\" for none");
    }
    Ok(written.to_owned())
}

/// The status of an error reply.
pub(in crate::config) const STATUS: Text<u16> = Text { description: "status", example: "404", parse: parse_status };

fn parse_status(written: &str, _: &Path) -> Result<u16, Wrong> {
    match written.parse::<u16>() {
        Ok(status @ 400..=599) if written.len() == 3 => Ok(status),
        _ => Wrong::new("isn't the status of an error", "write a number from 400 to 599, as in 404 = \"/404.html\""),
    }
}

/// A name of HTTP: a method, a cookie.
pub(in crate::config) const TOKEN: Text<String> = Text { description: "token", example: "POST", parse: parse_token };

fn parse_token(written: &str, _: &Path) -> Result<String, Wrong> {
    // RFC 9110, section 5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if written.is_empty() || !written.bytes().all(is_token) {
        return Wrong::new("isn't a token", "write letters, digits and -_. only, as they are sent");
    }
    Ok(written.to_owned())
}

/// Processors by their numbers, as the kernel's control groups take them; all when empty.
pub(in crate::config) const CPU_LIST: Text<String> =
    Text { description: "processors, or `\"\"`", example: "0-2,5", parse: parse_cpu_list };

fn parse_cpu_list(written: &str, _: &Path) -> Result<String, Wrong> {
    let is_range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if first <= last)
    };
    if !written.is_empty() && !written.split(',').all(is_range) {
        return Wrong::new("isn't a list of processors", "write numbers and ranges, as in \"0-2,5\"");
    }
    Ok(written.to_owned())
}
