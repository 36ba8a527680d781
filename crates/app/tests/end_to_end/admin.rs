//! The admin address: metrics that Prometheus can read and a health page.

use std::collections::BTreeMap;

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Server, eventually};

fn with_admin(reactor: Reactor, directory: &Directory) -> Server {
    directory.write("site/a.txt", "alpha\n");
    let text = "[admin]\nlisten = \"127.0.0.2:0\"\n[[site]]\nname = \"measured\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    Server::configured(reactor, directory, text)
}

/// Samples by name and labels. Fails the test where a line isn't in the text format of Prometheus.
fn samples(server: &Server) -> BTreeMap<String, f64> {
    let reply = Client::connect(server.admin()).get("/metrics");
    assert_eq!(reply.status, 200);
    assert!(
        reply.must("content-type").starts_with("text/plain; version=0.0.4")
            || reply.must("content-type").starts_with("application/openmetrics-text"),
        "{:?}",
        reply.fields
    );
    let text = reply.text();
    let mut samples = BTreeMap::new();
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# HELP ") && *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(types.insert(name, kind).is_none(), "`{name}` has two types");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a sample, not {line:?}"));
        let family = name.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| family.strip_suffix(suffix))
            .filter(|base| types.contains_key(base))
            .unwrap_or(family);
        assert!(types.contains_key(base), "`{family}` has no type before its first sample");
        assert!(text.contains(&format!("# HELP {base} ")), "`{base}` has no help");
        assert!(family.starts_with("leat_") || family.starts_with("process_"), "{family}");
        let value = value.parse().unwrap_or_else(|_| panic!("a number, not {line:?}"));
        assert!(samples.insert(name.to_owned(), value).is_none(), "`{name}` comes twice");
    }
    samples
}

/// The sum of all samples whose name has all these words.
fn sum(samples: &BTreeMap<String, f64>, words: &[&str]) -> f64 {
    samples.iter().filter(|(name, _)| words.iter().all(|word| name.contains(word))).map(|(_, value)| value).sum()
}

fn health_is_well(reactor: Reactor) {
    let directory = Directory::new();
    let server = with_admin(reactor, &directory);
    let reply = Client::connect(server.admin()).get("/health");
    assert_eq!(reply.status, 200);
    assert!(!reply.body.is_empty());
}

fn metrics_count_requests(reactor: Reactor) {
    let directory = Directory::new();
    let server = with_admin(reactor, &directory);
    let before = samples(&server);
    assert!(!before.is_empty());
    for _ in 0..30 {
        assert_eq!(server.get("/a.txt").status, 200);
        assert_eq!(server.get("/none").status, 404);
    }
    eventually("60 requests are counted", || {
        let now = samples(&server);
        let grown =
            sum(&now, &["leat_requests_total", "measured"]) - sum(&before, &["leat_requests_total", "measured"]);
        (grown == 60.0).then_some(())
    });
    let now = samples(&server);
    for status in ["2xx", "4xx"] {
        let name = format!("leat_requests_total{{site=\"measured\",status=\"{status}\"}}");
        assert_eq!(now.get(&name), Some(&30.0), "{name}");
    }
    assert!(sum(&now, &["leat_request_seconds_count"]) >= 60.0 && sum(&now, &["leat_accepted_total"]) >= 60.0);
}

fn counters_never_fall_over_a_reload(reactor: Reactor) {
    let directory = Directory::new();
    let server = with_admin(reactor, &directory);
    for _ in 0..20 {
        server.get("/a.txt");
    }
    let before = eventually("20 requests are counted", || {
        Some(sum(&samples(&server), &["leat_requests_total"])).filter(|count| *count >= 20.0)
    });
    let text = "[admin]\nlisten = \"127.0.0.2:0\"\n[[site]]\nname = \"measured\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\nweight = 7\n";
    let line = server.reload(reactor, &directory, &format!("workers = 1\n{text}"));
    assert!(line.contains("the new configuration is in force"), "{line}");
    assert!(sum(&samples(&server), &["leat_requests_total"]) >= before);
}

fn the_admin_address_serves_no_files(reactor: Reactor) {
    let directory = Directory::new();
    let server = with_admin(reactor, &directory);
    assert_eq!(Client::connect(server.admin()).get("/a.txt").status, 404);
    assert_eq!(server.get("/metrics").status, 404);
    let refused = Client::connect(server.admin())
        .ask("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .status;
    assert!(matches!(refused, 404 | 405), "{refused}");
}

fn without_an_address_there_is_no_admin(reactor: Reactor) {
    let directory = Directory::with(&[("a.txt", b"alpha\n")]);
    let server = Server::of(reactor, directory.path());
    assert_eq!(server.get("/a.txt").status, 200);
    assert!(server.stdout().iter().all(|line| !line.contains("admin")), "{:?}", server.stdout());
}

fn admin_and_a_site_may_both_take_any_port(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let server = Server::configured(reactor, &directory, text);
    assert_eq!(Client::connect(server.admin()).get("/health").status, 200);
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

on_both_reactors!(
    admin_and_a_site_may_both_take_any_port,
    health_is_well,
    metrics_count_requests,
    counters_never_fall_over_a_reload,
    the_admin_address_serves_no_files,
    without_an_address_there_is_no_admin,
);
