//! What can be asked of a running leat. On the socket: `{"command": "weight", "node": "n1", "weight": 50}`; the command line and the admin
//! address have their forms of it from the same declaration.

use std::net::IpAddr;

use leat_logic::dispatch::PolicyKind;
use leat_logic::dispatch::limits::WEIGHT_MAX;
use serde_json::{Map, Value, json};

use super::form::{Access, Argument, Form, Parameter};

/// Contents listed at once, at most.
pub(super) const LIMIT_MAX: usize = 10_000;

/// A parameter's default, where it has one.
macro_rules! default {
    () => {
        None
    };
    ($default:literal) => {
        Some($default)
    };
}

/// Declares all commands: the enum, how each is written and read, and its [`Form`] for the command line and the admin address.
macro_rules! commands {
    ($(
        #[doc = $doc:literal]
        $command:ident $name:literal as [$($word:literal),+], $access:ident $({
            $( #[doc = $about:literal] $field:ident: $kind:ty $(= $default:literal)?, )+
        })?
    )*) => {
        /// A question, or an order.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command {
            $(
                #[doc = $doc]
                $command $({ $( #[doc = $about] $field: $kind, )+ })?,
            )*
        }

        impl Command {
            /// Every command there is.
            pub const FORMS: &'static [Form] = &[$(
                Form {
                    name: $name,
                    words: &[$($word),+],
                    about: $doc,
                    access: Access::$access,
                    parameters: &[$($(
                        Parameter {
                            name: stringify!($field),
                            about: $about,
                            is_number: <$kind as Argument>::IS_NUMBER,
                            default: default!($($default)?),
                        },
                    )+)?],
                },
            )*];

            /// As on the socket.
            #[must_use]
            pub fn to_json(&self) -> Value {
                match self {
                    $(
                        Command::$command $({ $($field),+ })? => {
                            json!({ "command": $name $($(, stringify!($field): $field.write())+)? })
                        }
                    )*
                }
            }

            pub(super) fn from_object(object: &Map<String, Value>) -> Result<Command, String> {
                match String::read(object, "command")?.as_str() {
                    $(
                        $name => Ok(Command::$command $({ $($field: <$kind>::read(object, stringify!($field))?),+ })?),
                    )*
                    other => Err(format!("there is no command `{other}`")),
                }
            }
        }
    };
}

commands! {
    /// What the process is and serves.
    Status "status" as ["status"], Open
    /// Every metric.
    Counters "counters" as ["counters"], Open
    /// Every node with its load and health.
    Nodes "nodes" as ["nodes"], Open
    /// The contents that were asked for last, and the nodes that they went to.
    Table "table" as ["table"], Private {
        /// How many to list.
        limit: usize = "20",
    }
    /// The connections that were handed over.
    Flows "flows" as ["flows"], Open
    /// The ports for other protocols than HTTP, with their nodes.
    Ports "ports" as ["ports"], Open
    /// Where a request would go and why.
    Explain "explain" as ["explain"], Open {
        /// The request, as in 'GET /path' or 'GET http://host/path'.
        request: String,
    }
    /// Whether a connection server would delegate a request and why, and what that costs.
    Split "split" as ["split", "explain"], Open {
        /// The request, as in 'GET /path' or 'GET http://host/path'.
        request: String,
        /// The address of the client, where it counts which data server is near.
        client: Option<IpAddr> = "",
    }
    /// Give a node another weight until the next reload.
    Weight "weight" as ["weight"], Change {
        /// Its name.
        node: String,
        /// 100 for an ordinary one.
        weight: u32,
    }
    /// Choose nodes by another policy until the next reload.
    Policy "policy" as ["policy"], Change {
        /// Its name.
        policy: PolicyKind,
    }
    /// Give a node nothing new.
    Drain "drain" as ["drain"], Change {
        /// Its name.
        node: String,
    }
    /// Let a node be chosen again.
    Resume "resume" as ["resume"], Change {
        /// Its name.
        node: String,
    }
}

impl Command {
    /// How it's asked for.
    pub(super) fn form(&self) -> Option<&'static Form> {
        let written = self.to_json();
        Command::FORMS.iter().find(|form| written["command"] == form.name)
    }

    /// Reads a line of the socket.
    ///
    /// # Errors
    /// What is wrong with it, in words for whoever wrote it.
    pub fn from_json(line: &[u8]) -> Result<Command, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("this isn't JSON: {error}"))?;
        let object = value.as_object().ok_or("a command is an object, as in {\"command\": \"nodes\"}")?;
        Command::from_object(object)
    }
}

impl Argument for String {
    const IS_NUMBER: bool = false;

    fn read(object: &Map<String, Value>, key: &str) -> Result<String, String> {
        let value =
            object.get(key).and_then(Value::as_str).ok_or_else(|| format!("`{key}` is missing, or no string"))?;
        Ok(value.to_owned())
    }

    fn write(&self) -> Value {
        self.as_str().into()
    }
}

impl Argument for PolicyKind {
    const IS_NUMBER: bool = false;

    fn read(object: &Map<String, Value>, key: &str) -> Result<PolicyKind, String> {
        let name = String::read(object, key)?;
        PolicyKind::from_name(&name).ok_or_else(|| {
            let names: Vec<_> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("there is no policy `{name}`: they are {}", names.join(", "))
        })
    }

    fn write(&self) -> Value {
        self.name().into()
    }
}

/// How many contents to list.
impl Argument for usize {
    const IS_NUMBER: bool = true;

    fn read(object: &Map<String, Value>, key: &str) -> Result<usize, String> {
        number(object, key, LIMIT_MAX as u64).map(|number| number as usize)
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

/// A weight.
impl Argument for u32 {
    const IS_NUMBER: bool = true;

    fn read(object: &Map<String, Value>, key: &str) -> Result<u32, String> {
        number(object, key, WEIGHT_MAX.into()).map(|number| number as u32)
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

/// An address that may be missing, or blank.
impl Argument for Option<IpAddr> {
    const IS_NUMBER: bool = false;

    fn read(object: &Map<String, Value>, key: &str) -> Result<Option<IpAddr>, String> {
        let is_written = |value: &&Value| !value.is_null() && value.as_str() != Some("");
        let Some(value) = object.get(key).filter(is_written) else { return Ok(None) };
        let address = value.as_str().and_then(|text| text.parse().ok());
        address.map(Some).ok_or_else(|| format!("`{key}` is no address as in \"192.0.2.1\" or \"2001:db8::1\""))
    }

    fn write(&self) -> Value {
        self.map(|address| address.to_string()).into()
    }
}

fn number(object: &Map<String, Value>, key: &str, max: u64) -> Result<u64, String> {
    let value = object.get(key).and_then(Value::as_u64).filter(|number| (1..=max).contains(number));
    value.ok_or_else(|| format!("`{key}` is missing, or no whole number from 1 to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let node = || "n1".to_owned();
        let commands = [
            Command::Status,
            Command::Counters,
            Command::Nodes,
            Command::Table { limit: 5 },
            Command::Flows,
            Command::Ports,
            Command::Explain { request: "GET /\"x\"\n".to_owned() },
            Command::Split { request: "GET /".to_owned(), client: "2001:db8::1".parse().ok() },
            Command::Weight { node: node(), weight: 50 },
            Command::Policy { policy: PolicyKind::PowerOfTwo },
            Command::Drain { node: node() },
            Command::Resume { node: node() },
        ];
        assert_eq!(commands.len(), Command::FORMS.len());
        for command in commands {
            let line = command.to_json().to_string();
            assert!(!line.contains('\n'), "it's one line");
            assert_eq!(Command::from_json(line.as_bytes()), Ok(command));
        }
        let without = Command::Split { request: "GET /".to_owned(), client: None };
        assert_eq!(Command::from_json(without.to_json().to_string().as_bytes()), Ok(without));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let wrong = [
            ("nodes", "this isn't JSON"),
            ("[]", "a command is an object"),
            ("{}", "`command` is missing"),
            ("{\"command\": \"stop\"}", "there is no command `stop`"),
            (
                "{\"command\": \"weight\", \"node\": \"n1\", \"weight\": 0}",
                "`weight` is missing, or no whole number from 1 to",
            ),
            ("{\"command\": \"split\", \"request\": \"/\", \"client\": \"x\"}", "`client` is no address as in"),
            ("{\"command\": \"policy\", \"policy\": \"lard\"}", "there is no policy `lard`: they are mix_lard, "),
        ];
        for (line, message) in wrong {
            let told = Command::from_json(line.as_bytes()).expect_err("it's wrong");
            assert!(told.starts_with(message), "{told}");
        }
    }
}
