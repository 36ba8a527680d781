//! Sections within sections: `[limits]`, `[[site]]`.

use std::marker::PhantomData;

use toml::Spanned;
use toml::de::DeValue;

use super::{Describe, Kind};
use crate::config::schema::{At, Reader, Schema, Section};

/// A table that is a section.
pub(in crate::config) struct Nested<T>(PhantomData<fn() -> T>);

/// A list of tables, each of which is a section.
pub(in crate::config) struct Repeated<T>(PhantomData<fn() -> T>);

/// A table that is a section, or no such table.
pub(in crate::config) struct Maybe<T>(Nested<T>);

impl<T> Maybe<T> {
    pub(in crate::config) const fn new() -> Self {
        Maybe(Nested::new())
    }
}

impl<T: Section> Describe for Maybe<T> {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn example(&self) -> String {
        self.0.example()
    }

    fn nested(&self) -> Option<&'static Schema> {
        self.0.nested()
    }
}

impl<T: Section> Kind for Maybe<T> {
    type Value = Option<T>;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Option<T>> {
        self.0.read(value, at).map(Some)
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<Option<T>> {
        Some(None)
    }
}

impl<T> Nested<T> {
    pub(in crate::config) const fn new() -> Self {
        Nested(PhantomData)
    }
}

impl<T> Repeated<T> {
    pub(in crate::config) const fn new() -> Self {
        Repeated(PhantomData)
    }
}

impl<T: Section> Describe for Nested<T> {
    fn describe(&self) -> String {
        "table".to_owned()
    }

    fn example(&self) -> String {
        "{}".to_owned()
    }

    fn nested(&self) -> Option<&'static Schema> {
        Some(T::SCHEMA)
    }
}

impl<T: Section> Kind for Nested<T> {
    type Value = T;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<T> {
        match value.get_ref() {
            DeValue::Table(table) => Some(T::read(&Reader::new(table, value.span(), T::SCHEMA, at.context))),
            DeValue::Array(_) => {
                let help = format!("write {} with single brackets, once", T::SCHEMA.header);
                at.error(value.span(), "this is a list, and there can be only one", help);
                None
            }
            _ => {
                at.wrong_type(
                    value,
                    &format!("a section: {} on a line of its own, its keys after it", T::SCHEMA.header),
                );
                None
            }
        }
    }

    fn otherwise(&self, at: &At<'_>) -> Option<T> {
        Some(T::read(&Reader::empty(T::SCHEMA, at.context)))
    }
}

impl<T: Section> Describe for Repeated<T> {
    fn describe(&self) -> String {
        "list of tables".to_owned()
    }

    fn example(&self) -> String {
        "[]".to_owned()
    }

    fn nested(&self) -> Option<&'static Schema> {
        Some(T::SCHEMA)
    }
}

impl<T: Section> Kind for Repeated<T> {
    type Value = Vec<T>;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Vec<T>> {
        let header = T::SCHEMA.header;
        let DeValue::Array(items) = value.get_ref() else {
            at.wrong_type(value, &format!("{header} with double brackets: there may be several"));
            // Read it all the same, so that the mistakes inside are told at once.
            let DeValue::Table(table) = value.get_ref() else { return None };
            return Some(vec![T::read(&Reader::new(table, value.span(), T::SCHEMA, at.context))]);
        };
        let tables = items.iter().map(|item| match item.get_ref() {
            DeValue::Table(table) => T::read(&Reader::new(table, item.span(), T::SCHEMA, at.context)),
            _ => {
                at.wrong_type(item, &format!("a section: {header} on a line of its own, its keys after it"));
                T::default()
            }
        });
        Some(tables.collect())
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<Vec<T>> {
        Some(Vec::new())
    }
}
