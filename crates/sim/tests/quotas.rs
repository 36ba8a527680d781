//! Quotas over several workers, in virtual time: wherever connections sit, a site or an owner may use all of what it has, and no more.

use std::time::Duration;

use leat::config::{Config, Owner, OwnerQuota, Quota};
use leat_sim::crowd::{Asking, Demand, Got, What, run_workers_under};
use leat_sim::{Uploads, run_uploads};

const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(4);
const RATE: u64 = 40_000_000;
const FILE_BYTES: f64 = 1_048_576.0;

/// Clients of each site on each worker that ask for a file again and again.
fn clients(connections: &[usize]) -> Vec<Demand> {
    let demand = |&connections: &usize| Demand {
        weight: 100,
        asking: Asking::Again(connections),
        what: What::File { is_read: true },
    };
    connections.iter().map(demand).collect()
}

/// The part of `RATE` that each site had on each worker.
fn parts(arrange: impl FnOnce(&mut Config), connections: &[&[usize]]) -> Vec<Vec<f64>> {
    let demands: Vec<Vec<Demand>> = connections.iter().map(|connections| clients(connections)).collect();
    let workers = demands.len();
    let arrange = |config: &mut Config| {
        config.workers = workers;
        arrange(config);
    };
    let got = run_workers_under(arrange, &demands, 1, WARM_UP, WINDOW).unwrap();
    let part = |got: &Got| got.answered_ns.len() as f64 * FILE_BYTES / (RATE as f64 * WINDOW.as_secs_f64());
    let parts: Vec<Vec<f64>> = got.iter().map(|sites| sites.iter().map(part).collect()).collect();
    println!("{parts:.3?}");
    parts
}

fn network() -> Quota {
    Quota { network_rate: RATE, ..Quota::default() }
}

#[test]
fn a_site_has_all_of_its_quota_wherever_its_connections_are() {
    for connections in [[&[1], &[0], &[0], &[0]], [&[0], &[0], &[7], &[0]], [&[4], &[0], &[1], &[2]], [&[1]; 4]] {
        let connections = connections.map(|sites| &sites[..]);
        let all: f64 = parts(|config| config.sites[0].quota = network(), &connections).concat().iter().sum();
        assert!((0.95..1.03).contains(&all), "{all}");
    }
}

#[test]
fn workers_have_as_much_of_it_as_connections() {
    let got = parts(|config| config.sites[0].quota = network(), &[&[3], &[1]]).concat();
    assert!((got[0] - 0.75).abs() < 0.05 && (got[1] - 0.25).abs() < 0.05, "{got:?}");
}

#[test]
fn sites_share_their_owners_quota_by_weight_and_have_no_more_than_their_own() {
    let owned = |weights: [u32; 2], own: Option<u64>| {
        move |config: &mut Config| {
            config.owners = vec![Owner { name: "owner".to_owned(), quota: OwnerQuota(network()), ..Owner::default() }];
            for (site, weight) in config.sites.iter_mut().zip(weights) {
                site.owner = "owner".to_owned();
                site.weight = weight;
            }
            config.sites[1].quota.network_rate = own.unwrap_or_default();
        }
    };
    let sums = |got: &[Vec<f64>]| [0, 1].map(|site| got.iter().map(|sites| sites[site]).sum::<f64>());
    // The lighter one has connections on all workers, and more of them.
    let [a, b] = sums(&parts(owned([300, 100], None), &[&[4, 4], &[0, 4], &[0, 4]]));
    assert!((a - 0.75).abs() < 0.05 && (b - 0.25).abs() < 0.05, "{a} {b}");
    let [a, b] = sums(&parts(owned([100, 300], Some(RATE / 10)), &[&[1, 4], &[0, 4]]));
    assert!((a - 0.9).abs() < 0.05 && (b - 0.1).abs() < 0.05, "{a} {b}");
}

#[test]
fn weights_hold_where_a_piece_of_a_reply_is_more_than_a_round_of_the_quota() {
    const SMALL_RATE: u64 = 100_000;
    const SMALL_FILE_BYTES: f64 = 16_384.0;
    const LONG: Duration = Duration::from_secs(60);
    let arrange = |config: &mut Config| {
        let quota = OwnerQuota(Quota { network_rate: SMALL_RATE, ..Quota::default() });
        config.owners = vec![Owner { name: "owner".to_owned(), quota, ..Owner::default() }];
        for (site, weight) in config.sites.iter_mut().zip([400, 100]) {
            (site.owner, site.weight) = ("owner".to_owned(), weight);
        }
    };
    let demand = Demand { weight: 100, asking: Asking::Again(4), what: What::SmallFile };
    let got = run_workers_under(arrange, &[vec![demand; 2]], 1, WARM_UP, LONG).unwrap().remove(0);
    let bytes = |site: usize| got[site].answered_ns.len() as f64 * SMALL_FILE_BYTES;
    let [a, b] = [0, 1].map(|site| bytes(site) / (SMALL_RATE as f64 * LONG.as_secs_f64()));
    println!("{a:.3} {b:.3}");
    assert!((a - 0.8).abs() < 0.02 && (b - 0.2).abs() < 0.02, "{a} {b}");
}

#[test]
fn processor_time_of_all_workers_may_be_had_from_one() {
    let burns = |connections| Demand { weight: 100, asking: Asking::Again(connections), what: What::Burn(200, 500) };
    for connections in [[8, 0], [4, 4]] {
        let arrange = |config: &mut Config| {
            config.workers = 2;
            config.sites[0].quota.cpu = 20;
        };
        let got = run_workers_under(arrange, &connections.map(|count| vec![burns(count)]), 1, WARM_UP, WINDOW).unwrap();
        let used: u64 = got.iter().flatten().map(|got| got.charged_ns).sum();
        let part = used as f64 / WINDOW.as_nanos() as f64 / 2.0;
        println!("{part:.3}");
        assert!((0.19..0.21).contains(&part), "{part}");
    }
}

/// Clients that send uploads one behind the other to two programs of a site that may hold so much: all are answered, and what is held beyond that is what
/// each client had on its way.
fn upload(memory: u64, chunked_percent: u64, stall_timeout: Duration, beyond: u64) {
    const CLIENTS: usize = 24;
    const EACH: usize = 4;
    let mut beyond_max = 0;
    for seed in 0..10 {
        let uploads = Uploads { seed, clients: CLIENTS, each: EACH, memory, chunked_percent, stall_timeout };
        let got = run_uploads(uploads).unwrap_or_else(|failure| panic!("{uploads:?}: {failure}"));
        assert_eq!((got.answered, got.unavailable), ((CLIENTS * EACH) as u64, 0), "{uploads:?}");
        beyond_max = beyond_max.max(got.held_bytes_max.saturating_sub(memory));
    }
    println!("{memory}: {beyond_max} more, {} for each client", beyond_max / CLIENTS as u64);
    assert!(beyond_max < beyond + CLIENTS as u64 * 32_768, "{beyond_max} more than {memory}");
}

#[test]
fn uploads_to_a_site_that_may_hold_little_are_all_answered() {
    for memory in [16, 32, 64, 256, 1_024] {
        upload(memory << 10, 0, Duration::from_millis(500), 0);
    }
}

#[test]
fn uploads_that_are_gathered_take_turns() {
    for memory in [128, 256, 1_024] {
        upload(memory << 10, 50, Duration::from_secs(60), memory << 10);
    }
}
