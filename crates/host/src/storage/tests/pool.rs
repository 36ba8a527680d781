//! The pool's bounds, and what happens when something runs out.

use std::sync::mpsc::{Sender, channel};

use leat_logic::serve::coding::CodingOrder;
use leat_logic::serve::resource::{Cause, Found, Keep};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::fixture::{Fixture, memory, resource};
use crate::storage::pool::{Full, Lane};
use crate::storage::{Outcome, Pool, PoolLimits, Storage, StorageEvent, Ticket};

/// Keeps one thread of a pool busy until it's opened.
pub(super) struct Gate(Sender<()>);

impl Gate {
    pub(super) fn close(pool: &Pool) -> Gate {
        Gate::close_lane(pool, Lane::Names)
    }

    fn close_lane(pool: &Pool, lane: Lane) -> Gate {
        let (open, is_open) = channel();
        let (started, has_started) = channel();
        let job = move || {
            started.send(()).unwrap();
            let _ = is_open.recv();
        };
        pool.submit(lane, Box::new(job)).unwrap();
        has_started.recv().unwrap();
        Gate(open)
    }

    pub(super) fn open(self) {
        drop(self.0);
    }
}

#[test]
fn a_full_queue_refuses_and_what_was_taken_is_answered() {
    let mut fixture = Fixture::with(PoolLimits { threads_max: 1, queue_max: 2, ..PoolLimits::default() }, 100);
    fixture.write("file", "x");
    let gate = Gate::close(&fixture.pool);
    let request = fixture.request("/file", CodingOrder::NONE).unwrap();
    let other = fixture.request("/other", CodingOrder::NONE).unwrap();
    let third = fixture.request("/third", CodingOrder::NONE).unwrap();
    for (ticket, request) in [(0, &request), (9, &other), (1, &request)] {
        assert!(matches!(fixture.storage.load(Ticket(ticket), None, request.clone()), Outcome::Pending));
    }
    assert_eq!(fixture.pool.queue_len(), 2, "the same question was asked twice");
    let Outcome::Ready(Some(refused)) = fixture.storage.load(Ticket(2), None, third) else {
        panic!("taken past the limit")
    };
    assert!(matches!(refused.found, Found::Unavailable(Cause::QueueFull)));
    assert_eq!(refused.keep, Keep::No);
    gate.open();
    for expected in 0..2 {
        let found = fixture.wait_for(|event| match event {
            StorageEvent::Loaded { ticket, loaded: Some(loaded) } if *ticket == Ticket(expected) => {
                Some(loaded.found.clone())
            }
            _ => None,
        });
        assert_eq!(memory(&found), b"x");
    }
}

#[test]
fn a_hash_before_the_first_reply_is_a_large_read_and_is_refused_like_one() {
    let mut fixture = Fixture::with(PoolLimits { threads_max: 2, read_threads_max: 1, queue_max: 1 }, 100);
    fixture.write_settled("large", vec![1; 1 << 20]);
    fixture.write("small", "x");
    fixture.load("/small");
    fixture.load("/small");
    fixture.names("/small");
    let gate = Gate::close_lane(&fixture.pool, Lane::Reads);
    let request = fixture.request("/large", CodingOrder::NONE).unwrap();
    assert!(matches!(fixture.storage.load(Ticket(1_001), None, request.clone()), Outcome::Pending));
    // One job waits: this one, in whichever queue. The next finds no room where this one is or is going.
    while fixture.pool.queue_len() != 1 {
        std::thread::yield_now();
    }
    fixture.write_settled("large2", vec![1; 1 << 20]);
    assert!(matches!(fixture.load("/large2").found, Found::Unavailable(Cause::QueueFull)));
    gate.open();
    let found = fixture.wait_for(|event| match event {
        StorageEvent::Loaded { ticket: Ticket(1_001), loaded: Some(loaded) } => Some(loaded.found.clone()),
        _ => None,
    });
    assert!(resource(&found).description.etag.is_some());
}

#[test]
fn large_reads_leave_a_thread_for_names() {
    let pool = Pool::new(PoolLimits { threads_max: 3, read_threads_max: 10, queue_max: 100 });
    let gates = [Gate::close_lane(&pool, Lane::Reads), Gate::close_lane(&pool, Lane::Reads)];
    let (done, is_done) = channel();
    let read_done = done.clone();
    pool.submit(Lane::Reads, Box::new(move || read_done.send("read").unwrap())).unwrap();
    pool.submit(Lane::Names, Box::new(move || done.send("name").unwrap())).unwrap();
    assert_eq!(is_done.recv(), Ok("name"));
    gates.into_iter().for_each(Gate::open);
    assert_eq!(is_done.recv(), Ok("read"));
}

#[test]
fn a_background_job_holds_nobody_up() {
    let pool = Pool::new(PoolLimits { threads_max: 1, read_threads_max: 1, queue_max: 1 });
    let gate = Gate::close_lane(&pool, Lane::Background);
    assert_eq!(pool.submit(Lane::Background, Box::new(|| {})), Ok(()));
    assert_eq!(pool.submit(Lane::Background, Box::new(|| {})), Err(Full));
    let (done, is_done) = channel();
    pool.submit(Lane::Names, Box::new(move || done.send(()).unwrap())).unwrap();
    is_done.recv().unwrap();
    gate.open();
}

#[test]
fn answers_wake_once_and_only_when_there_are_some() {
    let mut fixture = Fixture::new();
    fixture.write("file", "x");
    fixture.load("/file");
    let mut events = Vec::new();
    fixture.storage.poll(&mut events);
    let wake = fixture.storage.wake_fd().unwrap();
    let mut polled = libc::pollfd { fd: wake, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive, and a descriptor that the storage holds open.
    assert_eq!(unsafe { libc::poll(&raw mut polled, 1, 0) }, 0, "a bell rings with nothing to say");
}

const CHILD: &str = "LEAT_TEST_DESCRIPTORS_CHILD";

/// The limit on descriptors is the process's: this test is a process of its own.
#[test]
fn running_out_of_descriptors_is_said_and_got_over() {
    if std::env::var_os(CHILD).is_none() {
        let name = "storage::tests::pool::running_out_of_descriptors_is_said_and_got_over";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let mut fixture = Fixture::new();
    fixture.write("file", "x");
    fixture.load("/file");
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1), maximum: before.maximum }).unwrap();
    let starved = fixture.load("/file");
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(matches!(starved.found, Found::Unavailable(Cause::DescriptorsExhausted)), "{starved:?}");
    assert_eq!(starved.keep, Keep::No);
    fixture.wait_for(|event| matches!(event, StorageEvent::DescriptorsShort).then_some(()));
    assert_eq!(memory(&fixture.find("/file")), b"x");
}
