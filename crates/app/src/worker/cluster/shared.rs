//! What all workers of a server share of their part in a cluster, because it's the kernel's: the programs that steer packets, and the lease under
//! which the whole machine may speak for a VIP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use leat_host::lock::lock;
use leat_host::steering::{self, Birth, FlowKey, Reach, Service, boot_clock_ns};
use leat_host::{connections, interfaces};
use leat_logic::handoff::{Process, ServerId};
use leat_logic::spread::LIVES_MAX;
use leat_logic::time::Instant;

use super::checks::{Checks, Told};
use super::succession::Life;
use super::{born, leave};
use crate::config::{self, Config};
use crate::pins;

/// Entries for flows, 150 bytes each while they exist.
pub(super) const FLOWS_MAX: u32 = 1 << 20;

/// How long the kernel may take to clean up after a process, and how often it's looked. Longer: somebody else does steer.
const CLEANED_UP_WITHIN: Duration = Duration::from_secs(2);
const CLEANED_UP_LOOK: Duration = Duration::from_millis(5);

/// Time between two looks for replayed handshakes whose connections have ended, and the same while there are few.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
const FEW_PAUSE: Duration = Duration::from_secs(4);
const FEW: u64 = 1 << 12;

/// Processes of a node that there may be at a time, where homes give each what is new, and take back what it has.
const PROCESSES_MAX: u16 = 64;

/// Of what was said, so much is remembered.
const TOLD_MAX: usize = 4096;
/// Between two words of the same node's leases.
const LAPSE_PAUSE: Duration = Duration::from_secs(1);

/// See the module. Whichever worker needs something first makes it.
#[derive(Default)]
pub struct Shared {
    workers: Mutex<Arc<[u16]>>,
    homes: Mutex<Arc<[u16]>>,
    dispatcher: Mutex<Option<Result<Arc<steering::Dispatcher>, String>>>,
    /// Programs of a dispatcher's that are in the kernel, and not at work yet.
    loaded: Mutex<Option<Result<steering::Dispatcher, String>>>,
    node: OnceLock<Result<Arc<NodeGuard>, String>>,
    life: OnceLock<Result<Life, String>>,
    /// What is so, and was said by one of the workers: the others find out for themselves, and needn't say it again.
    told: Mutex<BTreeSet<String>>,
    /// When it was said of a node, by its number, that its lease has run out.
    lapses_told: Mutex<BTreeMap<u32, Instant>>,
    /// There is no way to some node.
    is_way_lost: AtomicBool,
    /// Until when clients may be found that hear nothing of their nodes, as one has been.
    doubt_until_ns: AtomicU64,
    checks: Mutex<Option<Arc<Checks>>>,
    of_checks: Arc<Told>,
}

impl Shared {
    /// Says which workers there are that don't retire, by number, in the order of their listeners. The first of them is never retired.
    pub fn set_workers(&self, workers: Arc<[u16]>) {
        if let Some(Ok(node)) = self.node.get() {
            node.set_workers(&workers);
        }
        *lock(&self.workers) = workers;
    }

    /// See [`Shared::set_workers`].
    pub(super) fn workers(&self) -> Arc<[u16]> {
        lock(&self.workers).clone()
    }

    /// Says which workers there are, those that retire too, of which some may have something from an engine before this one only. What nodes have of others
    /// nobody will ask for any more.
    pub fn set_homes(&self, workers: Arc<[u16]>) {
        *lock(&self.homes) = workers;
    }

    /// See [`Shared::set_homes`].
    pub(super) fn homes(&self) -> Arc<[u16]> {
        lock(&self.homes).clone()
    }

    /// Numbers of a dispatcher's workers of which nodes have something from an earlier process.
    pub fn homes_left(&self, config: &Config) -> BTreeSet<u16> {
        // What can't be had the workers say, when they need it.
        let Ok(steering) = self.dispatcher(config) else { return BTreeSet::new() };
        if !steering.was_left() {
            return BTreeSet::new();
        }
        super::recovery::homes_left(&steering).unwrap_or_else(|error| {
            crate::log::warning(format_args!("connections may be lost that nodes have of an earlier process: {error}"));
            BTreeSet::new()
        })
    }

    /// A dispatcher's programs.
    pub(super) fn dispatcher(&self, config: &Config) -> Result<Arc<steering::Dispatcher>, String> {
        lock(&self.dispatcher).get_or_insert_with(|| load_dispatcher(config, self).map(Arc::new)).clone()
    }

    /// Gets ready for a dispatcher's part what takes the kernel a moment, and is in no other process's way.
    pub fn prepare(&self, config: &Config) {
        if config.keeps_books() {
            *lock(&self.loaded) = Some(load_programs(config));
        }
    }

    /// Another process is to have what a dispatcher has in the kernel, now that none of the workers goes by it any more. It has it already while the kernel
    /// still cleans up what this returns.
    pub fn resign(&self) -> Option<Arc<steering::Dispatcher>> {
        let steering = lock(&self.dispatcher).take()?.ok()?;
        if let Err(error) = steering.resign() {
            crate::log::warning(format_args!("the next engine may not take up what nodes have: {error}"));
        }
        Some(steering)
    }

    /// Which of its node's processes this is, where others may take over its flows.
    pub(super) fn life(&self, cluster: &config::Cluster) -> Result<&Life, String> {
        self.life.get_or_init(|| Life::begin(cluster, LIVES_MAX)).as_ref().map_err(Clone::clone)
    }

    /// This process, where that matters to others.
    pub(super) fn process(&self) -> Option<Process> {
        self.life.get()?.as_ref().ok().map(Life::process)
    }

    /// Whether there was no way to some node at the last look.
    pub(super) fn is_way_lost(&self) -> bool {
        self.is_way_lost.load(Ordering::Relaxed)
    }

    /// Has all workers look more closely at whether clients hear their nodes.
    pub(super) fn doubt_until(&self, until: Instant) {
        self.doubt_until_ns.fetch_max(until.ns, Ordering::Relaxed);
    }

    /// Whether they are to, now.
    pub(super) fn is_doubted(&self, now: Instant) -> bool {
        now.ns < self.doubt_until_ns.load(Ordering::Relaxed)
    }

    /// Whether it's new that something is so, or isn't any more.
    pub(super) fn is_news(&self, what: String, is_so: bool) -> bool {
        let mut told = lock(&self.told);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if is_so { told.insert(what) } else { told.remove(&what) }
    }

    /// Whether it's to be said that a lease of this node's has run out: each of its workers has one of each here.
    pub(super) fn is_lapse_to_tell(&self, server: ServerId, now: Instant) -> bool {
        let mut told = lock(&self.lapses_told);
        let is_due = told.get(&server.server()).is_none_or(|told| now.since(*told) >= LAPSE_PAUSE);
        if is_due {
            told.insert(server.server(), now);
        }
        is_due
    }

    /// A node's checks of itself, as a configuration wants them.
    pub(super) fn checks(&self, config: &Config) -> Option<Arc<Checks>> {
        let mut checks = lock(&self.checks);
        match Checks::arrange(checks.as_ref(), config, &self.of_checks) {
            Ok(arranged) => *checks = arranged,
            Err(error) => crate::log::warning(format_args!("this node can't check itself: no thread: {error}")),
        }
        checks.clone()
    }

    /// Whether this node is checking itself now.
    pub(in crate::worker) fn is_checked(&self) -> bool {
        self.of_checks.is_under_way()
    }

    /// Whether a connection of this port is this node's check of itself, if it's from this machine.
    pub(in crate::worker) fn is_check_port(&self, port: u16) -> bool {
        self.of_checks.is_check_port(port)
    }

    /// A worker lets in few of those who connect: a check may be among the others.
    pub(in crate::worker) fn few_are_let_in(&self, now: Instant) {
        self.of_checks.few_are_let_in(now);
    }

    /// A node's programs.
    pub(super) fn node(&self, config: &Config) -> Result<Arc<NodeGuard>, String> {
        let load = || NodeGuard::load(config).map(Arc::new).inspect(|node| node.set_workers(&self.workers()));
        self.node.get_or_init(load).clone()
    }
}

/// What tells two clusters of one machine apart.
pub(super) fn vip_name(cluster: &config::Cluster) -> String {
    cluster.vip.first().map(ToString::to_string).unwrap_or_default()
}

fn load_programs(config: &Config) -> Result<steering::Dispatcher, String> {
    let cluster = &config.cluster;
    match cluster.is_spread() {
        true => {
            let pins = pins::directory(&format!("peer-{}-{}", cluster.name, vip_name(cluster)))?;
            steering::Dispatcher::load(&pins, FLOWS_MAX).map_err(|error| error.to_string())
        }
        false => born::dispatcher(config, &pins::directory(&format!("dispatcher-{}", vip_name(cluster)))?),
    }
}

/// Waits until the kernel has cleaned up after a process that has died. Nothing of this one's part in the cluster is under way yet, as while the kernel loads
/// programs.
fn await_cleaned_up(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() && start.elapsed() < CLEANED_UP_WITHIN {
        std::thread::sleep(CLEANED_UP_LOOK);
    }
}

fn load_dispatcher(config: &Config, shared: &Shared) -> Result<steering::Dispatcher, String> {
    let cluster = &config.cluster;
    let text = |error: steering::Error| error.to_string();
    let is_peer = cluster.is_spread();
    let loaded = lock(&shared.loaded).take();
    let steering = loaded.unwrap_or_else(|| load_programs(config))?;
    if config.keeps_books() {
        // As long as its taps are there, it looks as if it lived, and what it has left as if it was its own.
        await_cleaned_up(|| steering.was_left());
    }
    if is_peer && steering.was_left() {
        super::peer::close_left(&steering).map_err(text)?;
    }
    set_nodes(&steering, config, shared);
    // Whoever has gone on in this server's place isn't to any more.
    let mut has_been_away = false;
    for &vip in &cluster.vip {
        has_been_away |= steering.reclaim(vip, leave::peer_number(config)).map_err(text)?;
    }
    if has_been_away {
        super::recovery::forget_inherited(&steering).map_err(text)?;
    }
    for interface in interfaces::outward().map_err(|error| format!("interfaces: {error}"))? {
        steering.attach(&interface).map_err(text)?;
    }
    // Only now: until the taps are there, packets could only be lost.
    for &vip in &cluster.vip {
        steering.answer(vip).map_err(text)?;
    }
    Ok(steering)
}

/// Tells the programs the ways to nodes. One to which there is none now gets nothing: that's tried again when a link begins.
pub(super) fn set_nodes(steering: &steering::Dispatcher, config: &Config, shared: &Shared) {
    let cluster = &config.cluster;
    let others = cluster.nodes.iter().enumerate().filter(|(_, node)| !cluster.is_spread() || node.name != cluster.name);
    let mut is_lost = false;
    for (place, node) in others {
        let number = super::number_of(place);
        let text = |error: steering::Error| error.to_string();
        // Nodes behind fronts send on what has left them.
        let reach = reach(node).map(|reach| Reach { forwards: cluster.is_spread(), ..reach });
        let set = reach.and_then(|reach| steering.set_node(number, &reach).map_err(text));
        let what = format!("no way to {}", node.name);
        if let Err(error) = set {
            is_lost = true;
            // Where there was one, packets go on that way: it may be back in a moment.
            if shared.is_news(what, true) {
                crate::log::warning(format_args!("connections can't be handed over to {}: {error}", node.name));
            }
        } else if shared.is_news(what, false) {
            crate::log::info(format_args!("node {}: there is a way to it", node.name));
        }
    }
    shared.is_way_lost.store(is_lost, Ordering::Relaxed);
}

pub(super) fn reach(node: &config::ClusterNode) -> Result<Reach, String> {
    let first = node.address.first().ok_or_else(|| format!("node {} has no address", node.name))?;
    let interface = interfaces::towards(*first).map_err(|error| format!("node {}: {error}", node.name))?;
    let ipv4 = node.address.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let ipv6 = node.address.iter().find_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    });
    Ok(Reach { interface, ipv4, ipv6, routed: node.routed, forwards: false })
}

/// A node's programs, and the leases that its workers have from their homes.
pub(super) struct NodeGuard {
    steering: Mutex<steering::Node>,
    life: Life,
    /// VIPs under which this server sends, if it does so for all.
    own_vips: Vec<SocketAddr>,
    leases: Mutex<Leases>,
    /// A connection server has ended and left its connections here: where no home has flows, nobody else speaks for the VIP.
    is_heir: AtomicBool,
    /// Another process has followed, whose leases hold where this one has nothing.
    is_followed: AtomicBool,
    /// When it was last looked which replayed handshakes are of connections that have ended.
    sweep_at_ns: AtomicU64,
}

/// By worker and home.
type Leases = BTreeMap<(u16, ServerId), Lease>;

/// What one home has granted one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lease {
    /// By the kernel's clock of leases.
    pub(super) until_ns: u64,
    /// Whether the worker holds flows of that home.
    pub(super) has_flows: bool,
}

impl NodeGuard {
    fn load(config: &Config) -> Result<NodeGuard, String> {
        let text = |error: steering::Error| error.to_string();
        let cluster = &config.cluster;
        let node = cluster.nodes.iter().find(|node| node.name == cluster.name);
        let node = node.ok_or_else(|| format!("no [[cluster.node]] has the name `{}`", cluster.name))?;
        let life = Life::begin(cluster, PROCESSES_MAX)?;
        let pins = pins::directory(&format!("node-{}-{}", cluster.name, vip_name(cluster)))?;
        let mut steering = born::node(config, &pins, node)?;
        // An earlier process of this node may have gone on in its connection server's place.
        let is_heir = config.split.peer == cluster.name && steering.lease().map_err(text)? == steering::NO_LEASE;
        for &vip in &cluster.vip {
            let same_family = node.address.iter().find(|address| address.is_ipv4() == vip.is_ipv4());
            let own = same_family.filter(|_| node.routed).copied();
            let foreign = node.server_for(vip);
            steering.add_service(&Service { vip, own, marked: foreign.is_none(), foreign }).map_err(text)?;
        }
        for interface in interfaces::outward().map_err(|error| format!("interfaces: {error}"))? {
            steering.attach(&interface).map_err(text)?;
        }
        let own_vips: Vec<_> = cluster.vip.iter().copied().filter(|vip| node.server_for(*vip).is_none()).collect();
        let is_only = life.is_only();
        for &vip in &own_vips {
            if is_only {
                // What it had is its own until its io_uring has been taken down, and can't be forgotten before.
                await_cleaned_up(|| !connections::are_held(vip).unwrap_or(false));
            }
            if let Err(error) = steering::forget_dead(vip) {
                let what = "connections that an earlier process had can't come back here for some minutes";
                crate::log::warning(format_args!("{what}, if it has died: {error}"));
            }
        }
        if is_heir {
            steering.set_lease(steering::NO_LEASE).map_err(text)?;
        }
        Ok(NodeGuard {
            steering: Mutex::new(steering),
            life,
            own_vips: if own_vips.len() == cluster.vip.len() { own_vips } else { Vec::new() },
            leases: Mutex::default(),
            is_heir: is_heir.into(),
            is_followed: false.into(),
            sweep_at_ns: AtomicU64::new(0),
        })
    }

    /// This process, as a home is told of it.
    pub(super) fn process(&self) -> Process {
        // What one that died has left in the kernel may go on sending, and what a server has that isn't leat does.
        let is_silenced =
            || steering::can_forget_dead() && self.own_vips.iter().all(|&vip| steering::forget_dead(vip).is_ok());
        let process = self.life.process();
        Process { is_only: !self.own_vips.is_empty() && process.is_only && is_silenced(), ..process }
    }

    /// Puts what a worker has of a home in the place of what it had. A home that it hears no more of and has nothing of is left out.
    pub(super) fn set_lease(&self, worker: u16, home: ServerId, lease: Lease) {
        let mut leases = lock(&self.leases);
        if lease.until_ns < boot_clock_ns() && !lease.has_flows {
            leases.remove(&(worker, home));
        } else {
            leases.insert((worker, home), lease);
        }
        self.put_in_force(&leases);
    }

    /// A home has ended, and has left what it had to this server.
    pub(super) fn inherit(&self) {
        self.is_heir.store(true, Ordering::Relaxed);
        self.put_in_force(&lock(&self.leases));
    }

    /// Says whose listener is where.
    fn set_workers(&self, numbers: &[u16]) {
        if let Err(error) = lock(&self.steering).set_workers(numbers) {
            crate::log::warning(format_args!("connections can't begin here, and are moved here: {error}"));
        }
    }

    /// Which flow a connection is that was accepted here, if it began by a cookie.
    pub(super) fn birth(&self, key: FlowKey) -> Result<Option<Birth>, steering::Error> {
        let steering = lock(&self.steering);
        if steering.has_births() { steering.birth(key) } else { Ok(None) }
    }

    /// The programs.
    pub(super) fn steering(&self) -> MutexGuard<'_, steering::Node> {
        lock(&self.steering)
    }

    /// Whether connections can begin here.
    pub(super) fn has_births(&self) -> bool {
        lock(&self.steering).has_births()
    }

    /// Whether they begin by handshakes that are replayed.
    pub(super) fn has_replays(&self) -> bool {
        lock(&self.steering).has_replays()
    }

    /// Has the programs forget connections that have ended, if it's time.
    pub(super) fn sweep(&self, now: Instant) {
        let is_due = |at| (now.ns >= at).then_some(now.after(FEW_PAUSE).ns);
        if self.sweep_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_err() {
            return;
        }
        let (mut place, mut entries) = (None, 0);
        loop {
            // Workers have their turn between any two.
            match lock(&self.steering).sweep(place, now) {
                Ok((left, next)) => (place, entries) = (next, entries + left),
                Err(error) => {
                    crate::log::warning(format_args!("connections that have ended can't be forgotten: {error}"));
                    return;
                }
            }
            if place.is_none() {
                break;
            }
        }
        if entries >= FEW {
            self.sweep_at_ns.store(now.after(SWEEP_PAUSE).ns, Ordering::Relaxed);
        }
    }

    /// A worker has nothing any more.
    pub(super) fn forget(&self, worker: u16) {
        let mut leases = lock(&self.leases);
        leases.retain(|(known, _), _| *known != worker);
        self.put_in_force(&leases);
    }

    /// Says whether another process of this node is there, whose the kernel's lease is as well.
    pub(super) fn share(&self, is_followed: bool) {
        self.is_followed.fetch_or(is_followed, Ordering::Relaxed);
    }

    fn put_in_force(&self, leases: &Leases) {
        if self.is_followed.load(Ordering::Relaxed) && !leases.values().any(|lease| lease.has_flows) {
            return;
        }
        let Some(until_ns) = common_lease_ns(leases, self.is_heir.load(Ordering::Relaxed)) else { return };
        if let Err(error) = lock(&self.steering).set_lease(until_ns) {
            crate::log::warning(format_args!("the lease can't be renewed: {error}"));
        }
    }

    /// When a lease ends, by the kernel's clock.
    pub(super) fn until_ns(until: Instant) -> u64 {
        // In this order, and by the clock as it is now: a worker that stands still between any two steps has a lease that is shorter, never one that outlasts
        // what its home has granted.
        let boot_ns = boot_clock_ns();
        let left = until.since(leat_host::clock::now());
        boot_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The kernel doesn't know whose a flow is, so the shortest of all counts under which something is held: a home may only take back what nobody speaks
/// for any more. Where nothing is held, the longest: something may just be about to be. An heir needs none then. `None` where something is held of a home that
/// has granted nothing yet: it began by the lease of the process before, and none of another home's makes that longer.
fn common_lease_ns(leases: &Leases, is_heir: bool) -> Option<u64> {
    let held = leases.values().filter(|lease| lease.has_flows).map(|lease| lease.until_ns).min();
    let longest = leases.values().map(|lease| lease.until_ns).max();
    match held {
        Some(0) => None,
        held => held.or(is_heir.then_some(steering::NO_LEASE)).or(longest).or(Some(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_that_run_out_together_are_told_once() {
        let (shared, now) = (Shared::default(), Instant { ns: 5_000_000_000 });
        let lease = |server, worker, now| shared.is_lapse_to_tell(ServerId::new(server, worker), now);
        assert_eq!(
            [(1, 0), (1, 1), (2, 1), (2, 0)].map(|(node, worker)| lease(node, worker, now)),
            [true, false, true, false]
        );
        assert!(!lease(1, 0, now.after(LAPSE_PAUSE / 2)) && lease(1, 1, now.after(LAPSE_PAUSE)));
    }

    #[test]
    fn a_lease_that_is_renewed_late_is_not_longer_for_it() {
        let until = leat_host::clock::now().after(std::time::Duration::from_millis(1));
        let end_ns = NodeGuard::until_ns(until);
        while leat_host::clock::now() < until {}
        assert!(end_ns <= boot_clock_ns());
        assert!(NodeGuard::until_ns(until) <= boot_clock_ns());
    }

    #[test]
    fn a_node_is_silent_when_one_of_its_homes_may_take_something_back() {
        let lease = |until_ns, has_flows| Lease { until_ns, has_flows };
        let home = |worker| ServerId::new(0, worker);
        let mut leases = Leases::from([((0, home(0)), lease(10, false)), ((1, home(0)), lease(20, false))]);
        assert_eq!(common_lease_ns(&leases, false), Some(20));
        leases.insert((1, home(1)), lease(15, true));
        assert_eq!(common_lease_ns(&leases, false), Some(15), "what holds nothing doesn't count");
        leases.insert((0, home(0)), lease(10, true));
        assert_eq!((common_lease_ns(&leases, false), common_lease_ns(&leases, true)), (Some(10), Some(10)));
        assert_eq!(common_lease_ns(&Leases::new(), false), Some(0));
        leases.values_mut().for_each(|lease| lease.has_flows = false);
        assert_eq!(common_lease_ns(&leases, true), Some(steering::NO_LEASE), "an heir that holds nothing needs none");
    }

    #[test]
    fn what_began_before_its_homes_first_lease_isnt_spoken_for_under_anothers() {
        let home = |worker| ServerId::new(0, worker);
        let mut leases = Leases::from([
            ((0, home(0)), Lease { until_ns: 20, has_flows: true }),
            ((0, home(1)), Lease { until_ns: 0, has_flows: true }),
        ]);
        assert_eq!(common_lease_ns(&leases, false), None);
        leases.insert((0, home(1)), Lease { until_ns: 30, has_flows: true });
        assert_eq!(common_lease_ns(&leases, false), Some(20));
    }
}
