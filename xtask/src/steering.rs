//! The eBPF programs: built from C into the objects that are committed beside it, and the check that those are what the source says.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where source, objects and the list of their hashes are.
const FOLDER: &str = "crates/host/src/steering/programs";
const HASHES: &str = "objects.sha256";
const PROGRAMS: [&str; 9] = [
    "congestion",
    "dispatcher",
    "dispatcher_born",
    "dispatcher_replayed",
    "node",
    "node_born",
    "node_replayed",
    "spread",
    "spread_served",
];

/// Builds the objects, and writes what they were built from and with.
///
/// # Errors
/// No clang, or what it complains about.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    for program in PROGRAMS {
        compile(&folder, program, &folder.join(program).with_extension("o"))?;
    }
    let objects = PROGRAMS.map(|program| format!("{program}.o"));
    let files = sources(&folder)?.into_iter().chain(objects);
    let hashes = output(Command::new("sha256sum").args(files).current_dir(&folder))?;
    let path = folder.join(HASHES);
    std::fs::write(&path, format!("# {}\n{hashes}", compiler()?))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Compares hashes, which shows that nobody changed a source without building. With the compiler that built the objects, it builds them again and
/// compares every byte; other versions choose other registers, which would say nothing.
///
/// # Errors
/// What differs, and the cure.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    output(Command::new("sha256sum").args(["--check", "--quiet", "--strict", HASHES]).current_dir(&folder))
        .map_err(|error| format!("{error}\n`cargo xtask steering` builds the objects anew"))?;
    let path = folder.join(HASHES);
    let hashes = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(new) = sources(&folder)?.iter().find(|name| !hashes.contains(&format!("  {name}\n"))) {
        return Err(format!("{}: {new} isn't in it: `cargo xtask steering` builds the objects anew", path.display()));
    }
    let built_by = hashes.lines().next().unwrap_or_default().trim_start_matches("# ");
    match compiler() {
        Ok(compiler) if compiler == built_by => compare(&folder),
        Ok(compiler) => {
            println!("steering: built by {built_by}, here is {compiler}: only hashes were compared");
            Ok(())
        }
        Err(error) => {
            println!("steering: {error}: only hashes were compared");
            Ok(())
        }
    }
}

fn compare(folder: &Path) -> Result<(), String> {
    for program in PROGRAMS {
        let committed = folder.join(program).with_extension("o");
        let fresh = std::env::temp_dir().join(format!("leat-{}-{program}.o", std::process::id()));
        compile(folder, program, &fresh)?;
        let same = read(&committed)? == read(&fresh)?;
        let _ = std::fs::remove_file(&fresh);
        if !same {
            return Err(format!("{}: isn't what its source makes: `cargo xtask steering`", committed.display()));
        }
    }
    Ok(())
}

/// What objects are built from, in order.
fn sources(folder: &Path) -> Result<Vec<String>, String> {
    let names = std::fs::read_dir(folder).and_then(|files| files.map(|file| Ok(file?.file_name())).collect());
    let names: Vec<std::ffi::OsString> = names.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".c") || name.ends_with(".h"));
    names.sort();
    Ok(names)
}

fn compile(folder: &Path, program: &str, object: &PathBuf) -> Result<(), String> {
    // The kernel's headers are in a folder named after the processor, which doesn't matter to what is used of them.
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let source = format!("{program}.c");
    // It compares and exchanges, which all kernels have that have what it's for.
    let processor = matches!(program, "dispatcher_born" | "dispatcher_replayed").then_some("-mcpu=v3");
    output(
        Command::new("clang")
            .args(processor)
            .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
            .args([&headers, "-fdebug-compilation-dir=.", "-c", &source, "-o"])
            .arg(object)
            .current_dir(folder),
    )?;
    // What remains is code, maps and their types. Where the kernel calls functions back it wants to know theirs as well; and where fields of its own are read, these are
    // found by what stands beside that.
    let (calls_back, reads_kernel) =
        (program.ends_with("_born") || program.ends_with("_replayed"), program.starts_with("spread"));
    let rest = (!calls_back && !reads_kernel).then_some("--remove-section=.BTF.ext");
    output(Command::new("llvm-strip").arg("-g").args(rest).arg(object)).map(drop)
}

fn compiler() -> Result<String, String> {
    let text = output(Command::new("clang").arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{}: {}", command.get_program().display(), String::from_utf8_lossy(&said).trim()))
}
