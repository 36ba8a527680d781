//! What can be asked of a running leat. On the socket: `{"command": "weight", "node": "n1", "weight": 50}`.

use leat_logic::dispatch::PolicyKind;
use leat_logic::dispatch::limits::WEIGHT_MAX;
use serde_json::{Map, Value, json};

/// A question, or an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// What the process is and serves.
    Status,
    /// Every metric, as Prometheus reads it.
    Counters,
    /// Every node with its load and health.
    Nodes,
    /// The contents that were asked for last, and their nodes.
    Table {
        /// How many.
        limit: usize,
    },
    /// The connections that were handed over.
    Flows,
    /// The ports for other protocols than HTTP.
    Ports,
    /// Where a request would go and why.
    Explain {
        /// As in `GET http://host/path`.
        request: String,
    },
    /// Whether a connection server would delegate a request, and why.
    Split {
        /// As in `GET http://host/path`.
        request: String,
    },
    /// Give a node another weight until the next reload.
    Weight {
        /// Its name.
        node: String,
        /// 100 for an ordinary one.
        weight: u32,
    },
    /// Choose nodes by another policy until the next reload.
    Policy {
        /// Which.
        policy: PolicyKind,
    },
    /// Give a node nothing new.
    Drain {
        /// Its name.
        node: String,
    },
    /// Undo a drain.
    Resume {
        /// Its name.
        node: String,
    },
}

/// Contents listed at once, at most.
pub(super) const LIMIT_MAX: usize = 10_000;

impl Command {
    /// As on the socket.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Command::Status => json!({ "command": "status" }),
            Command::Counters => json!({ "command": "counters" }),
            Command::Nodes => json!({ "command": "nodes" }),
            Command::Table { limit } => json!({ "command": "table", "limit": limit }),
            Command::Flows => json!({ "command": "flows" }),
            Command::Ports => json!({ "command": "ports" }),
            Command::Explain { request } => json!({ "command": "explain", "request": request }),
            Command::Split { request } => json!({ "command": "split", "request": request }),
            Command::Weight { node, weight } => json!({ "command": "weight", "node": node, "weight": weight }),
            Command::Policy { policy } => json!({ "command": "policy", "policy": policy.name() }),
            Command::Drain { node } => json!({ "command": "drain", "node": node }),
            Command::Resume { node } => json!({ "command": "resume", "node": node }),
        }
    }

    /// Reads a line of the socket.
    ///
    /// # Errors
    /// What is wrong with it, in words for whoever wrote it.
    pub fn from_json(line: &[u8]) -> Result<Command, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("this isn't JSON: {error}"))?;
        let object = value.as_object().ok_or("a command is an object, as in {\"command\": \"nodes\"}")?;
        let node = || text(object, "node");
        match text(object, "command")?.as_str() {
            "status" => Ok(Command::Status),
            "counters" => Ok(Command::Counters),
            "nodes" => Ok(Command::Nodes),
            "table" => Ok(Command::Table { limit: number(object, "limit", LIMIT_MAX as u64)? as usize }),
            "flows" => Ok(Command::Flows),
            "ports" => Ok(Command::Ports),
            "explain" => Ok(Command::Explain { request: text(object, "request")? }),
            "split" => Ok(Command::Split { request: text(object, "request")? }),
            "weight" => {
                Ok(Command::Weight { node: node()?, weight: number(object, "weight", WEIGHT_MAX.into())? as u32 })
            }
            "policy" => Ok(Command::Policy { policy: policy(&text(object, "policy")?)? }),
            "drain" => Ok(Command::Drain { node: node()? }),
            "resume" => Ok(Command::Resume { node: node()? }),
            other => Err(format!("there is no command `{other}`")),
        }
    }
}

/// The policy of this name.
pub(super) fn policy(name: &str) -> Result<PolicyKind, String> {
    PolicyKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("there is no policy `{name}`: they are {}", names.join(", "))
    })
}

fn text(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    let value = object.get(key).and_then(Value::as_str).ok_or_else(|| format!("`{key}` is missing, or no string"))?;
    Ok(value.to_owned())
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
            Command::Weight { node: node(), weight: 50 },
            Command::Policy { policy: PolicyKind::PowerOfTwo },
            Command::Drain { node: node() },
            Command::Resume { node: node() },
        ];
        for command in commands {
            let line = command.to_json().to_string();
            assert!(!line.contains('\n'), "it's one line");
            assert_eq!(Command::from_json(line.as_bytes()), Ok(command));
        }
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
            ("{\"command\": \"policy\", \"policy\": \"lard\"}", "there is no policy `lard`: they are mix_lard, "),
        ];
        for (line, message) in wrong {
            let told = Command::from_json(line.as_bytes()).expect_err("it's wrong");
            assert!(told.starts_with(message), "{told}");
        }
    }
}
