//! Programs that the bench runs over loopback, each on a processor of its own, ended when dropped.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cleanup;
use crate::server::running::descendants;
use crate::sys::process;

const START_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Running {
    child: Child,
}

impl Running {
    /// Starts a program that is to listen at `address`, and returns once it does. What it writes is in the folder.
    ///
    /// # Errors
    /// It doesn't start, or doesn't listen in time; the message has what it wrote.
    pub(super) fn listening(
        command: &mut Command,
        (folder, name): (&Path, &str),
        address: SocketAddr,
        core: usize,
    ) -> io::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut running = Self { child: spawn(command, core)? };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if running.child.try_wait()?.is_some() || began.elapsed() > START_LIMIT {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(io::Error::other(format!("{name} doesn't listen at {address}: {}", said.trim())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// Processor time of it and all its children so far.
    pub(super) fn cpu_time(&self) -> Duration {
        descendants(self.child.id()).into_iter().filter_map(|pid| process::cpu_time(pid).ok()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = process::signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Starts a program on a processor.
pub(super) fn spawn(command: &mut Command, core: usize) -> io::Result<Child> {
    process::start_on_cores(command, &[core]);
    let _not_at_the_end = cleanup::starting();
    command.spawn()
}

/// A port that all of these addresses have free when asked; that somebody else takes it in between shows as a program that doesn't listen.
pub(super) fn free_port(hosts: &[&str]) -> io::Result<u16> {
    let first = TcpListener::bind((hosts[0], 0))?;
    let port = first.local_addr()?.port();
    hosts[1..].iter().map(|host| TcpListener::bind((*host, port))).collect::<io::Result<Vec<_>>>()?;
    Ok(port)
}
