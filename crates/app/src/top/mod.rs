//! `leat top`: what the running server does, for each site, stage and worker, in the terminal or for a script.
//!
//! Only the metrics page of the admin address is read: what is shown here can be had by Prometheus too. [`fetch`] gets the page, [`page`]
//! reads it, [`column`] says what is shown, [`table`] in which order, [`view`] how; here are the command and the terminal.

mod column;
mod fetch;
mod page;
mod table;
mod text;
mod view;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use leat_host::process::{Notice, hear_notices};
use ratatui::crossterm::event::{self, Event};

use crate::console;

pub use column::Subject;
pub use fetch::{FetchError, Reading, fetch};
pub use page::{Page, PageError, Sample};
pub use table::{Grouping, Sorting, Table, sort_names};
use view::View;

/// Longest time for which a key, a signal or a new reading waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// leat's admin address.
    pub address: SocketAddr,
    /// Time between readings.
    pub interval: Duration,
    /// What stands below each site.
    pub grouping: Grouping,
    /// The order of sites.
    pub sorting: Sorting,
    /// Where it goes.
    pub output: Output,
}

/// Where the numbers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The terminal, again and again.
    Terminal,
    /// Standard output, once, as a table.
    Plain,
    /// Standard output, once, as a line of JSON with every row.
    Json,
}

/// Runs the command to its end.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    let done = match options.output {
        Output::Terminal => {
            in_terminal(options).map_err(|error| format!("the terminal can't be used: {error}. `--once` needs none"))
        }
        Output::Plain | Output::Json => once(options).map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::complain(format_args!("leat top: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn once(options: &Options) -> Result<(), FetchError> {
    let before = fetch(options.address)?;
    std::thread::sleep(options.interval);
    let table = Table::new(&before, &fetch(options.address)?);
    let text = match options.output {
        Output::Json => format!("{}\n", table.json()),
        _ => text::plain(&table, options.grouping, options.sorting),
    };
    console::print(text);
    Ok(())
}

fn in_terminal(options: &Options) -> io::Result<()> {
    let is_ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_ended);
    // A signal from elsewhere must not leave the terminal as it is now.
    hear_notices(move |notice| {
        if matches!(notice, Notice::Stop | Notice::Interrupt | Notice::Reload) {
            end.store(true, Ordering::Relaxed);
        }
    })?;
    let readings = read_again_and_again(options.address, options.interval)?;
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, options, &readings, &is_ended);
    ratatui::try_restore()?;
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    options: &Options,
    readings: &Receiver<Result<Reading, FetchError>>,
    is_ended: &AtomicBool,
) -> io::Result<()> {
    let mut view = View::new(options.address, options.grouping, options.sorting);
    let mut is_stale = true;
    while !is_ended.load(Ordering::Relaxed) {
        for reading in readings.try_iter() {
            view.take(reading);
            is_stale = true;
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| view.draw(frame))?;
        }
        if event::poll(LOOK_INTERVAL)? {
            is_stale = true;
            if let Event::Key(key) = event::read()?
                && view.handle_key(key)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Fetches on a thread of its own, so that a server that doesn't answer holds up no key. It ends when nobody listens any more.
fn read_again_and_again(address: SocketAddr, interval: Duration) -> io::Result<Receiver<Result<Reading, FetchError>>> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("readings".into()).spawn(move || {
        let mut due = Instant::now();
        while send.send(fetch(address)).is_ok() {
            due = (due + interval).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    })?;
    Ok(receive)
}
