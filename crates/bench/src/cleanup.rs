//! What must not outlive this program, however it is ended: its servers, its folders, its control groups.
//!
//! Whoever makes a folder names it here and takes it back after removing it. SIGTERM, SIGINT and SIGHUP end the servers
//! and remove what is still named. SIGKILL can't be answered: servers end then too, folders stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use leat_host::lock::lock;

use crate::experiment::account;
use crate::server::running::descendants;
use crate::sys::process;

/// Longest time for servers to end by themselves.
const END_LIMIT: Duration = Duration::from_secs(2);

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static COMMANDS: Mutex<Vec<(PathBuf, Vec<String>)>> = Mutex::new(Vec::new());
static STARTING: Mutex<()> = Mutex::new(());

/// Has `folder` removed, with all that is in it, if a signal ends the program.
pub(crate) fn remove_at_end(folder: &Path) {
    lock(&FOLDERS).push(folder.to_owned());
}

/// `folder` has been removed.
pub(crate) fn removed(folder: &Path) {
    lock(&FOLDERS).retain(|other| other != folder);
}

/// Has a program run with these arguments if a signal ends this one: it takes away what isn't this program's child.
pub(crate) fn run_at_end(program: &Path, arguments: &[String]) {
    lock(&COMMANDS).push((program.to_owned(), arguments.to_owned()));
}

/// The program has been run with these arguments.
pub(crate) fn ran(arguments: &[String]) {
    lock(&COMMANDS).retain(|(_, other)| other != arguments);
}

/// Held while a process is started, so that none is started once a signal has come.
pub(crate) fn starting() -> MutexGuard<'static, ()> {
    lock(&STARTING)
}

/// Watches for signals from now on, on a thread of its own; called before any other thread is there.
pub(crate) fn watch() -> io::Result<()> {
    process::lead_session();
    account::open();
    process::block_end_signals()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(|| {
        let signal = process::await_end_signal();
        let _never_released = starting();
        end_servers();
        for (program, arguments) in lock(&COMMANDS).iter() {
            let _ = Command::new(program).args(arguments).status();
        }
        account::close();
        for folder in lock(&FOLDERS).iter() {
            // A control group is removed as an empty directory, though files show in it.
            let _ = fs::remove_dir(folder).or_else(|_| fs::remove_dir_all(folder));
        }
        eprintln!("leat-bench: ended by signal {signal}; nothing was written");
        std::process::exit(128 + signal);
    })?;
    Ok(())
}

fn end_servers() {
    let mut servers = descendants(std::process::id());
    servers.retain(|&pid| pid != std::process::id());
    let deadline = Instant::now() + END_LIMIT;
    // Errors mean that the process has ended already, which is what is wanted.
    servers.iter().for_each(|&pid| drop(process::signal(pid, libc::SIGTERM)));
    while servers.iter().any(|&pid| process::is_alive(pid)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    servers.retain(|&pid| process::is_alive(pid));
    servers.iter().for_each(|&pid| drop(process::signal(pid, libc::SIGKILL)));
}
