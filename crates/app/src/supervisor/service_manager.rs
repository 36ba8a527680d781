//! What the service manager that started leat is told, systemd for one: when it's ready, what it does, that it stops. As sd_notify(3) has it:
//! datagrams to the socket that a variable of the environment names. Without one, nobody asked.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::log;

/// Names the socket. An upgraded binary finds it as this one did.
pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";

/// See the module.
pub(super) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    pub(super) fn of_environment() -> ServiceManager {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        if name.is_empty() {
            return ServiceManager(None);
        }
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        let reached = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
        if let Err(error) = &reached {
            log::warning(format_args!("the service manager can't be told anything at {VARIABLE}={name}: {error}"));
        }
        ServiceManager(reached.ok())
    }

    /// What was to be done has been: leat serves. `status` is for people.
    pub(super) fn ready(&self, status: &str) {
        // A status is one line.
        self.say(&format!("READY=1\nSTATUS={}", status.lines().next().unwrap_or_default()));
    }

    /// A new configuration is about to be read. It's over when `ready` is said.
    pub(super) fn reloading(&self) {
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", leat_host::clock::now().ns / 1_000));
    }

    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=requests under way are finished");
    }

    fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // Whoever doesn't listen any more isn't waited for.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}
