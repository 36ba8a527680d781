//! The configurations that runs are made under: small limits, so that all of them are met.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leat::config::{
    Admin, Burn, Cgi, Command, Config, First, Handler, Limits, Listener, Owner, OwnerQuota, Quota, Schedule, Site,
    SiteLimits,
};
use leat_logic::schedule::PolicyKind;
use leat_logic::serve::hosts::HostTable;
use leat_logic::serve::path_pattern::PathPattern;

use crate::agenda::SECOND;
use crate::random::Random;

pub(crate) const HEAD_TIMEOUT_NS: u64 = 12 * SECOND;
pub(crate) const IDLE_TIMEOUT_NS: u64 = 6 * SECOND;
pub(crate) const STALL_TIMEOUT_NS: u64 = 4 * SECOND;
const LINGER_TIMEOUT_NS: u64 = 2 * SECOND;
/// How long a request may be on its way to a server that gives its connection up meanwhile.
pub(crate) const SLACK_NS: u64 = SECOND;

pub(crate) const SITES: usize = 2;
pub(crate) const PROGRAM_BYTES_MAX: usize = 150_000;
const PROGRAM_TIMEOUT_NS: u64 = 3 * SECOND;
pub(crate) const BURN_BYTES_MAX: usize = 50_000;
pub(crate) const BURN_US_MAX: u64 = 5_000;

/// Of no site, of one or of both.
const OWNER: &str = "owner";

/// Where a run's sites listen. Nothing does: it's a name.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// A configuration for two sites.
pub(crate) fn make(random: &mut Random) -> Config {
    let policies = PolicyKind::ALL;
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
        owner: if random.percent(50) { OWNER.to_owned() } else { String::new() },
        stages: *random.pick(policies),
        precompressed: Vec::new(),
        limits: SiteLimits {
            idle_timeout: limits.idle_timeout,
            stall_timeout: limits.stall_timeout,
            ..SiteLimits::default()
        },
        ..Site::default()
    };
    let mut sites = vec![site(0, "a.test", random), site(1, "b.test", random)];
    let burn = Burn { us_max: BURN_US_MAX, bytes_max: BURN_BYTES_MAX, ..Burn::default() };
    let paths = PathPattern::parse("/burn").unwrap_or_default();
    let cgi = Cgi {
        command: Command { program: PathBuf::from("/program"), arguments: Vec::new() },
        processes: *random.pick(&[1, 2, 10]),
        queue: *random.pick(&[0, 3, 100]),
        timeout: Duration::from_nanos(PROGRAM_TIMEOUT_NS),
        ..Cgi::default()
    };
    let program =
        Handler { path: PathPattern::parse("/program/*").unwrap_or_default(), cgi: Some(cgi), ..Handler::default() };
    sites[0].handlers = vec![program];
    sites[1].handlers = vec![Handler { path: paths, burn: Some(burn), ..Handler::default() }];
    let hosts = sites
        .iter()
        .enumerate()
        .flat_map(|(number, site)| site.hosts.iter().map(move |host| (host.clone(), number as u32)));
    let listeners = vec![Listener { address: address(), hosts: HostTable::new(hosts, None) }];
    let mut config = Config {
        workers: 1,
        admin: Admin { listen: None, ..Admin::default() },
        limits,
        schedule: Schedule {
            first: *random.pick(&[First::Sites, First::Stages]),
            root: *random.pick(policies),
            receive: *random.pick(policies),
            serve: *random.pick(policies),
            transmit: *random.pick(policies),
            compute: *random.pick(policies),
            ..Schedule::default()
        },
        owners: vec![Owner {
            name: OWNER.to_owned(),
            weight: random.between(1, 300) as u32,
            policy: *random.pick(policies),
            ..Owner::default()
        }],
        sites,
        listeners,
        ..Config::default()
    };
    for site in &mut config.sites {
        site.quota = quota(site.weight);
    }
    for owner in &mut config.owners {
        owner.quota = OwnerQuota(quota(owner.weight));
    }
    config.files.cache_size = *random.pick(&[0, 30_000, 1 << 20]);
    config.files.cache_file_size_max = (*random.pick(&[0, 2_000, 65_536])).min(config.files.cache_size);
    config.files.open_files_max = *random.pick(&[0, 2, 100]);
    config.schedule.gather_us = *random.pick(&[0, 50, 1_000]);
    config
}

/// A configuration for a site that may hold `memory` bytes, whose programs are asked by clients that send much. Between requests and in heads they may be
/// silent for less time than some of what they send takes, in content for `stall_timeout`.
pub(crate) fn for_uploads(memory: u64, stall_timeout: Duration) -> Config {
    let patience = Duration::from_nanos(600 * SECOND);
    let cgi = Cgi {
        command: Command { program: PathBuf::from("/program"), arguments: Vec::new() },
        processes: 2,
        queue: 1_000,
        timeout: patience,
        ..Cgi::default()
    };
    let path = PathPattern::parse("/program/*").unwrap_or_default();
    let short = Duration::from_nanos(SECOND / 2);
    let limits = Limits { head_timeout: short, idle_timeout: short, stall_timeout, ..Limits::default() };
    let site = Site {
        name: "a.test".to_owned(),
        hosts: "a.test".parse().into_iter().collect(),
        listen: vec![address()],
        root: PathBuf::from("/site0"),
        precompressed: Vec::new(),
        handlers: vec![Handler { path, cgi: Some(cgi), ..Handler::default() }],
        limits: SiteLimits { idle_timeout: short, stall_timeout, ..SiteLimits::default() },
        quota: Quota { memory, ..Quota::default() },
        ..Site::default()
    };
    let hosts = site.hosts.iter().map(|host| (host.clone(), 0));
    let listeners = vec![Listener { address: address(), hosts: HostTable::new(hosts, None) }];
    let admin = Admin { listen: None, ..Admin::default() };
    Config { workers: 1, admin, limits, sites: vec![site], listeners, ..Config::default() }
}

/// Quotas of a third, so large that nobody waits for so long that it's refused. By what has been drawn already: runs without stay the same.
fn quota(drawn: u32) -> Quota {
    let none = Quota::default();
    match drawn % 12 {
        0 => Quota { network_rate: 2_000_000, ..none },
        1 => Quota { cpu: 30, disk_rate: 2_000_000, ..none },
        2 => Quota { memory: 300_000, ..none },
        3 => Quota { network_rate: 5_000_000, cpu: 50, memory: 1_000_000, ..none },
        _ => none,
    }
}
