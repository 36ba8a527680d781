//! The engine's workers: started on threads of their own with a kernel to run on, given their sockets, retired.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Once};
use std::time::Duration;

use leat_host::program::LocalPrograms;
use leat_host::reactor::{self, Epoll, IoUring};
use leat_host::reuseport::{self, Share};
use leat_host::storage::{self, DiskStorage, Pool, PoolLimits, Storage};
use leat_host::{channel, clock, process, processors};
use leat_logic::time::{Instant, UnixTime};

use super::{Engine, Event};
use crate::config::{Config, Reactor, Role};
use crate::listener::ListenerName;
use crate::log;
use crate::metrics::WorkerMetrics;
use crate::passage::{self, Door, Doors, Passage};
use crate::worker::control::{Control, Mailbox};
use crate::worker::{Host, Setup, Worker, worker_number};

/// Handshakes that began before a worker was told to go end within this time, or not at all.
const RETIRE_ACCEPT: Duration = Duration::from_secs(2);

/// A worker as the engine sees it.
pub(super) struct Running {
    pub(super) number: usize,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) retiring: bool,
    /// Addresses of which it has a socket.
    listening: Vec<ListenerName>,
}

impl Running {
    /// Where connections of other engines come in.
    pub(super) fn door(&self) -> Door {
        (worker_number(self.number), self.mailbox.clone())
    }
}

/// A worker that has a thread and all else that the kernel could refuse. Dropped, it ends.
pub(super) struct Prepared {
    number: usize,
    mailbox: Arc<Mailbox>,
    is_ready: Receiver<io::Result<()>>,
    begin: Sender<Setup>,
}

/// What a worker stands on.
struct Ground {
    storage: DiskStorage,
    reactor: AnyReactor,
}

enum AnyReactor {
    IoUring(Box<IoUring>),
    Epoll(Box<Epoll>),
}

impl Ground {
    fn new(pool: Arc<Pool>, reactor: Reactor, fell_back: &Once) -> io::Result<Ground> {
        let storage = DiskStorage::new(pool)?;
        let ring = match reactor {
            Reactor::IoUring => IoUring::new().map(Some).or_else(|error| {
                fell_back.call_once(|| {
                    let is_older = error.kind() == io::ErrorKind::InvalidInput;
                    let cure = if is_older { "; what leat needs of it Linux 6.1 has" } else { "" };
                    log::warning(format_args!("io_uring is refused ({error}{cure}): the workers use epoll"));
                });
                Ok::<_, io::Error>(None)
            })?,
            Reactor::Epoll => None,
        };
        let reactor = match ring {
            Some(ring) => AnyReactor::IoUring(Box::new(ring)),
            None => AnyReactor::Epoll(Box::new(Epoll::new()?)),
        };
        Ok(Ground { storage, reactor })
    }
}

/// The kernel as a worker's host.
struct Kernel<R> {
    reactor: std::marker::PhantomData<R>,
}

impl<R: reactor::Reactor<File = <DiskStorage as Storage>::File>> Host for Kernel<R> {
    type Reactor = R;
    type Storage = DiskStorage;
    type Programs = LocalPrograms;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn wall(&self) -> UnixTime {
        clock::wall()
    }

    fn burn(&self, time: Duration) -> Duration {
        clock::burn(time)
    }

    fn processor_time(&self) -> Duration {
        clock::thread_processor_time()
    }

    fn disk_bytes(&self) -> u64 {
        storage::disk_bytes()
    }
}

impl Engine<'_> {
    /// Copies of the sockets at a worker's place, of addresses that it doesn't listen on yet. The admin's address has one, for the first.
    pub(super) fn new_listeners(&mut self, place: usize) -> io::Result<Vec<(ListenerName, OwnedFd)>> {
        let worker = &mut self.workers[place];
        worker.listening.retain(|name| self.sockets.contains_key(name));
        let mut found = Vec::new();
        for (&name, sockets) in &self.sockets {
            if let (Some(socket), false) = (sockets.get(place), worker.listening.contains(&name)) {
                found.push((name, socket.try_clone()?));
                worker.listening.push(name);
            }
        }
        Ok(found)
    }

    /// Starts or retires workers until there are as many as configured. Working ones are always the first in the list, so that a worker's
    /// place is that of its sockets. An engine that has just started has one for each socket: the engine before may have had more workers, and what
    /// waits in a socket's queue is somebody's. [`Engine::retire_surplus`] has those go that are too many.
    pub(super) fn arrange_workers(&mut self, config: &Arc<Config>, prepared: Vec<Prepared>) {
        let wanted = self.workers_wanted(config, self.sockets.values().map(Vec::len).max());
        let mut working = self.workers.iter().filter(|worker| !worker.retiring).count();
        if working > wanted {
            self.retire_from(wanted, config);
            working = wanted;
        }
        // Sockets outlive their places: those beyond the last have nobody soon, and the supervisor's copies of some that are closed here may not be yet.
        let sockets = self.sockets.values().map(Vec::len).max().unwrap_or_default();
        let is_shared_out = self.share.first.is_some() || sockets > wanted;
        self.share_out(is_shared_out.then_some(sockets.min(wanted) as u32), config);
        let added = prepared.iter().map(|worker| worker.number);
        let numbers = self.workers[..working].iter().map(|worker| worker.number).chain(added).map(worker_number);
        let numbers: Vec<u16> = numbers.collect();
        let staying = &numbers[..numbers.len().min(config.workers)];
        self.shared.set_workers(staying.into());
        let retiring = self.workers[working..].iter().map(|worker| worker_number(worker.number));
        self.shared.set_homes(numbers.iter().copied().chain(retiring).collect());
        for Prepared { number, mailbox, begin, .. } in prepared {
            let metrics = Arc::new(WorkerMetrics::new(number));
            self.metrics.add_worker(metrics.clone());
            let setup = Setup {
                mailbox: mailbox.clone(),
                metrics: metrics.clone(),
                server_metrics: self.metrics.clone(),
                config: config.clone(),
                shared: self.shared.clone(),
                aggregates: self.aggregates.clone(),
                names: self.names.clone(),
                desk: self.desk.clone(),
                seed: process::random_number(),
            };
            // It waits for this.
            let _ = begin.send(setup);
            self.workers.insert(working, Running { number, mailbox, metrics, retiring: false, listening: Vec::new() });
            working += 1;
        }
    }

    /// One has ended.
    pub(super) fn worker_ended(&mut self, number: usize) -> io::Result<()> {
        for ended in self.workers.extract_if(.., |running| running.number == number) {
            ended.metrics.ended.set(1);
        }
        self.shared.set_homes(self.workers.iter().map(|worker| worker_number(worker.number)).collect());
        self.release_sockets()
    }

    /// Has workers go that are there for their sockets only, or for what nodes have of their numbers: they have them by now.
    pub(super) fn retire_surplus(&mut self, config: &Config) {
        if self.workers.iter().filter(|worker| !worker.retiring).count() > config.workers {
            self.retire_from(config.workers, config);
        }
    }

    fn retire_from(&mut self, first: usize, config: &Config) {
        let now = clock::now();
        let (accept_until, deadline) = (now.after(RETIRE_ACCEPT), now.after(config.limits.drain_timeout));
        let heirs: Vec<_> = self.workers[..first].iter().map(|worker| worker.mailbox.clone()).collect();
        self.share_out(Some(first as u32), config);
        let going: Vec<_> = self.workers.iter().skip(first).filter(|worker| !worker.retiring).collect();
        let going = going.into_iter().map(|worker| worker.mailbox.clone()).collect();
        let doors = self.workers[..first].iter().map(Running::door).collect();
        let passage = self.passage_within(going, doors);
        if let Err(error) = &passage {
            log::warning(format_args!("workers that go keep what is under way until it has ended: {error}"));
        }
        let passage = passage.ok();
        for worker in self.workers.iter_mut().skip(first).filter(|worker| !worker.retiring) {
            worker.retiring = true;
            let (heirs, passage) = (heirs.clone(), passage.clone());
            worker.mailbox.send(Control::Retire { accept_until, deadline, heirs, passage });
        }
    }

    /// A way from workers to others of this engine, as to those of the next one.
    fn passage_within(&mut self, from: Vec<Arc<Mailbox>>, to: Vec<Door>) -> io::Result<Passage> {
        let (ours, theirs) = UnixStream::pair()?;
        let doors = Arc::new(Doors::default());
        doors.set(to);
        passage::take(self.number_passage(), theirs, doors)?;
        passage::give(self.number_passage(), ours, from)
    }

    /// Has new connections go only to the first workers' sockets, or to all; at a node, to those that they name.
    fn share_out(&mut self, first: Option<u32>, config: &Config) {
        self.share =
            Share { first, is_named: config.role == Role::Node && config.cluster.born && !config.cluster.is_spread() };
        for (name, sockets) in &self.sockets {
            let Some(member) = sockets.first().filter(|_| sockets.len() > 1) else { continue };
            if let Err(error) = reuseport::share_out(member, self.share) {
                log::warning(format_args!(
                    "{name}: connections can't be shared out among workers: some may be reset when a worker goes ({error})"
                ));
            }
        }
    }

    /// Once the last retiring worker has ended: its sockets are closed here, and the supervisor may close its own.
    pub(super) fn release_sockets(&mut self) -> io::Result<()> {
        if self.draining || self.workers.iter().any(|worker| worker.retiring) {
            return Ok(());
        }
        let working = self.workers.len();
        for (name, sockets) in &mut self.sockets {
            if sockets.len() > working {
                sockets.truncate(working);
                channel::send(&self.channel, &format!("released {name} {working}"), &[])?;
            }
        }
        // The supervisor's copies are open for a moment more: until they are closed, their queues would be nobody's. So the steering stays.
        Ok(())
    }

    /// Workers that a configuration wants and that aren't there yet, each with all that it needs of the kernel: without them, it can't be put in force.
    pub(super) fn prepare_workers(&mut self, config: &Config) -> io::Result<Vec<Prepared>> {
        let pool = self.pool.get_or_insert_with(|| {
            Pool::new(PoolLimits { threads_max: config.files.io_threads, ..PoolLimits::default() })
        });
        let pool = pool.clone();
        let mut sockets: BTreeMap<ListenerName, usize> = BTreeMap::new();
        let has = self.sockets.iter().map(|(name, sockets)| (name, sockets.len()));
        for (&name, count) in has.chain(self.offered.iter().map(|(name, sockets)| (name, sockets.len()))) {
            *sockets.entry(name).or_default() += count;
        }
        let working = self.workers.iter().filter(|worker| !worker.retiring).count();
        let wanted = self.workers_wanted(config, sockets.values().copied().max());
        // Others know workers by their numbers, and find them at ports that are counted by these: a number is used again as soon as it's free.
        let is_free = |number: &usize| !self.workers.iter().any(|worker| worker.number == *number);
        self.prepare_numbers(config, (working..wanted).zip((0..).filter(is_free)), &pool)
    }

    /// More of them at a dispatcher's first configuration: of other numbers than are in use now an earlier process may have had connections, which nodes
    /// still have.
    pub(super) fn prepare_left(&self, config: &Config, prepared: &mut Vec<Prepared>) {
        let (true, Some(pool)) = (self.config.is_none() && config.keeps_books(), &self.pool) else { return };
        let is_there = |number: &usize| prepared.iter().any(|worker| worker.number == *number);
        let left = self.shared.homes_left(config).into_iter().map(usize::from).filter(|number| !is_there(number));
        match self.prepare_numbers(config, (prepared.len()..).zip(left), pool) {
            Ok(more) => prepared.extend(more),
            Err(error) => log::warning(format_args!(
                "connections are lost that nodes have of an earlier process, as its workers can't be started again: {error}"
            )),
        }
    }

    /// Workers at such places, and with such numbers.
    fn prepare_numbers(
        &self,
        config: &Config,
        numbers: impl Iterator<Item = (usize, usize)>,
        pool: &Arc<Pool>,
    ) -> io::Result<Vec<Prepared>> {
        let processors = processors::available()?;
        let mut prepared = Vec::new();
        for (place, number) in numbers {
            let processor = processors.get(place % processors.len().max(1)).copied();
            prepared.push(self.prepare_worker(number, processor, pool.clone(), config.reactor)?);
        }
        for worker in &prepared {
            worker.is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(prepared)
    }

    /// How many are to work, where the address with the most sockets has so many.
    fn workers_wanted(&self, config: &Config, sockets: Option<usize>) -> usize {
        config.workers.max(sockets.filter(|_| self.workers.is_empty()).unwrap_or_default())
    }

    fn prepare_worker(
        &self,
        number: usize,
        processor: Option<usize>,
        pool: Arc<Pool>,
        reactor: Reactor,
    ) -> io::Result<Prepared> {
        let mailbox = Arc::new(Mailbox::new()?);
        let (sender, fell_back) = (self.sender.clone(), self.fell_back.clone());
        let (begin, begun) = mpsc::channel::<Setup>();
        let (tell, is_ready) = mpsc::channel();
        std::thread::Builder::new().name(format!("worker {number}")).spawn(move || {
            if let Some(processor) = processor
                && let Err(error) = processors::pin(processor)
            {
                log::warning(format_args!("worker {number} isn't pinned to processor {processor}: {error}"));
            }
            let ground = match Ground::new(pool, reactor, &fell_back) {
                Ok(ground) => ground,
                Err(error) => {
                    // Nobody waits for it any more if another has failed before.
                    let _ = tell.send(Err(error));
                    return;
                }
            };
            let _ = tell.send(Ok(()));
            // Else the configuration isn't used.
            let Ok(setup) = begun.recv() else { return };
            let (programs, storage) = (LocalPrograms::new(), ground.storage);
            let result = match ground.reactor {
                AnyReactor::IoUring(reactor) => {
                    let host = Kernel { reactor: std::marker::PhantomData::<IoUring> };
                    Worker::new(host, *reactor, storage, programs, setup).run()
                }
                AnyReactor::Epoll(reactor) => {
                    let host = Kernel { reactor: std::marker::PhantomData::<Epoll> };
                    Worker::new(host, *reactor, storage, programs, setup).run()
                }
            };
            // Nobody listens any more: the engine is ending.
            let _ = sender.send(Event::WorkerEnded { worker: number, result });
        })?;
        Ok(Prepared { number, mailbox, is_ready, begin })
    }
}
