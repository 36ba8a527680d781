//! How a command is asked for, whatever the way: by the words and parameters of its [`Form`], which `command` declares with it. The command line
//! and the admin address both go by the list of forms, so that neither can have a command that the other hasn't.

use serde_json::{Map, Value};

use super::command::Command;

/// Who may ask over the admin address. At the socket it's whoever may use the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever reaches the address: it tells no more than the metrics do, or than a configuration says.
    Open,
    /// Who has the token: it tells what clients have asked for.
    Private,
    /// Who has the token: it changes something.
    Change,
}

/// A value that commands take.
pub(super) trait Argument: Sized {
    /// Whether it's a number in JSON, and a string else.
    const IS_NUMBER: bool;

    /// Takes it from the object of a command.
    fn read(object: &Map<String, Value>, key: &str) -> Result<Self, String>;

    /// As in the object of a command.
    fn write(&self) -> Value;
}

/// What a command wants to be told.
#[derive(Debug)]
pub struct Parameter {
    /// Its key.
    pub name: &'static str,
    /// For people, as a line of documentation.
    pub about: &'static str,
    pub(super) is_number: bool,
    /// What it is where it isn't written. On the command line it's a flag then.
    pub default: Option<&'static str>,
}

/// A command as it can be asked for.
#[derive(Debug)]
pub struct Form {
    pub(super) name: &'static str,
    /// On the command line; with slashes between them, in a path.
    pub words: &'static [&'static str],
    /// For people, as a line of documentation.
    pub about: &'static str,
    /// Who may ask over the admin address.
    pub access: Access,
    /// In the order of the command line.
    pub parameters: &'static [Parameter],
}

impl Form {
    /// The command with what was written for its parameters, by their names.
    ///
    /// # Errors
    /// What is wrong with that, in words for whoever wrote it.
    pub fn command<'a>(&self, written: impl Fn(&str) -> Option<&'a str>) -> Result<Command, String> {
        let mut object = Map::from_iter([("command".to_owned(), Value::from(self.name))]);
        for parameter in self.parameters {
            let Some(text) = written(parameter.name).or(parameter.default) else { continue };
            let number = text.parse::<u64>().ok().filter(|_| parameter.is_number);
            object.insert(parameter.name.to_owned(), number.map_or_else(|| text.into(), Value::from));
        }
        Command::from_object(&object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_had_by_its_form() {
        for form in Command::FORMS {
            let value = |name: &str| match name {
                "policy" => Some("round_robin"),
                "client" => Some("192.0.2.1"),
                _ => Some("7"),
            };
            let command = form.command(value).expect("all is written");
            assert_eq!(command.to_json()["command"], form.name);
            assert_eq!(command.to_json().as_object().map(Map::len), Some(1 + form.parameters.len()));
            let required = form.parameters.iter().find(|parameter| parameter.default.is_none());
            let bare = form.command(|_| None);
            assert_eq!(bare.is_err(), required.is_some(), "{bare:?}");
            let same = Command::FORMS.iter().filter(|other| other.words == form.words || other.name == form.name);
            assert_eq!(same.count(), 1, "{form:?}");
            assert!(form.words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
        }
    }
}
