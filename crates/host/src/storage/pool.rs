//! Threads that wait for disks, so that workers don't: one bounded pool for the whole process.
//!
//! Three lanes, so that what is slow can't hold up what is quick: names and small files; large reads, which never take all threads; and
//! hashes that nobody waits for, which have one thread of their own that yields to everything.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::thread::CpuSet;

use super::hashes::Hashes;
use super::limits;
use super::priority;
use crate::lock::lock;

type Job = Box<dyn FnOnce() + Send>;

/// What a job has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Names, attributes, small files.
    Names = 0,
    /// Large files into memory.
    Reads = 1,
    /// Nobody is waiting.
    Background = 2,
}

/// How large a pool may get.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Threads in all; at least 2 for large reads not to hold up names.
    pub threads_max: usize,
    /// Threads that may be busy with large reads at a time.
    pub read_threads_max: usize,
    /// Jobs that wait for a thread, in each lane.
    pub queue_max: usize,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits {
            threads_max: limits::POOL_THREADS_MAX,
            read_threads_max: limits::POOL_READ_THREADS_MAX,
            queue_max: limits::POOL_QUEUE_MAX,
        }
    }
}

/// A job that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Default)]
struct State {
    queues: [VecDeque<Job>; 3],
    reads_running: usize,
    threads: usize,
    idle: usize,
    has_background_thread: bool,
    closing: bool,
}

struct Shared {
    limits: PoolLimits,
    processors: Option<CpuSet>,
    state: Mutex<State>,
    work: Condvar,
    background_work: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// See the module. One for each process, shared by its workers; its threads end after the last share is dropped.
pub struct Pool {
    shared: Arc<Shared>,
    pub(super) hashes: Arc<Hashes>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool with no thread yet. Its threads will run where the calling thread may: to be called before workers are pinned.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Arc<Pool> {
        let shared = Arc::new(Shared {
            limits,
            processors: rustix::thread::sched_getaffinity(None).ok(),
            state: Mutex::default(),
            work: Condvar::new(),
            background_work: Condvar::new(),
        });
        Arc::new(Pool { shared, hashes: Arc::default() })
    }

    /// Jobs that wait for a thread: for metrics.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.shared.state().queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn submit(&self, lane: Lane, job: Job) -> Result<(), Full> {
        let mut state = self.shared.state();
        if state.queues[lane as usize].len() >= self.shared.limits.queue_max {
            return Err(Full);
        }
        if lane == Lane::Background {
            if !state.has_background_thread {
                state.has_background_thread = self.start(run_background);
            }
            if !state.has_background_thread {
                return Err(Full);
            }
            state.queues[lane as usize].push_back(job);
            self.shared.background_work.notify_one();
            return Ok(());
        }
        let queued = state.queues[Lane::Names as usize].len() + state.queues[Lane::Reads as usize].len();
        if state.idle <= queued && state.threads < self.shared.limits.threads_max {
            if self.start(run) {
                state.threads += 1;
            } else if state.threads == 0 {
                return Err(Full);
            }
        }
        state.queues[lane as usize].push_back(job);
        self.shared.work.notify_one();
        Ok(())
    }

    fn start(&self, run: fn(&Shared)) -> bool {
        let shared = self.shared.clone();
        let builder = std::thread::Builder::new().name("leat-storage".into()).stack_size(limits::POOL_STACK_BYTES);
        let body = move || {
            // The worker that starts a thread is pinned to its processor, where the thread would be in its way.
            if let Some(processors) = &shared.processors {
                let _ = rustix::thread::sched_setaffinity(None, processors);
            }
            run(&shared);
        };
        builder.spawn(body).is_ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.work.notify_all();
        self.shared.background_work.notify_all();
    }
}

fn run(shared: &Shared) {
    priority::yield_to_workers();
    let reads_max = shared.limits.read_threads_max.min(shared.limits.threads_max.saturating_sub(1)).max(1);
    let mut state = shared.state();
    while !state.closing {
        let read = |state: &mut State| {
            let job =
                if state.reads_running < reads_max { state.queues[Lane::Reads as usize].pop_front() } else { None };
            state.reads_running += usize::from(job.is_some());
            job.map(|job| (job, true))
        };
        let name = state.queues[Lane::Names as usize].pop_front().map(|job| (job, false));
        let Some((job, is_read)) = name.or_else(|| read(&mut state)) else {
            state.idle += 1;
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            continue;
        };
        drop(state);
        job();
        state = shared.state();
        state.reads_running -= usize::from(is_read);
    }
}

fn run_background(shared: &Shared) {
    priority::yield_to_everything();
    let mut state = shared.state();
    while !state.closing {
        if let Some(job) = state.queues[Lane::Background as usize].pop_front() {
            drop(state);
            job();
            state = shared.state();
        } else {
            state = shared.background_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
