//! What a dispatcher says to a command. Answers are objects; `text` in them is for people, the rest for programs.

use leat_logic::dispatch::{Dispatcher, Facts, NodeId, NodeLine, Settings, TableEntry};
use leat_logic::time::Instant;
use serde_json::{Value, json};

use super::command::{Command, LIMIT_MAX};
use super::form::Access;
use super::merge;
use crate::config::Cluster;

/// What `dispatcher` says to `command`; it does what it's told.
///
/// # Errors
/// Why it can't, in words for whoever asked.
pub fn answer(dispatcher: &mut Dispatcher, command: &Command, now: Instant) -> Result<Value, String> {
    match command {
        Command::Nodes => Ok(nodes(dispatcher, now)),
        Command::Table { limit } => Ok(table(dispatcher, *limit, now)),
        Command::Explain { request } => {
            let facts = Facts::written(request).ok_or("write a request as in 'GET /path' or 'GET http://host/path'")?;
            let explanation = dispatcher.explain(&facts, now);
            let node = explanation.chosen.as_ref().ok().map(|(name, _)| name.clone());
            let class = if explanation.class.is_dynamic() { "dynamic" } else { "static" };
            let key = explanation.key.to_string();
            Ok(json!({ "node": node, "class": class, "key": key, "text": explanation.to_string() }))
        }
        Command::Weight { node, weight } => {
            let id = find(dispatcher, node)?;
            dispatcher.set_weight(id, *weight);
            Ok(done(format!("{node} has weight {weight} until the next reload")))
        }
        Command::Policy { policy } => {
            dispatcher.configure(Settings { policy: *policy, ..dispatcher.settings().clone() });
            Ok(done(format!("nodes are chosen by {policy} until the next reload")))
        }
        Command::Drain { node } => {
            let id = find(dispatcher, node)?;
            dispatcher.set_draining(id, true, now);
            Ok(done(format!("{node} is given nothing new")))
        }
        Command::Resume { node } => {
            let id = find(dispatcher, node)?;
            dispatcher.set_draining(id, false, now);
            Ok(done(format!("{node} may be chosen again")))
        }
        Command::Split { .. } => Err("only a running connection server knows its load: ask it by --socket".to_owned()),
        Command::Status | Command::Counters | Command::Flows | Command::Ports => {
            Err("a dispatcher's choices don't know that".to_owned())
        }
    }
}

/// The same for a cluster that isn't running, as its configuration has it: every node up, nothing remembered.
///
/// # Errors
/// As [`answer`], or the command would change something: nothing of that would be left.
pub fn offline(cluster: &Cluster, command: &Command) -> Result<Value, String> {
    if command.form().is_some_and(|form| form.access == Access::Change) {
        return Err("only a running leat can be changed: ask it by --socket, without --config".to_owned());
    }
    let now = Instant::default();
    let key = cluster.key_file.as_ref().map_or([0; 32], |key| *key.bytes());
    let mut dispatcher = Dispatcher::new(cluster.settings(), &key, 1);
    dispatcher.set_nodes(&cluster.node_settings(), now);
    answer(&mut dispatcher, command, now)
}

fn find(dispatcher: &Dispatcher, name: &str) -> Result<NodeId, String> {
    dispatcher.find(name).ok_or_else(|| format!("there is no node `{name}`"))
}

/// What is to be done is done.
pub(crate) fn done(text: impl std::fmt::Display) -> Value {
    json!({ "text": format!("{text}\n") })
}

fn nodes(dispatcher: &Dispatcher, now: Instant) -> Value {
    let node = |line: NodeLine| {
        json!({
            "name": line.name,
            "standing": line.standing.to_string(),
            "weight": line.weight,
            "share_permille": line.share_permille,
            "active": line.active,
            "busy_permille": line.busy_permille,
            "report_age_ms": line.report_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            "figures": line.figures(),
        })
    };
    merge::list_nodes(dispatcher.settings().policy.name(), dispatcher.nodes(now).map(node).collect())
}

fn table(dispatcher: &Dispatcher, limit: usize, now: Instant) -> Value {
    let (entries, bytes) = dispatcher.table_size();
    let entry = |entry: &TableEntry| {
        let age_ms = u64::try_from(now.since(entry.used).as_millis()).unwrap_or(u64::MAX);
        json!({ "key": entry.key.to_string(), "nodes": dispatcher.names(entry.nodes), "age_ms": age_ms })
    };
    let listed = dispatcher.table().take(limit.min(LIMIT_MAX)).map(entry).collect();
    merge::list_table(entries as u64, bytes as u64, listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_text;
    use leat_logic::dispatch::PolicyKind;

    fn cluster() -> Cluster {
        let text = "[[cluster.node]]\nname = 'n1'\naddress = '::1'\n[[cluster.node]]\nname = 'n2'\naddress = '::2'\npaths = '/app/*'\n";
        from_text(&format!("{text}[[site]]\nroot = '.'\n")).expect("it's valid").cluster
    }

    fn said(answer: &Value) -> &str {
        answer["text"].as_str().expect("every answer has a text")
    }

    #[test]
    fn a_dispatcher_shows_and_does() {
        let (cluster, now) = (cluster(), Instant { ns: 5_000_000_000 });
        let mut dispatcher = Dispatcher::new(cluster.settings(), &[0; 32], 1);
        dispatcher.set_nodes(&cluster.node_settings(), Instant::default());
        let node = || "n1".to_owned();
        let mut ask = |command| answer(&mut dispatcher, &command, now);
        let explain = |path: &str| Command::Explain { request: path.to_owned() };
        assert_eq!(ask(explain("GET /x")).expect("it's a request")["node"], "n1");
        assert!(ask(explain("x")).is_err());
        let mut asks_for_host =
            |request| said(&ask(explain(request)).expect("it's a request")).contains("without a host");
        assert!(asks_for_host("GET /x") && !asks_for_host("GET http://example.org/x"));
        ask(Command::Weight { node: node(), weight: 7 }).expect("there is n1");
        ask(Command::Drain { node: node() }).expect("there is n1");
        assert_eq!(ask(explain("GET /x")).expect("it's a request")["node"], Value::Null);
        assert_eq!(ask(explain("GET /app/")).expect("it's a request")["node"], "n2");
        let nodes = ask(Command::Nodes).expect("there are two");
        assert_eq!((&nodes["nodes"][0]["weight"], &nodes["nodes"][0]["standing"]), (&json!(7), &json!("draining")));
        assert!(said(&nodes).starts_with("policy mix_lard\n  n1  draining  load 0, weight 7"), "{nodes}");
        ask(Command::Resume { node: node() }).expect("there is n1");
        ask(Command::Policy { policy: PolicyKind::RoundRobin }).expect("it's a policy");
        assert_eq!(ask(Command::Nodes).expect("there are two")["policy"], "round_robin");
        assert_eq!(ask(Command::Drain { node: "n9".to_owned() }), Err("there is no node `n9`".to_owned()));
    }

    #[test]
    fn the_table_is_listed_last_used_first() {
        let (cluster, now) = (cluster(), Instant { ns: 5_000_000_000 });
        let mut dispatcher = Dispatcher::new(cluster.settings(), &[0; 32], 1);
        dispatcher.set_nodes(&cluster.node_settings(), Instant::default());
        for second in 1..4 {
            let path = format!("/{second}");
            let facts = Facts { path: path.as_bytes(), ..Facts::default() };
            dispatcher.choose(&facts, Instant { ns: second * 1_000_000_000 }).expect("there is n1");
        }
        let table = answer(&mut dispatcher, &Command::Table { limit: 2 }, now).expect("there is one");
        let ages: Vec<_> =
            table["listed"].as_array().expect("a list").iter().map(|entry| entry["age_ms"].clone()).collect();
        assert_eq!((&table["entries"], ages), (&json!(3), vec![json!(2000), json!(3000)]));
    }
}
