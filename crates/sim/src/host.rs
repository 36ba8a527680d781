//! The worker's clocks, which are the world's: time goes on only where something works or waits. What its sockets do is `R`'s to say.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use leat::worker::Host;
use leat_host::reactor::Reactor;
use leat_logic::time::{Instant, UnixTime};

use crate::files::OpenFile;
use crate::programs::SimPrograms;
use crate::storage::SimStorage;
use crate::world::World;

/// See the module.
pub(crate) struct SimHost<R> {
    world: Rc<RefCell<World>>,
    reactor: PhantomData<R>,
}

impl<R> SimHost<R> {
    pub(crate) fn new(world: &Rc<RefCell<World>>) -> SimHost<R> {
        SimHost { world: world.clone(), reactor: PhantomData }
    }
}

impl<R: Reactor<File = Rc<OpenFile>>> Host for SimHost<R> {
    type Reactor = R;
    type Storage = SimStorage;
    type Programs = SimPrograms;

    fn now(&self) -> Instant {
        self.world.borrow().agenda.instant()
    }

    fn wall(&self) -> UnixTime {
        self.world.borrow().agenda.wall()
    }

    fn processor_time(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().worked_ns)
    }

    /// Pretend reads are the disk's alone: the worker never begins one itself.
    fn disk_bytes(&self) -> u64 {
        0
    }

    fn burn(&self, time: Duration) -> Duration {
        self.world.borrow_mut().work(time.as_nanos() as u64);
        time
    }
}
