//! The generator against servers that do nothing, and against servers that do wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::outcome::Failure;
use super::{Demand, Observer, Outcome, Plan, Spacing, Unobserved, run, run_together};
use crate::nothing::{Facility, in_background};
use crate::server::running::WorkFolder;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, Mix, Target};

fn brief(address: SocketAddr) -> Plan {
    Plan {
        warm_up: Duration::from_millis(10),
        window: Duration::from_millis(100),
        // Tests share the machine: no spinning, and patience with what is late.
        sleep: true,
        drain: Duration::from_secs(10),
        verify_every: 3,
        ..Plan::saturate(address, 16)
    }
}

/// Runs `change`d plans against a server of a file of `bytes`.
fn measure(facility: Facility, bytes: u64, close: bool, change: impl Fn(Plan) -> Plan) -> Outcome {
    let folder = WorkFolder::create("load-tests").expect("a temporary folder");
    let root = folder.path().join("files");
    let files = FileSet::of_sizes(&root, &[("file", bytes)], 5).expect("files");
    let address = in_background(facility, &root.join("file"), close);
    let outcome = run(&change(brief(address)), &files.mix(close, |_| true), &mut Unobserved).expect("it runs");
    assert_eq!(outcome.failed(), 0, "{:?}", outcome.failures);
    assert!(outcome.answered > 0, "{facility:?} {bytes}: {} sent in {:?}", outcome.sent, outcome.window);
    // On a busy machine a window may see only a few large replies.
    assert!(outcome.verified > 0 || outcome.answered < 50, "{} answered, none verified", outcome.answered);
    outcome
}

#[test]
fn replies_of_every_size_are_checked_on_every_facility() {
    for facility in [Facility::Epoll, Facility::IoUring, Facility::Sendfile] {
        for bytes in [0, 612, 8 << 10, 15 << 10, 16 << 10, 64 << 10, 3 << 20] {
            let large = bytes > 1 << 20;
            measure(facility, bytes, false, |plan| Plan {
                connections: if large { 2 } else { 16 },
                window: Duration::from_millis(if large { 500 } else { 100 }),
                ..plan
            });
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    for bytes in [612, 20_000] {
        measure(Facility::Epoll, bytes, false, |plan| Plan { pipeline: 16, ..plan });
        measure(Facility::IoUring, bytes, false, |plan| Plan { pipeline: 16, ..plan });
    }
}

#[test]
fn a_connection_can_last_one_request_or_some() {
    for facility in [Facility::Epoll, Facility::IoUring] {
        let outcome = measure(facility, 612, true, |plan| Plan { requests_per_connection: Some(1), ..plan });
        assert!(outcome.connects >= outcome.answered / 2, "{} {}", outcome.connects, outcome.answered);
        measure(facility, 612, false, |plan| Plan { requests_per_connection: Some(3), ..plan });
    }
}

/// All that was due within the window, however late its end came on a busy machine.
fn assert_offered(outcome: &Outcome, per_s: f64) {
    let due = outcome.window.as_secs_f64() * per_s;
    assert!((outcome.offered as f64 - due).abs() <= 2.0, "{} of {due}", outcome.offered);
}

#[test]
fn an_open_loop_sends_what_is_due_and_no_more() {
    let outcome = measure(Facility::IoUring, 612, false, |plan| Plan {
        demand: Demand::Rate { per_s: 2_000.0, spacing: Spacing::Constant },
        ..plan
    });
    assert_offered(&outcome, 2_000.0);
    assert_eq!(outcome.latency_ns.len(), outcome.offered, "each request that was due has a latency");
}

#[test]
fn idle_and_slow_connections_stand_beside_the_active_ones() {
    struct Opened(bool);
    impl Observer for Opened {
        fn opened(&mut self) {
            self.0 = true;
        }
    }
    measure(Facility::Sendfile, 100_000, false, |plan| Plan { idle: 300, slow: 3, ..plan });
    let folder = WorkFolder::create("load-tests").expect("a temporary folder");
    let root = folder.path().join("files");
    let files = FileSet::of_sizes(&root, &[("file", 612)], 5).expect("files");
    let address = in_background(Facility::Epoll, &root.join("file"), false);
    let mut opened = Opened(false);
    run(&Plan { idle: 10, ..brief(address) }, &files.mix(false, |_| true), &mut opened).expect("it runs");
    assert!(opened.0);
}

#[test]
fn the_end_comes_early_when_enough_was_sent() {
    let folder = WorkFolder::create("load-tests").expect("a temporary folder");
    let root = folder.path().join("files");
    let files = FileSet::of_sizes(&root, &[("file", 612)], 5).expect("files");
    let address = in_background(Facility::Epoll, &root.join("file"), false);
    let plan = Plan { requests_max: 100, window: Duration::from_secs(60), warm_up: Duration::ZERO, ..brief(address) };
    let outcome = run(&plan, &files.mix(false, |_| true), &mut Unobserved).expect("it runs");
    assert!(outcome.window < Duration::from_secs(30), "{:?}", outcome.window);
}

#[test]
fn plans_run_together_and_are_told_apart() {
    let folder = WorkFolder::create("load-tests").expect("a temporary folder");
    let root = folder.path().join("files");
    let files = FileSet::of_sizes(&root, &[("file", 612)], 5).expect("files");
    let mix = files.mix(false, |_| true);
    let address = in_background(Facility::IoUring, &root.join("file"), false);
    let rate = |per_s| Plan { demand: Demand::Rate { per_s, spacing: Spacing::Constant }, ..brief(address) };
    let (few, many) = (rate(300.0), rate(3_000.0));
    let outcomes = run_together(&[(&few, &mix), (&many, &mix)], &mut Unobserved).expect("it runs");
    for (outcome, per_s) in outcomes.iter().zip([300.0, 3_000.0]) {
        assert_offered(outcome, per_s);
        assert_eq!(outcome.failed(), 0, "{:?}", outcome.failures);
        assert_eq!(outcome.latency_ns.len(), outcome.offered);
    }
}

#[test]
fn a_refusal_is_no_failure_where_it_may_come() {
    let address = wrong_server(b"HTTP/1.1 503 Later\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy");
    let mix = Mix::new(vec![(Target::new("/", false, Some(5), Body::Unknown), 1.0)]);
    let plan = Plan {
        demand: Demand::Rate { per_s: 500.0, spacing: Spacing::Constant },
        requests_per_connection: Some(1),
        ..brief(address)
    };
    let outcome = run(&Plan { may_be_refused: true, ..plan.clone() }, &mix, &mut Unobserved).expect("it runs");
    assert!(outcome.refused > 0 && outcome.answered == 0 && outcome.failed() == 0, "{:?}", outcome.failures);
    let outcome = run(&plan, &mix, &mut Unobserved).expect("few failures don't end a run");
    assert!(outcome.failures.contains_key(&Failure::Status(503)) && outcome.refused == 0, "{:?}", outcome.failures);
}

#[test]
fn a_flood_goes_on_whatever_the_server_does() {
    let address = wrong_server(b"");
    let mix = Mix::new(vec![(Target::new("/", false, Some(5), Body::Unknown), 1.0)]);
    let flood = Plan { is_flood: true, connections: 4, slow: 2, slow_heads: 2, ..brief(address) };
    let outcome = run(&flood, &mix, &mut Unobserved).expect("a flood isn't ended by failures");
    assert!(outcome.failures.contains_key(&Failure::ClosedEarly), "{:?}", outcome.failures);
    assert_eq!(outcome.answered, 0);
}

/// A server that reads a bit and then says `reply`, whatever was asked, and closes.
fn wrong_server(reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            // That a client leaves is part of the test.
            let _ = stream.read(&mut request).and_then(|_| stream.write_all(reply));
        }
    });
    address
}

fn failures(reply: &'static [u8], body: Body) -> Vec<Failure> {
    let mix = Mix::new(vec![(Target::new("/", false, Some(5), body), 1.0)]);
    let plan = Plan {
        demand: Demand::Rate { per_s: 500.0, spacing: Spacing::Constant },
        verify_every: 1,
        connections: 2,
        // Nothing is asked while opening, which would end the run at once.
        requests_per_connection: Some(1_000),
        ..brief(wrong_server(reply))
    };
    let outcome = run(&plan, &mix, &mut Unobserved).expect("few failures don't end a run");
    assert_eq!(outcome.answered, 0);
    outcome.failures.into_keys().collect()
}

#[test]
fn what_goes_wrong_is_counted_by_kind() {
    let hello = Body::Bytes(b"hello"[..].into());
    let of = |reply| failures(reply, hello.clone());
    assert_eq!(of(b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nhello"), [Failure::Status(404)]);
    assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"), [Failure::Length]);
    assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhallo"), [Failure::Body]);
    assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), [Failure::ClosedEarly]);
    assert_eq!(of(b""), [Failure::ClosedEarly]);
    assert_eq!(of(b"what?\r\n\r\n"), [Failure::MalformedHead]);
}

#[test]
fn a_run_against_nobody_ends_with_an_error() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let mix = Mix::new(vec![(Target::new("/", false, Some(5), Body::Unknown), 1.0)]);
    assert!(run(&brief(nobody), &mix, &mut Unobserved).is_err());
}
