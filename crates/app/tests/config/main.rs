//! `cases/*.toml` beside what leat says about each, `cases/*.expected`; and whether the reference and the example are up to date.
//!
//! `LEAT_GOLDEN=write cargo test -p leat --test config` writes what leat says now: read the difference before it is committed.

use std::fs;
use std::path::{Path, PathBuf};

use leat::config;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_writing() -> bool {
    std::env::var_os("LEAT_GOLDEN").is_some_and(|mode| mode == "write")
}

/// What `leat check` would say, with paths that don't depend on where the repository is.
fn told(file: &Path) -> String {
    let text = match config::check(file) {
        Ok((config, warnings)) => format!("{warnings}{}\n", config.summary()),
        Err(mistakes) => mistakes.to_string(),
    };
    let cases = here().join("cases");
    text.replace(&format!("{}/", cases.display()), "")
}

#[test]
fn every_case_is_told_as_expected() {
    let mut cases: Vec<PathBuf> = fs::read_dir(here().join("cases"))
        .expect("the cases are here")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    cases.sort();
    assert!(cases.len() >= 20, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let told = told(case);
        let expected = case.with_extension("expected");
        if is_writing() {
            fs::write(&expected, &told).expect("the expectation can be written");
        }
        let expectation = fs::read_to_string(&expected).unwrap_or_default();
        if told != expectation {
            wrong.push(format!("=== {}\n--- expected\n{expectation}\n--- told\n{told}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_case_of_mistakes_has_one_for_each_line_that_promises_one() {
    // A line of a case that ends in `# wrong` or `# odd` must be among the places told, and no other line may be.
    for entry in fs::read_dir(here().join("cases")).expect("the cases are here") {
        let path = entry.expect("the directory can be read").path();
        let Some(text) = fs::read(&path).ok().filter(|_| path.extension().is_some_and(|e| e == "toml")) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        if !text.contains("# wrong") && !text.contains("# odd") {
            continue;
        }
        let promised: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.ends_with("# wrong") || line.ends_with("# odd"))
            .map(|(index, _)| index + 1)
            .collect();
        let mut places: Vec<usize> = told(&path)
            .lines()
            .filter_map(|line| line.strip_prefix(path.file_name()?.to_str()?)?.split(':').nth(1)?.parse().ok())
            .collect();
        places.dedup();
        assert_eq!(places, promised, "{}", path.display());
    }
}

#[test]
fn a_missing_file_is_told_with_its_name() {
    let file = here().join("cases/none.toml");
    let told = config::load(&file).expect_err("there is no such file").to_string();
    assert!(told.contains("none.toml: error: can't be read"), "{told}");
    let told = config::load(&here()).expect_err("it is a directory").to_string();
    assert!(told.contains("isn't a regular file"), "{told}");
}

#[test]
fn the_example_is_right() {
    let (config, warnings) = config::check(&repository().join("examples/leat.toml")).unwrap_or_else(|m| panic!("{m}"));
    assert!(warnings.is_empty(), "{warnings}");
    assert!(config.sites.len() > 1);
}

#[test]
fn the_example_of_a_cluster_is_right_for_its_dispatcher_and_its_nodes() {
    for example in ["cluster.toml", "spread.toml", "foreign.toml", "foreign-spread.toml"] {
        let file = repository().join("examples").join(example);
        let part = |role, name: Option<&str>| {
            let part = config::Part { role: Some(role), name: name.map(str::to_owned), server: Vec::new() };
            config::load_part(&file, &part).unwrap_or_else(|mistakes| panic!("{mistakes}"))
        };
        let dispatcher = part(config::Role::Dispatcher, None);
        for node in &dispatcher.cluster.nodes {
            assert_eq!(part(config::Role::Node, Some(&node.name)).cluster.name, node.name);
        }
    }
}

#[test]
fn the_example_of_ports_is_right() {
    let (config, warnings) = config::check(&repository().join("examples/ports.toml")).unwrap_or_else(|m| panic!("{m}"));
    assert!(warnings.is_empty() && config.cluster.ports.len() == 3, "{warnings}");
}

#[test]
fn the_reference_is_up_to_date() {
    let file = repository().join("docs/config.md");
    let reference = config::reference();
    if is_writing() {
        fs::write(&file, &reference).expect("the reference can be written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == reference,
        "docs/config.md is stale: run `cargo run -p leat -- reference config > docs/config.md`"
    );
}
