//! Names of servers that requests are passed on to, and what they stand for. The system's resolver is asked when a configuration is read and every ten
//! seconds from then on, by a thread for each name, as an answer may take long. What a name stood for last counts while it can't be looked up.
//! (`docs/decisions/0035-names.md`)

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leat_host::lock::lock;

use crate::log;

/// Between two lookups of a name, and how long an address that couldn't be connected to comes after the others.
const INTERVAL: Duration = Duration::from_secs(10);
/// The same while it can't be looked up.
const RETRY: Duration = Duration::from_secs(1);

/// The names of a server.
#[derive(Debug, Default)]
pub struct Names {
    known: Mutex<BTreeMap<String, Arc<Name>>>,
}

#[derive(Debug, Default)]
struct Name {
    host: String,
    state: Mutex<State>,
    /// That of the state which somebody waits for: it has been looked up, or isn't wanted any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    addresses: Vec<Address>,
    /// Where the search for the next address begins.
    next: usize,
    /// A thread looks it up.
    is_watched: bool,
    is_wanted: bool,
    has_been_looked_up: bool,
    is_failing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    ip: IpAddr,
    failed_at: Option<Instant>,
}

impl Address {
    fn is_failing(&self, now: Instant) -> bool {
        self.failed_at.is_some_and(|failed_at| now.duration_since(failed_at) < INTERVAL)
    }
}

impl Names {
    /// Has names looked up from now on. Returns once each has been, or after `patience`.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn watch(&self, hosts: &BTreeSet<&str>, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        let names: Vec<_> = hosts.iter().map(|host| self.entry(host)).collect();
        for name in &names {
            let mut state = lock(&name.state);
            state.is_wanted = true;
            if !state.is_watched {
                let name = name.clone();
                std::thread::Builder::new().name("names".into()).spawn(move || name.look_up_again_and_again())?;
                state.is_watched = true;
            }
        }
        for name in names {
            let left = until.saturating_duration_since(Instant::now());
            let state = lock(&name.state);
            drop(name.changed.wait_timeout_while(state, left, |state| !state.has_been_looked_up));
        }
        Ok(())
    }

    /// Has no others looked up any more.
    pub fn keep_only(&self, hosts: &BTreeSet<&str>) {
        for (host, name) in &*lock(&self.known) {
            if !hosts.contains(host.as_str()) {
                lock(&name.state).is_wanted = false;
                name.changed.notify_all();
            }
        }
    }

    /// The address of a name for the next connection: all in turn, but those that couldn't be connected to after the others. `None`: it isn't known what the
    /// name stands for.
    pub fn next(&self, host: &str) -> Option<IpAddr> {
        let name = lock(&self.known).get(host).cloned()?;
        lock(&name.state).next(Instant::now())
    }

    /// No connection could be made to an address of a name. Whether there is another one to be tried.
    pub fn give_up(&self, host: &str, ip: IpAddr) -> bool {
        let name = lock(&self.known).get(host).cloned();
        name.is_some_and(|name| lock(&name.state).give_up(ip, Instant::now()))
    }

    fn entry(&self, host: &str) -> Arc<Name> {
        let new = || Arc::new(Name { host: host.to_owned(), ..Name::default() });
        lock(&self.known).entry(host.to_owned()).or_insert_with(new).clone()
    }
}

impl Name {
    fn look_up_again_and_again(&self) {
        loop {
            let found = (self.host.as_str(), 0).to_socket_addrs();
            let found = found.map(|found| found.map(|address| address.ip().to_canonical()).collect());
            let mut state = lock(&self.state);
            state.found(&self.host, found);
            self.changed.notify_all();
            let pause = if state.is_failing { RETRY } else { INTERVAL };
            let waited = self.changed.wait_timeout_while(state, pause, |state| state.is_wanted);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !state.is_wanted {
                state.is_watched = false;
                self.changed.notify_all();
                return;
            }
        }
    }
}

impl State {
    /// Takes in what a lookup has come to.
    fn found(&mut self, host: &str, found: io::Result<Vec<IpAddr>>) {
        self.has_been_looked_up = true;
        let was_failing = std::mem::replace(&mut self.is_failing, found.is_err());
        match found {
            Ok(found) => {
                let mut addresses: Vec<Address> = Vec::new();
                for ip in found {
                    if addresses.iter().all(|known| known.ip != ip) {
                        let before = self.addresses.iter().find(|known| known.ip == ip);
                        addresses.push(before.copied().unwrap_or(Address { ip, failed_at: None }));
                    }
                }
                self.addresses = addresses;
                if was_failing {
                    log::warning(format_args!("the name {host} can be looked up again"));
                }
            }
            Err(error) if !was_failing => {
                let meanwhile = if self.addresses.is_empty() { "" } else { ": what it stood for last counts" };
                log::warning(format_args!("the name {host} can't be looked up ({error}){meanwhile}"));
            }
            Err(_) => {}
        }
    }

    fn next(&mut self, now: Instant) -> Option<IpAddr> {
        let count = self.addresses.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        let place = in_turn.min_by_key(|&place| self.addresses[place].is_failing(now))?;
        self.next = place + 1;
        Some(self.addresses[place].ip)
    }

    fn give_up(&mut self, ip: IpAddr, now: Instant) -> bool {
        if let Some(address) = self.addresses.iter_mut().find(|address| address.ip == ip) {
            address.failed_at = Some(now);
        }
        self.addresses.iter().any(|address| !address.is_failing(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ips: &[&str]) -> State {
        let mut state = State::default();
        state.found("it", Ok(ips.iter().map(|ip| ip.parse().expect("an address")).collect()));
        state
    }

    fn next(state: &mut State, now: Instant) -> String {
        state.next(now).map(|ip| ip.to_string()).unwrap_or_default()
    }

    #[test]
    fn addresses_take_turns_and_those_that_fail_come_last_for_a_while() {
        let now = Instant::now();
        let mut state = state(&["::1", "127.0.0.1", "::1"]);
        assert_eq!([(); 3].map(|()| next(&mut state, now)), ["::1", "127.0.0.1", "::1"]);
        assert!(state.give_up("::1".parse().expect("an address"), now), "there's another");
        assert_eq!([(); 2].map(|()| next(&mut state, now)), ["127.0.0.1", "127.0.0.1"]);
        assert!(!state.give_up("127.0.0.1".parse().expect("an address"), now), "there's none");
        assert_eq!([(); 2].map(|()| next(&mut state, now)), ["::1", "127.0.0.1"], "better than nobody");
        assert_eq!([(); 2].map(|()| next(&mut state, now + INTERVAL)), ["::1", "127.0.0.1"]);
    }

    #[test]
    fn what_a_name_stood_for_last_counts_while_nobody_knows() {
        let mut state = state(&["192.0.2.1"]);
        state.found("it", Err(io::ErrorKind::Other.into()));
        assert!(state.is_failing);
        assert_eq!(next(&mut state, Instant::now()), "192.0.2.1");
        state.found("it", Ok(vec!["192.0.2.2".parse().expect("an address")]));
        assert!(!state.is_failing);
        assert_eq!(next(&mut state, Instant::now()), "192.0.2.2");
    }

    #[test]
    fn names_are_looked_up_as_long_as_they_are_wanted() {
        let names = Names::default();
        assert_eq!(names.next("localhost"), None);
        names.watch(&["localhost"].into(), Duration::from_secs(60)).expect("a thread");
        assert!(names.next("localhost").is_some_and(|ip| ip.is_loopback()));
        names.keep_only(&BTreeSet::new());
        let name = names.entry("localhost");
        let state = lock(&name.state);
        let waited = name.changed.wait_timeout_while(state, Duration::from_secs(60), |state| state.is_watched);
        assert!(!waited.expect("nobody panics").1.timed_out(), "its thread ends");
        assert!(names.next("localhost").is_some(), "who has asked for it before may go on");
    }
}
