//! What several workers say to one question, as one answer: each of a dispatcher's has nodes, flows and a table of its own.

use std::collections::BTreeSet;

use leat_logic::dispatch::Standing;
use serde_json::{Map, Value, json};

use super::command::Command;

/// One answer of all. What any worker can't do, none can.
///
/// # Errors
/// The first one's reason.
pub(super) fn merge(command: &Command, answers: Vec<Result<Value, String>>) -> Result<Value, String> {
    // Each has seen other files.
    if let (Command::Split { .. }, Some(known)) = (command, answers.iter().find(|answer| answer.is_ok())) {
        return known.clone();
    }
    let answers = answers.into_iter().collect::<Result<Vec<Value>, String>>()?;
    let Some(first) = answers.first() else { return Err("leat is ending".to_owned()) };
    if answers.len() == 1 {
        return Ok(first.clone());
    }
    Ok(match command {
        Command::Flows => flows(&answers),
        Command::Nodes => nodes(&answers),
        Command::Ports => ports(&answers),
        Command::Table { limit } => table(&answers, *limit),
        Command::Drain { node } if !is_of_ports(first) => drain(node, sum(&answers, "flows")),
        // All have done the same, or would.
        _ => first.clone(),
    })
}

fn sum(answers: &[Value], key: &str) -> u64 {
    answers.iter().filter_map(|answer| answer[key].as_u64()).sum()
}

/// What a drain has begun.
pub(crate) fn drain(node: &str, flows: u64) -> Value {
    let text = format!("{node} is given nothing new, and {flows} connections are to leave it\n");
    json!({ "node": node, "flows": flows, "text": text })
}

/// The same where there are only ports: what has begun stays there until it ends.
pub(crate) fn drain_ports(node: &str) -> Value {
    json!({ "node": node, "is_of_ports": true, "text": format!("{node} is given nothing new by any port\n") })
}

/// Whether a drain that has begun is one of ports alone.
#[must_use]
pub fn is_of_ports(begun: &Value) -> bool {
    begun["is_of_ports"] == true
}

/// How much a node still has to do at ports, as `list_ports` says; `None` if one of them gives it more.
#[must_use]
pub fn left_at_ports(ports: &Value, node: &str) -> Option<u64> {
    let nodes = ports["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodes"].as_array()).flatten();
    let is_drained = |same: &Value| same["standing"] == Standing::Draining.to_string();
    let left = |same: &Value| is_drained(same).then(|| same["active"].as_u64().unwrap_or(0));
    nodes.filter(|same| same["name"] == node).map(left).sum()
}

/// Whether a dispatcher's node that was being drained isn't any more, as `list_flows` says.
#[must_use]
pub fn is_resumed(flows: &Value, node: &str) -> bool {
    flows["draining"].as_array().is_some_and(|draining| !draining.iter().any(|name| name == node))
}

fn flows(answers: &[Value]) -> Value {
    let mut nodes: Vec<(String, u64)> = Vec::new();
    for (name, count) in answers.iter().filter_map(|answer| answer["nodes"].as_object()).flatten() {
        let count = count.as_u64().unwrap_or(0);
        match nodes.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => nodes.push((name.clone(), count)),
        }
    }
    let mut all = list_flows(["flows", "born", "moved"].map(|key| sum(answers, key)), &nodes);
    for key in ["may_begin", "is_in_use"] {
        all[key] = sum(answers, key).into();
    }
    let lists: Vec<_> = answers.iter().filter_map(|answer| answer["draining"].as_array()).collect();
    if !lists.is_empty() {
        let names: BTreeSet<_> = lists.into_iter().flatten().filter_map(Value::as_str).collect();
        all["draining"] = names.into_iter().collect();
    }
    all
}

/// How many connections nodes have in all, how many began there and how many were moved there so far, and how many each node has.
pub(crate) fn list_flows([flows, born, moved]: [u64; 3], nodes: &[(String, u64)]) -> Value {
    let mut text = format!("{flows} connections\n");
    let mut map = Map::new();
    for (name, count) in nodes {
        text += &format!("  {name}  {count}\n");
        map.insert(name.clone(), (*count).into());
    }
    text += &format!("so far {born} began at a node, and {moved} were moved to one\n");
    json!({ "flows": flows, "nodes": map, "born": born, "moved": moved, "text": text })
}

/// Each worker has clients of its own at each port, and a look of its own at the nodes.
fn ports(answers: &[Value]) -> Value {
    let mut merged: Vec<Value> = Vec::new();
    for port in answers.iter().filter_map(|answer| answer["ports"].as_array()).flatten() {
        let Some(known) = merged.iter_mut().find(|known| known["name"] == port["name"]) else {
            merged.push(port.clone());
            continue;
        };
        let add = |to: &mut Value, more: &Value| *to = (to.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0)).into();
        add(&mut known["connections"], &port["connections"]);
        for node in known["nodes"].as_array_mut().into_iter().flatten() {
            let same = port["nodes"].as_array().into_iter().flatten().find(|other| other["name"] == node["name"]);
            same.into_iter().for_each(|other| add(&mut node["active"], &other["active"]));
        }
    }
    list_ports(merged)
}

/// Every port with its nodes.
pub(crate) fn list_ports(ports: Vec<Value>) -> Value {
    let text_of = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut text = String::new();
    for port in &ports {
        let [name, protocol, each, policy] = ["name", "protocol", "for_each", "policy"].map(|key| text_of(port, key));
        text += &format!("{name}  {protocol}, for each {each} by {policy}  connections {}\n", port["connections"]);
        for node in port["nodes"].as_array().into_iter().flatten() {
            text +=
                &format!("  {}  {}  under way {}\n", text_of(node, "name"), text_of(node, "standing"), node["active"]);
        }
    }
    if text.is_empty() {
        text = "no [[cluster.port]]\n".to_owned();
    }
    json!({ "ports": ports, "text": text })
}

/// Nodes tell every worker how much they have to do in all: what was said last has the most in it.
fn nodes(answers: &[Value]) -> Value {
    let lists: Vec<&Vec<Value>> = answers.iter().filter_map(|answer| answer["nodes"].as_array()).collect();
    let merged = lists.first().map_or(&[][..], |list| list).iter().map(|node| {
        let same = || lists.iter().flat_map(|list| list.iter()).filter(|other| other["name"] == node["name"]);
        let mut busiest = same().max_by_key(|node| node["active"].as_u64()).unwrap_or(node).clone();
        let mut standings: Vec<(&str, usize)> = Vec::new();
        for standing in same().filter_map(|node| node["standing"].as_str()) {
            match standings.iter_mut().find(|(known, _)| *known == standing) {
                Some((_, count)) => *count += 1,
                None => standings.push((standing, 1)),
            }
        }
        if standings.len() > 1 {
            let texts: Vec<_> = standings.iter().map(|(text, count)| format!("{text} for {count} workers")).collect();
            busiest["standing"] = texts.join(", ").into();
        }
        busiest
    });
    list_nodes(answers[0]["policy"].as_str().unwrap_or_default(), merged.collect())
}

/// Every node, as `answer` describes it.
pub(crate) fn list_nodes(policy: &str, nodes: Vec<Value>) -> Value {
    let text_of = |node: &Value, key: &str| node[key].as_str().unwrap_or_default().to_owned();
    let width = nodes.iter().map(|node| text_of(node, "name").len()).max().unwrap_or(0);
    let mut text = format!("policy {policy}\n");
    for node in &nodes {
        let [name, standing, figures] = ["name", "standing", "figures"].map(|key| text_of(node, key));
        text += &format!("  {name:width$}  {standing}  {figures}\n");
    }
    json!({ "policy": policy, "nodes": nodes, "text": text })
}

fn table(answers: &[Value], limit: usize) -> Value {
    let mut listed: Vec<Value> = Vec::new();
    for entry in answers.iter().filter_map(|answer| answer["listed"].as_array()).flatten() {
        match listed.iter_mut().find(|known| known["key"] == entry["key"]) {
            Some(known) => {
                let names = entry["nodes"].as_array().into_iter().flatten();
                let age_ms = known["age_ms"].as_u64().min(entry["age_ms"].as_u64());
                for name in names {
                    if let Some(list) = known["nodes"].as_array_mut()
                        && !list.contains(name)
                    {
                        list.push(name.clone());
                    }
                }
                known["age_ms"] = age_ms.into();
            }
            None => listed.push(entry.clone()),
        }
    }
    listed.sort_by_key(|entry| entry["age_ms"].as_u64());
    listed.truncate(limit);
    list_table(sum(answers, "entries"), sum(answers, "bytes"), listed)
}

/// Some of the contents, as `answer` describes them, and how many there are.
pub(super) fn list_table(entries: u64, bytes: u64, listed: Vec<Value>) -> Value {
    let mut text = format!("{entries} contents in {bytes} bytes\n");
    for entry in &listed {
        let names: Vec<&str> = entry["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let age = entry["age_ms"].as_u64().unwrap_or(0) as f64 / 1000.0;
        text += &format!("  {}  {age:.1} s ago  {}\n", entry["key"].as_str().unwrap_or_default(), names.join(", "));
    }
    json!({ "entries": entries, "bytes": bytes, "listed": listed, "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_has_at_ports_is_left_unless_it_has_been_resumed() {
        let of = |standing: &str, active: u64| json!({ "nodes": [{ "name": "n1", "standing": standing, "active": active }] });
        let left = |ports: &[Value]| left_at_ports(&json!({ "ports": ports }), "n1");
        assert_eq!(left(&[of("draining", 2), of("draining", 3)]), Some(5));
        assert_eq!(left(&[of("draining", 2), of("may be chosen", 3)]), None);
        assert_eq!((left(&[]), left_at_ports(&json!({ "ports": [of("draining", 2)] }), "n2")), (Some(0), Some(0)));
    }

    fn merged(command: &Command, answers: Vec<Value>) -> Value {
        merge(command, answers.into_iter().map(Ok).collect()).expect("they agree")
    }

    #[test]
    fn a_drained_node_is_resumed_when_no_worker_drains_it() {
        let of = |draining: &[&str]| {
            let mut list = list_flows([0, 0, 0], &[("n1".to_owned(), 0), ("n2".to_owned(), 0)]);
            list["draining"] = json!(draining);
            list
        };
        let all = merged(&Command::Flows, vec![of(&["n2"]), of(&["n1", "n2"]), of(&[])]);
        assert_eq!(["n1", "n2"].map(|node| is_resumed(&all, node)), [false, false]);
        let all = merged(&Command::Flows, vec![of(&["n1"]), of(&["n1"])]);
        assert_eq!(["n1", "n2"].map(|node| is_resumed(&all, node)), [false, true]);
        let at_node = list_flows([0, 0, 0], &[("n1".to_owned(), 0)]);
        assert!(
            !is_resumed(&merged(&Command::Flows, vec![at_node]), "n1"),
            "a node behind fronts says so in another way"
        );
    }

    #[test]
    fn numbers_add_up() {
        let of = |n1: u64, n2: u64| list_flows([n1 + n2 + 1, n1, n2], &[("n1".to_owned(), n1), ("n2".to_owned(), n2)]);
        let all = merged(&Command::Flows, vec![of(1, 2), of(10, 20)]);
        assert_eq!((&all["flows"], &all["nodes"]["n1"], &all["nodes"]["n2"]), (&json!(35), &json!(11), &json!(22)));
        assert_eq!(
            all["text"],
            "35 connections\n  n1  11\n  n2  22\nso far 11 began at a node, and 22 were moved to one\n"
        );
        let node = || "n1".to_owned();
        let drained = merged(&Command::Drain { node: node() }, vec![drain("n1", 3), drain("n1", 4)]);
        assert_eq!(drained["flows"], 7);
        let drained = merged(&Command::Drain { node: node() }, vec![drain_ports("n1"), drain_ports("n1")]);
        assert!(is_of_ports(&drained));
        let refused = merge(&Command::Resume { node: node() }, vec![Err("no such node".to_owned()), Ok(json!({}))]);
        assert_eq!(refused, Err("no such node".to_owned()));
        assert!(merge(&Command::Flows, Vec::new()).is_err());
    }

    #[test]
    fn a_node_is_shown_as_who_knows_most_of_it_sees_it() {
        let of = |standing: &str, active: u64| {
            let node =
                json!({ "name": "n1", "standing": standing, "active": active, "figures": format!("load {active}") });
            list_nodes("mix_lard", vec![node])
        };
        let all = merged(&Command::Nodes, vec![of("up", 3), of("up", 5)]);
        assert_eq!(all["text"], "policy mix_lard\n  n1  up  load 5\n");
        let all = merged(&Command::Nodes, vec![of("up", 3), of("link down", 0), of("up", 2)]);
        assert_eq!(all["nodes"][0]["standing"], "up for 2 workers, link down for 1 workers");
    }

    #[test]
    fn a_content_is_listed_once() {
        let entry = |key: &str, node: &str, age_ms: u64| json!({ "key": key, "nodes": [node], "age_ms": age_ms });
        let first = list_table(2, 100, vec![entry("a", "n1", 500), entry("b", "n1", 900)]);
        let second = list_table(1, 50, vec![entry("b", "n2", 100)]);
        let all = merged(&Command::Table { limit: 2 }, vec![first.clone(), second.clone()]);
        assert_eq!(all["text"], "3 contents in 150 bytes\n  b  0.1 s ago  n1, n2\n  a  0.5 s ago  n1\n");
        let one = merged(&Command::Table { limit: 1 }, vec![first, second]);
        assert_eq!(one["listed"].as_array().map(Vec::len), Some(1));
    }
}
