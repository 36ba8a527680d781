//! leat's own counters around a window, read from its admin address without holding up the generator.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use leat::top::{Reading, Subject, Table, fetch};

/// Reads twice, when told: its thread waits for the page, not the generator.
pub(crate) struct Meter {
    tell: Option<Sender<()>>,
    readings: Receiver<Option<Reading>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub(crate) fn new(admin: SocketAddr) -> Self {
        let (tell, told) = channel();
        let (send, readings) = channel();
        let thread = std::thread::spawn(move || {
            while told.recv().is_ok() {
                // A server too busy to answer its admin address leaves no figures: the case says so.
                if send.send(fetch(admin).ok()).is_err() {
                    return;
                }
            }
        });
        Self { tell: Some(tell), readings, thread: Some(thread) }
    }

    /// Asks for a reading now.
    pub(crate) fn read(&self) {
        if let Some(tell) = &self.tell {
            // An error means that the thread has ended, which leaves no reading.
            let _ = tell.send(());
        }
    }

    /// What the first reading and the last one say together; none if one is missing.
    pub(crate) fn end(mut self) -> Option<Counters> {
        drop(self.tell.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok()?;
        }
        let readings: Vec<Reading> = self.readings.try_iter().flatten().collect();
        match readings.as_slice() {
            [before, after] => Some(Counters(Table::new(before, after))),
            _ => None,
        }
    }
}

/// What was counted between two readings.
pub(crate) struct Counters(Table);

impl Counters {
    /// A column of `leat top` by its name, for a site and a stage.
    pub(crate) fn of(&self, site: &str, stage: Option<&str>, column: &str) -> Option<f64> {
        let subject = Subject { site: Some(site.to_owned()), stage: stage.map(str::to_owned), ..Subject::default() };
        self.0.value(&subject, column)
    }
}
