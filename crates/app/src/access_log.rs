//! Access logs: how a request is written, and the thread that writes. A worker formats into memory of its own and never waits for the disk:
//! what the thread can't take or write is dropped and counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use leat_host::append::append_to;
use leat_logic::http::HTTP_DATE_BYTES;

use crate::config::{AccessLogFormat, AccessLogTarget, Config};
use crate::log;

/// Blocks of lines that may wait for the thread: 8 MB at the most.
const BLOCKS_MAX: usize = 512;
/// How long the end waits for the thread: as long as a supervisor that has had enough.
const FINISH_WITHIN: Duration = Duration::from_secs(2);
/// A worker passes a block on when it has this many bytes.
const BLOCK_BYTES: usize = 16 * 1024;
/// A field that a client sent is cut to this.
const FIELD_BYTES_MAX: usize = 2048;

enum Order {
    /// `dropped` counts the lines that can't be written.
    Write {
        target: AccessLogTarget,
        block: Vec<u8>,
        dropped: Arc<AtomicU64>,
    },
    /// Sees to it that files are opened anew soon, see [`AccessLogWriter::reopens`].
    Reopen,
    End,
}

/// The thread that writes.
pub struct AccessLogWriter {
    orders: SyncSender<Order>,
    /// Files are to be opened anew, however much waits.
    reopens: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl AccessLogWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start() -> io::Result<AccessLogWriter> {
        let (orders, received) = sync_channel(BLOCKS_MAX);
        let reopens = Arc::new(AtomicBool::new(false));
        let asked = reopens.clone();
        let thread =
            std::thread::Builder::new().name("access log".into()).spawn(move || write_all(&received, &asked))?;
        Ok(AccessLogWriter { orders, reopens, thread })
    }

    /// Writes what there is, and ends the thread if no log stands still. After the workers: what they pass on later is lost.
    pub fn finish(self) {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let wait = move || {
            let _ = self.orders.send(Order::End);
            // A panic there has been told already; the lines are gone.
            let _ = self.thread.join();
            drop(end);
        };
        // Where no thread can be had to wait, nobody does.
        let _ = std::thread::Builder::new().spawn(wait);
        if ended.recv_timeout(FINISH_WITHIN) == Err(RecvTimeoutError::Timeout) {
            log::warning("an access log stands still: the lines that wait to be written are lost");
        }
    }

    /// Has every file opened anew at its next line: the old one may have been moved away.
    pub fn reopen(&self) {
        self.reopens.store(true, Relaxed);
        // A thread that has much to do sees that with its next line.
        let _ = self.orders.try_send(Order::Reopen);
    }

    /// Opens the logs of a configuration.
    ///
    /// # Errors
    /// A file that can't be written, in words.
    pub fn open(&self, config: &Config) -> Result<AccessLogs, String> {
        let mut sites = Vec::new();
        for site in &config.sites {
            if let Some(AccessLogTarget::File(path)) = &site.access_log.path {
                append_to(path).map_err(|error| {
                    format!("site {}: the access log {} can't be written: {error}", site.name, path.display())
                })?;
            }
            sites.push(site.access_log.path.clone().map(|target| (target, site.access_log.format)));
        }
        Ok(AccessLogs { orders: self.orders.clone(), sites })
    }
}

/// A log as the thread knows it.
#[derive(Default)]
struct Log {
    /// `None` until something is to be written.
    file: Option<File>,
    is_failing: bool,
    /// It ends within a line.
    is_cut: bool,
}

impl Log {
    /// Writes lines. `written` counts the bytes that are out, whatever comes of the others.
    fn write(&mut self, target: &AccessLogTarget, block: &[u8], written: &mut usize) -> io::Result<()> {
        if self.file.is_none() {
            let file = match target {
                AccessLogTarget::StandardOutput => File::from(io::stdout().as_fd().try_clone_to_owned()?),
                AccessLogTarget::File(path) => append_to(path)?,
            };
            // It may be a new one.
            self.is_cut &= file.metadata()?.len() > 0;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.is_cut {
            file.write_all(b"\n")?;
            self.is_cut = false;
        }
        while *written < block.len() {
            match file.write(&block[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *written += count;
                    self.is_cut = block[*written - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn write_all(received: &Receiver<Order>, reopens: &AtomicBool) {
    let mut logs: BTreeMap<AccessLogTarget, Log> = BTreeMap::new();
    for order in received {
        if reopens.swap(false, Relaxed) {
            logs.retain(|_, log| {
                log.file = None;
                log.is_failing || log.is_cut
            });
        }
        let (target, block, dropped) = match order {
            Order::End => return,
            Order::Reopen => continue,
            Order::Write { target, block, dropped } => (target, block, dropped),
        };
        let (log, mut written) = (logs.entry(target.clone()).or_default(), 0);
        let result = log.write(&target, &block, &mut written);
        // Said when it begins, not for each block.
        let was_failing = std::mem::replace(&mut log.is_failing, result.is_err());
        if let Err(error) = result {
            // The line that is cut too: its end is among the rest.
            dropped.fetch_add(block[written..].iter().filter(|&&byte| byte == b'\n').count() as u64, Relaxed);
            if !was_failing {
                log::warning(format_args!("the access log {target} can't be written: {error}; its lines are dropped"));
            }
        }
    }
}

/// The logs of one configuration, by the place of their site in it.
pub struct AccessLogs {
    orders: SyncSender<Order>,
    sites: Vec<Option<(AccessLogTarget, AccessLogFormat)>>,
}

impl AccessLogs {
    /// A worker's own end of a site's log, if the site has one. `dropped` counts lines that aren't written: the thread is behind, or can't write.
    #[must_use]
    pub fn handle(&self, place: usize, dropped: &Arc<AtomicU64>) -> Option<AccessLogHandle> {
        let (target, format) = self.sites.get(place)?.clone()?;
        Some(AccessLogHandle {
            orders: self.orders.clone(),
            target,
            format,
            block: RefCell::default(),
            lines: 0.into(),
            dropped: Arc::clone(dropped),
        })
    }
}

/// See [`AccessLogs::handle`].
pub struct AccessLogHandle {
    orders: SyncSender<Order>,
    target: AccessLogTarget,
    format: AccessLogFormat,
    block: RefCell<Vec<u8>>,
    /// Lines in the block.
    lines: std::cell::Cell<u64>,
    dropped: Arc<AtomicU64>,
}

impl AccessLogHandle {
    /// Adds a line.
    pub fn add(&self, record: &Record<'_>) {
        self.add_line(|format, block| match format {
            AccessLogFormat::Combined => record.write_combined(block, false),
            AccessLogFormat::CombinedWithId => record.write_combined(block, true),
            AccessLogFormat::Json => record.write_json(block),
        });
    }

    /// As [`AccessLogHandle::add`], of a connection to a port.
    pub fn add_connection(&self, record: &ConnectionRecord<'_>) {
        self.add_line(|format, block| match format {
            AccessLogFormat::Combined | AccessLogFormat::CombinedWithId => record.write_text(block),
            AccessLogFormat::Json => record.write_json(block),
        });
    }

    fn add_line(&self, write: impl FnOnce(AccessLogFormat, &mut Vec<u8>)) {
        let mut block = self.block.borrow_mut();
        write(self.format, &mut block);
        self.lines.set(self.lines.get() + 1);
        let full = block.len() >= BLOCK_BYTES;
        drop(block);
        if full {
            self.flush();
        }
    }

    /// Passes on what there is.
    pub fn flush(&self) {
        let block = std::mem::take(&mut *self.block.borrow_mut());
        let lines = self.lines.take();
        if block.is_empty() {
            return;
        }
        let order = Order::Write { target: self.target.clone(), block, dropped: self.dropped.clone() };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.orders.try_send(order) {
            self.dropped.fetch_add(lines, Relaxed);
        }
    }
}

impl Drop for AccessLogHandle {
    fn drop(&mut self) {
        self.flush();
    }
}

/// One request.
pub struct Record<'a> {
    /// When it was answered, as in a Date field.
    pub date: &'a [u8; HTTP_DATE_BYTES],
    /// The client.
    pub peer: Option<IpAddr>,
    /// The site.
    pub site: &'a str,
    /// Method, target and version as they came; empty when there was no request.
    pub request_line: &'a [u8],
    /// The Host field.
    pub host: &'a [u8],
    /// Of the reply.
    pub status: u16,
    /// Content bytes of the reply.
    pub body_bytes: u64,
    /// Whether the kernel has taken all of the reply.
    pub is_complete: bool,
    /// From the whole head to the last byte handed to the kernel.
    pub time_us: u64,
    /// Which request of its connection it is, from 1.
    pub request_number: u32,
    /// The Referer field.
    pub referer: &'a [u8],
    /// The User-Agent field.
    pub user_agent: &'a [u8],
    /// What every server calls it that has to do with it.
    pub id: &'a dyn fmt::Display,
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl Record<'_> {
    /// The Combined Log Format: `peer - - [day/month/year:time +0000] "line" status bytes "referer" "user agent"`; ` "id"` may follow.
    fn write_combined(&self, out: &mut Vec<u8>, with_id: bool) {
        push_beginning(out, self.peer, self.date);
        out.push(b'"');
        push_quoted(out, self.request_line);
        push(out, format_args!("\" {} {} \"", self.status, self.body_bytes));
        push_quoted(out, self.referer);
        out.extend_from_slice(b"\" \"");
        push_quoted(out, self.user_agent);
        out.push(b'"');
        if with_id {
            out.extend_from_slice(b" \"");
            push_quoted(out, self.id.to_string().as_bytes());
            out.push(b'"');
        }
        out.push(b'\n');
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(FIELD_BYTES_MAX)]).into_owned();
        let mut words = self.request_line.splitn(3, |&byte| byte == b' ').map(text);
        let mut word = || words.next().unwrap_or_default();
        let line = serde_json::json!({
            "time": json_time(self.date),
            "peer": self.peer.map(|peer| peer.to_string()),
            "site": self.site,
            "host": text(self.host),
            "method": word(),
            "target": word(),
            "version": word(),
            "status": self.status,
            "body_bytes": self.body_bytes,
            "complete": self.is_complete,
            "time_us": self.time_us,
            "request_number": self.request_number,
            "referer": text(self.referer),
            "user_agent": text(self.user_agent),
            "id": self.id.to_string(),
        });
        push(out, format_args!("{line}\n"));
    }
}

/// One connection to a port for another protocol than HTTP, when it has ended.
pub struct ConnectionRecord<'a> {
    /// When it ended, as in a Date field.
    pub date: &'a [u8; HTTP_DATE_BYTES],
    /// The client.
    pub peer: Option<IpAddr>,
    /// The port's name.
    pub port: &'a str,
    /// What is spoken there.
    pub protocol: &'a str,
    /// Who answered.
    pub nodes: &'a [String],
    /// Requests, where they are told apart.
    pub requests: u64,
    /// Bytes from the client.
    pub received_bytes: u64,
    /// Bytes to it.
    pub sent_bytes: u64,
    /// From its beginning to its end.
    pub time_us: u64,
    /// Why it ended.
    pub end: &'a str,
}

impl ConnectionRecord<'_> {
    /// `peer - - [day/month/year:time +0000] "port protocol nodes" requests received sent microseconds "end"`.
    fn write_text(&self, out: &mut Vec<u8>) {
        push_beginning(out, self.peer, self.date);
        let nodes = if self.nodes.is_empty() { "-".to_owned() } else { self.nodes.join(",") };
        push(out, format_args!("\"{} {} {nodes}\" ", self.port, self.protocol));
        push(out, format_args!("{} {} {} ", self.requests, self.received_bytes, self.sent_bytes));
        push(out, format_args!("{} \"{}\"\n", self.time_us, self.end));
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let line = serde_json::json!({
            "time": json_time(self.date),
            "peer": self.peer.map(|peer| peer.to_string()),
            "site": self.port,
            "protocol": self.protocol,
            "nodes": self.nodes,
            "requests": self.requests,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "time_us": self.time_us,
            "end": self.end,
        });
        push(out, format_args!("{line}\n"));
    }
}

/// `peer - - [day/month/year:time +0000] `.
fn push_beginning(out: &mut Vec<u8>, peer: Option<IpAddr>, date: &[u8; HTTP_DATE_BYTES]) {
    match peer {
        Some(peer) => push(out, format_args!("{peer}")),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(&date[5..7]);
    out.push(b'/');
    out.extend_from_slice(&date[8..11]);
    out.push(b'/');
    out.extend_from_slice(&date[12..16]);
    out.push(b':');
    out.extend_from_slice(&date[17..25]);
    out.extend_from_slice(b" +0000] ");
}

/// As RFC 3339 has it.
fn json_time(date: &[u8; HTTP_DATE_BYTES]) -> String {
    let month = MONTHS.iter().position(|month| month[..] == date[8..11]).map_or(1, |place| place + 1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}-{month:02}-{}T{}Z", text(&date[12..16]), text(&date[5..7]), text(&date[17..25]))
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory can't fail.
    let _ = out.write_fmt(text);
}

/// What a client sent can't end a field or a line; an empty field is a dash.
fn push_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        out.push(b'-');
    }
    for &byte in &bytes[..bytes.len().min(FIELD_BYTES_MAX)] {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => push(out, format_args!("\\x{byte:02X}")),
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            date: b"Sat, 21 Nov 2026 02:16:57 GMT",
            peer: Some("192.0.2.7".parse().unwrap()),
            site: "docs",
            request_line: b"GET /a\"b?c HTTP/1.1",
            host: b"docs.example.org",
            status: 200,
            body_bytes: 612,
            is_complete: true,
            time_us: 42,
            request_number: 3,
            referer: b"",
            user_agent: b"x\ny\xff",
            id: &"0-1f00c-3",
        }
    }

    #[test]
    fn combined() {
        let mut out = Vec::new();
        record().write_combined(&mut out, false);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "192.0.2.7 - - [21/Nov/2026:02:16:57 +0000] \"GET /a\\x22b?c HTTP/1.1\" 200 612 \"-\" \"x\\x0Ay\\xFF\"\n"
        );
    }

    #[test]
    fn combined_with_id() {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        record().write_combined(&mut short, false);
        record().write_combined(&mut long, true);
        let short = String::from_utf8(short).unwrap();
        assert_eq!(String::from_utf8(long).unwrap(), format!("{} \"0-1f00c-3\"\n", short.trim_end()));
    }

    #[test]
    fn json() {
        let mut out = Vec::new();
        record().write_json(&mut out);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&line["time"], &line["id"]), (&"2026-11-21T02:16:57Z".into(), &"0-1f00c-3".into()));
        assert_eq!((&line["method"], &line["target"]), (&"GET".into(), &"/a\"b?c".into()));
        assert_eq!(line["user_agent"], "x\ny\u{fffd}");
    }

    /// A writer whose thread stands still as nobody reads the pipe that it writes to, and for which as much waits as may.
    fn standing_still(name: &str) -> (AccessLogWriter, std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("leat-access-log-{}-{name}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = File::options().read(true).write(true).open(&path).unwrap();
        let writer = AccessLogWriter::start().unwrap();
        let (target, dropped) = (AccessLogTarget::File(path.clone()), Arc::default());
        let mut left = 64 * 1024 / BLOCK_BYTES + 1 + BLOCKS_MAX;
        let began = std::time::Instant::now();
        while left > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "a pipe takes less than 64 KB here");
            let block = vec![b'\n'; BLOCK_BYTES];
            let order = Order::Write { target: target.clone(), block, dropped: Arc::clone(&dropped) };
            match writer.orders.try_send(order) {
                Ok(()) => left -= 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        (writer, path, reader)
    }

    /// Does what mustn't wait for long.
    fn promptly<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(act()));
        is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for the log")
    }

    #[test]
    fn the_end_waits_for_no_log_that_stands_still() {
        let (writer, path, _reader) = standing_still("end");
        promptly(move || writer.finish());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_are_opened_anew_however_far_behind_the_thread_is() {
        let (writer, path, mut reader) = standing_still("reopen");
        std::fs::remove_file(&path).unwrap();
        let writer = promptly(move || {
            writer.reopen();
            writer
        });
        std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        writer.finish();
        assert!(std::fs::metadata(&path).unwrap().len() > 0);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_log_that_cannot_keep_up_drops_lines_and_says_how_many() {
        let (orders, received) = sync_channel(1);
        let handle = AccessLogHandle {
            orders,
            target: AccessLogTarget::StandardOutput,
            format: AccessLogFormat::Combined,
            block: RefCell::default(),
            lines: 0.into(),
            dropped: Arc::default(),
        };
        for (lines, dropped) in [(1, 0), (2, 2), (3, 5)] {
            (0..lines).for_each(|_| handle.add(&record()));
            handle.flush();
            assert_eq!(handle.dropped.load(Relaxed), dropped);
        }
        drop(received);
    }
}
