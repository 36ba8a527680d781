//! The rules of the house that a machine can check.

use std::path::{Path, PathBuf};

/// A file longer than this wants splitting along a seam.
const LINES_MAX: usize = 800;
/// A newcomer reads ARCHITECTURE.md in five minutes.
const ARCHITECTURE_LINES_MAX: usize = 300;
/// Where programs for the kernel are.
const PROGRAMS: &str = "crates/host/src/steering/programs";
/// Before Linux 6.4 what they return is an `int`, with nothing in the upper half of the register, though the helper is said to return a `long`.
const MAP_FUNCTIONS: [&str; 4] =
    ["bpf_map_update_elem(", "bpf_map_delete_elem(", "bpf_map_push_elem(", "bpf_map_pop_elem("];
/// Names that say nothing.
const EMPTY_NAMES: [&str; 4] = ["util", "utils", "common", "helpers"];

/// Checks every rule.
///
/// # Errors
/// One line for each place that breaks one.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let mut sources = Vec::new();
    for folder in ["crates", "xtask", "fuzz/targets"] {
        collect(&root.join(folder), "rs", &mut sources);
    }
    let mut code = String::new();
    for path in &sources {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        check_source(&name, &text, &mut complaints);
        code.push_str(&text);
    }
    check_architecture(root, &code, &mut complaints);
    let mut programs = Vec::new();
    ["c", "h"].iter().for_each(|extension| collect(&root.join(PROGRAMS), extension, &mut programs));
    for path in &programs {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        check_program(&path.strip_prefix(root).unwrap_or(path).display().to_string(), &text, &mut complaints);
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

fn collect(folder: &Path, wanted: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            collect(&path, wanted, found);
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            found.push(path);
        }
    }
    found.sort();
}

fn check_source(name: &str, text: &str, complaints: &mut Vec<String>) {
    let mut complain = |what: &str| complaints.push(format!("{name}: {what}"));
    if !text.trim_start().starts_with("//!") && !text.starts_with("#![") {
        complain("begins without `//!`: say what the file decides and what it leaves to others");
    }
    if text.lines().count() > LINES_MAX {
        complain(&format!("has more than {LINES_MAX} lines: split it along a seam"));
    }
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        complain("has a name that says nothing");
    }
    // The benchmarks aren't shipped; their system calls are in one folder.
    let may_be_unsafe = name.starts_with("crates/host/") || name.starts_with("crates/bench/src/sys/");
    let keyword = concat!("unsafe", " {");
    if !may_be_unsafe && text.contains(keyword) {
        complain("has unsafe code: that belongs in leat-host");
    }
    for marker in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME"), concat!("dbg", "!(")] {
        if text.contains(marker) {
            complain(&format!("has `{marker}`"));
        }
    }
}

/// What a map's function returns is negative only in an `int`.
fn check_program(name: &str, text: &str, complaints: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let calls = MAP_FUNCTIONS.iter().any(|function| line.contains(function));
        if calls && (line.contains("< 0") || line.contains("long ")) {
            complaints.push(format!(
                "{name}:{}: what a map's function returns is an int before Linux 6.4: keep it in one, or compare with 0 only",
                number + 1
            ));
        }
    }
}

/// ARCHITECTURE.md names functions and types, never lines: here they are looked up.
fn check_architecture(root: &Path, code: &str, complaints: &mut Vec<String>) {
    let Ok(text) = std::fs::read_to_string(root.join("ARCHITECTURE.md")) else {
        complaints.push("ARCHITECTURE.md is missing".to_owned());
        return;
    };
    if text.lines().count() > ARCHITECTURE_LINES_MAX {
        complaints.push(format!("ARCHITECTURE.md has more than {ARCHITECTURE_LINES_MAX} lines"));
    }
    for (number, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            let is_path = quoted.contains('/') && !quoted.contains(' ') && !quoted.starts_with('/');
            if is_path && !root.join(quoted).exists() {
                complaints.push(format!("ARCHITECTURE.md:{}: `{quoted}` doesn't exist", number + 1));
            }
            let is_name = quoted.contains("::") && quoted.chars().all(|c| c.is_alphanumeric() || c == ':' || c == '_');
            let last = quoted.rsplit("::").next().unwrap_or_default();
            if is_name && !defines(code, last) {
                complaints.push(format!("ARCHITECTURE.md:{}: nothing is called `{quoted}`", number + 1));
            }
        }
    }
}

fn defines(code: &str, name: &str) -> bool {
    ["fn", "struct", "enum", "trait", "mod", "type"].iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        code.match_indices(&definition).any(|(at, _)| {
            let next = code[at + definition.len()..].chars().next();
            next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_file_is_complained_about() {
        let mut complaints = Vec::new();
        let text = format!("fn main() {{ {}{{}} }}\n", concat!("unsafe", " "));
        check_source("crates/logic/src/util.rs", &text, &mut complaints);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
    }

    #[test]
    fn what_maps_return_is_not_taken_for_a_long() {
        let mut complaints = Vec::new();
        let bad = "if (bpf_map_update_elem(&m, &k, &v, 0) < 0)\nlong result = bpf_map_delete_elem(&m, &k);\n";
        let good = "if (bpf_map_update_elem(&m, &k, &v, 0))\nint result = bpf_map_delete_elem(&m, &k);\nlong other;\n";
        check_program("a.h", &format!("{bad}{good}"), &mut complaints);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }

    #[test]
    fn names_are_found_whole() {
        assert!(defines("pub fn run_once(&mut self)", "run_once"));
        assert!(!defines("pub fn run_once(&mut self)", "run"));
        assert!(defines("pub struct Tree<E> {", "Tree"));
    }
}
