//! The listening sockets: one for each address and worker, all sharing the address's port. They stay open here while engines come and go, so
//! no connection that waits in a queue is lost.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use leat_host::channel::DESCRIPTORS_MAX;
use leat_host::socket;

use super::engine_process::EngineProcess;
use crate::config::Config;
use crate::listener::ListenerName;

/// The sockets of one address.
pub(super) struct Group {
    pub(super) name: ListenerName,
    /// What the kernel gave.
    pub(super) bound: SocketAddr,
    /// One for each worker, in the order in which they were bound.
    pub(super) sockets: Vec<OwnedFd>,
    /// How many of them the configuration in force has.
    in_force: usize,
    /// How many of them the engine has.
    pub(super) sent: usize,
    /// How many the engine before it has.
    sent_before: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct Listeners {
    groups: Vec<Group>,
}

/// The addresses of a configuration, each with how many sockets it needs.
fn wanted(config: &Config) -> Vec<(ListenerName, usize)> {
    let mut wanted: Vec<_> =
        config.listeners.iter().map(|listener| (ListenerName::site(listener.address), config.workers)).collect();
    // The admin pages come from one worker.
    wanted.extend(config.admin.listen.map(|address| (ListenerName::admin(address), 1)));
    wanted
}

impl Listeners {
    /// Binds what the configuration needs and isn't there yet.
    pub(super) fn bind(&mut self, config: &Config) -> Result<(), String> {
        for (name, count) in wanted(config) {
            let place = match self.groups.iter().position(|group| group.name == name) {
                Some(place) => place,
                None => {
                    let socket = first_socket(name, self.overlaps(name.address))?;
                    let bound = socket::local_address(&socket).map_err(|error| cannot(name.address, &error))?;
                    self.groups.push(Group {
                        name,
                        bound,
                        sockets: vec![socket],
                        in_force: 0,
                        sent: 0,
                        sent_before: 0,
                    });
                    self.groups.len() - 1
                }
            };
            let group = &mut self.groups[place];
            while group.sockets.len() < count {
                group.sockets.push(socket::listen(group.bound).map_err(|error| cannot(name.address, &error))?);
            }
        }
        Ok(())
    }

    /// Whether one of our own addresses is at the same port, and includes this one or is included in it: one of them is `0.0.0.0` or `[::]`.
    fn overlaps(&self, address: SocketAddr) -> bool {
        self.groups.iter().map(|group| group.bound).any(|ours| {
            let is_port = ours.port() == address.port() && ours.is_ipv4() == address.is_ipv4();
            is_port && ours != address && (ours.ip().is_unspecified() || address.ip().is_unspecified())
        })
    }

    /// The configuration is in force: addresses that it doesn't have are closed.
    pub(super) fn applied(&mut self, config: &Config) {
        let wanted = wanted(config);
        self.groups.retain(|group| wanted.iter().any(|&(name, _)| name == group.name));
        for group in &mut self.groups {
            group.in_force = group.sockets.len();
        }
    }

    /// What was last bound isn't used. Nobody would accept there, but the kernel would share connections out to it.
    pub(super) fn refused(&mut self) {
        for group in &mut self.groups {
            group.sockets.truncate(group.in_force);
            group.sent = group.sent.min(group.sockets.len());
        }
        self.groups.retain(|group| !group.sockets.is_empty());
    }

    /// The engine has closed its copies of all but the first `count` sockets of an address.
    pub(super) fn release(&mut self, name: ListenerName, count: usize) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.name == name) {
            group.sockets.truncate(count.max(1));
            group.in_force = group.in_force.min(group.sockets.len());
            group.sent = group.sent.min(group.sockets.len());
        }
    }

    pub(super) fn close_all(&mut self) {
        self.groups.clear();
    }

    /// Where sites are served.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (ListenerName, SocketAddr)> {
        self.groups.iter().filter(|group| !group.name.is_admin).map(|group| (group.name, group.bound))
    }

    pub(super) fn admin_address(&self) -> Option<SocketAddr> {
        self.groups.iter().find(|group| group.name.is_admin).map(|group| group.bound)
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Takes over a group from a predecessor.
    pub(super) fn adopt(&mut self, name: ListenerName, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let first = sockets.first().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let bound = socket::local_address(first)?;
        // The predecessor's engine has them all.
        let sent = sockets.len();
        self.groups.push(Group { name, bound, sockets, in_force: sent, sent, sent_before: 0 });
        Ok(())
    }

    /// The engine before the last one goes on: what it doesn't have is closed.
    pub(super) fn fall_back(&mut self) {
        for group in &mut self.groups {
            group.sockets.truncate(group.sent_before);
            group.in_force = group.sockets.len();
            group.sent = group.sockets.len();
        }
        self.groups.retain(|group| !group.sockets.is_empty());
    }

    /// A new engine is about to start, which has nothing yet.
    pub(super) fn begin_again(&mut self) {
        for group in &mut self.groups {
            group.sent_before = std::mem::take(&mut group.sent);
        }
    }

    /// Gives the engine what it doesn't have.
    pub(super) fn send_new(&mut self, engine: &EngineProcess) -> io::Result<()> {
        for group in &mut self.groups {
            while group.sent < group.sockets.len() {
                let end = group.sockets.len().min(group.sent + DESCRIPTORS_MAX);
                let part: Vec<BorrowedFd<'_>> = group.sockets[group.sent..end].iter().map(AsFd::as_fd).collect();
                engine.listen(group.name, &part)?;
                group.sent = end;
            }
        }
        Ok(())
    }
}

/// A process that was killed has its sockets for some moments more, until the kernel has cleared up what its reactors had under way: whoever starts
/// leat again at once needn't try twice.
const CLEARED_UP: Duration = Duration::from_secs(1);

/// With `SO_REUSEPORT` alone, a second server of the same user would silently take half of our connections. A probe without it is refused when
/// anybody listens there: we too, if an address of ours `overlaps`.
fn first_socket(ListenerName { address, is_admin }: ListenerName, overlaps: bool) -> Result<OwnedFd, String> {
    let start = Instant::now();
    while !overlaps
        && address.port() != 0
        && let Err(error) = socket::listen_alone(address)
    {
        if error.kind() != io::ErrorKind::AddrInUse || start.elapsed() > CLEARED_UP {
            return Err(cannot(address, &error));
        }
        thread::sleep(CLEARED_UP / 50);
    }
    socket::listen(address).map_err(|error| {
        let error = cannot(address, &error);
        if is_admin { format!("admin: {error}") } else { error }
    })
}

fn cannot(address: SocketAddr, error: &io::Error) -> String {
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "another program listens there; stop it, or choose another port (`ss -ltnp sport = :{}` shows it)",
                address.port()
            )
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another port, or give leat the capability"
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine doesn't have that address; `ip address` shows those it has".to_owned()
        }
        _ => error.to_string(),
    };
    format!("can't listen on {address}: {cure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_of_a_port_are_two_addresses() {
        let free = socket::listen(([0, 0, 0, 0], 0).into()).expect("a free port");
        let port = socket::local_address(&free).expect("it has one").port();
        let name = |text: &str| ListenerName {
            address: SocketAddr::new(text.parse().expect("an address"), port),
            is_admin: false,
        };
        first_socket(name("::"), false).expect("nobody listens there on IPv6");
        let taken = first_socket(name("0.0.0.0"), false).expect_err("somebody does on IPv4");
        assert!(taken.contains("another program listens there"), "{taken}");
    }
}
