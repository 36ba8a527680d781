//! The configurations that runs are made under: small limits, so that all of them are met.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leat::config::{Admin, Config, Limits, Listener, Schedule, Site, SiteLimits};
use leat_logic::schedule::PolicyKind;
use leat_logic::serve::hosts::HostTable;

use crate::agenda::SECOND;
use crate::random::Random;

pub(crate) const HEAD_TIMEOUT_NS: u64 = 12 * SECOND;
pub(crate) const IDLE_TIMEOUT_NS: u64 = 6 * SECOND;
pub(crate) const STALL_TIMEOUT_NS: u64 = 4 * SECOND;
const LINGER_TIMEOUT_NS: u64 = 2 * SECOND;
/// How long a request may be on its way to a server that gives its connection up meanwhile.
pub(crate) const SLACK_NS: u64 = SECOND;

pub(crate) const SITES: usize = 2;

/// Where a run's sites listen. Nothing does: it's a name.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// A configuration for two sites.
pub(crate) fn make(random: &mut Random) -> Config {
    let policies = [PolicyKind::RoundRobin, PolicyKind::WeightedFair, PolicyKind::StrictPriority];
    let limits = Limits {
        head_timeout: Duration::from_nanos(HEAD_TIMEOUT_NS),
        idle_timeout: Duration::from_nanos(IDLE_TIMEOUT_NS),
        stall_timeout: Duration::from_nanos(STALL_TIMEOUT_NS),
        linger_timeout: Duration::from_nanos(LINGER_TIMEOUT_NS),
        connections: *random.pick(&[3, 20, 1_000]),
        ..Limits::default()
    };
    let site = |number: usize, host: &str, random: &mut Random| Site {
        name: host.to_owned(),
        hosts: host.parse().into_iter().collect(),
        listen: vec![address()],
        root: PathBuf::from(format!("/site{number}")),
        weight: random.between(1, 300) as u32,
        priority: random.below(2) as u8,
        precompressed: Vec::new(),
        limits: SiteLimits {
            idle_timeout: limits.idle_timeout,
            stall_timeout: limits.stall_timeout,
            ..SiteLimits::default()
        },
        ..Site::default()
    };
    let sites = vec![site(0, "a.test", random), site(1, "b.test", random)];
    let hosts = sites
        .iter()
        .enumerate()
        .flat_map(|(number, site)| site.hosts.iter().map(move |host| (host.clone(), number as u32)));
    let listeners = vec![Listener { address: address(), hosts: HostTable::new(hosts, None) }];
    let mut config = Config {
        workers: 1,
        admin: Admin { listen: None },
        limits,
        schedule: Schedule { stages: *random.pick(&policies), sites: *random.pick(&policies) },
        sites,
        listeners,
        ..Config::default()
    };
    config.files.cache_size = *random.pick(&[0, 30_000, 1 << 20]);
    config.files.cache_file_size_max = (*random.pick(&[0, 2_000, 65_536])).min(config.files.cache_size);
    config.files.open_files_max = *random.pick(&[0, 2, 100]);
    config
}
