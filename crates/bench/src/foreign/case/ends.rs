//! Clients that end in other ways than after a reply: half-closed before it, in the middle of it, or while they still send. Whether each server does by way of a
//! dispatcher what it does without.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::experiment::{Case, Samples};
use crate::foreign::bench::{Bench, direct, vip};
use crate::result::Mark;
use crate::server::Server;
use crate::workload::mix::{Body, CLOSE};

const NAME: &str = "ends";
/// Of each kind.
const TIMES: u32 = 30;
const PATIENCE: Duration = Duration::from_secs(20);
const UPLOAD_BYTES: usize = 1 << 20;
/// So much of a reply of 100 MB is read before its client is gone; what it hasn't read by then has it reset.
const ABORT_BYTES: u64 = 300_000;
const WAYS: [(&str, Way); 3] =
    [("half-closed", half_closed), ("reset in the reply", reset), ("upload of 1 MB", upload)];

/// Has something happen at a server once, and says what became of it.
type Way = fn(&Bench, SocketAddr) -> String;

pub(super) struct Ends;

impl Case<Bench> for Ends {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "clients that end their side first, break off, or send much: as without leat"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for server in bench.wanted_servers() {
            if let Err(error) = try_server(bench, server.as_ref()) {
                bench.records.note(NAME, &format!("{}: {error}", server.name()));
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mark = |point: &str, server: String| {
            let value = samples.median(NAME, point, &server, "others");
            Mark {
                case: format!("{NAME}: {point}"),
                mark: format!("of {TIMES} times none otherwise than without leat"),
                value,
                limit: Some(0.0),
                unit: String::new(),
                met: value == Some(0.0),
                note: String::new(),
                subject: server,
            }
        };
        let of = |point: &'static str| samples.servers(NAME).into_iter().map(move |server| mark(point, server));
        WAYS.iter().flat_map(|&(point, _)| of(point)).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("times", "times", 0), ("others", "not as without leat", 0)]
    }
}

fn try_server(bench: &mut Bench, server: &dyn Server) -> io::Result<()> {
    let _placed = bench.place(server, 1)?;
    for (point, way) in WAYS {
        let seen: Vec<(String, String)> = bench.at_client(|| {
            let once = |_| (way(bench, direct()), way(bench, vip()));
            Ok((0..TIMES).map(once).collect())
        })?;
        // What a server does that answers sometimes so and sometimes so isn't leat's doing.
        let is_other = |(_, got): &&(String, String)| seen.iter().all(|(expected, _)| expected != got);
        let others: Vec<&String> = seen.iter().filter(is_other).map(|(_, got)| got).collect();
        let (at, name) = ((NAME, point, 0), server.name());
        bench.records.record(at, name, "times", f64::from(TIMES));
        bench.records.record(at, name, "others", others.len() as f64);
        let text = match others.first() {
            Some(other) => format!("{name}, {point}: {}, and by way of leat: {other}", seen[0].0),
            None => format!("{name}, {point}: {}", seen[0].0),
        };
        bench.records.note(NAME, &text);
    }
    Ok(())
}

/// The client says all it has to say, and ends its side before the reply comes.
fn half_closed(bench: &Bench, address: SocketAddr) -> String {
    said(ask(address, "/64k").and_then(|mut stream| {
        stream.shutdown(Shutdown::Write)?;
        hear(bench, &mut stream, "64k")
    }))
}

/// The client is gone in the middle of a reply. Another one then has its own.
fn reset(bench: &Bench, address: SocketAddr) -> String {
    said(ask(address, "/100m").and_then(|mut stream| {
        let read = io::copy(&mut (&mut stream).take(ABORT_BYTES), &mut io::sink())?;
        drop(stream);
        let mut next = ask(address, "/64k")?;
        Ok(format!("{read} bytes, then {}", hear(bench, &mut next, "64k")?))
    }))
}

/// The client sends what no server here wants but the one behind Squid, and hears what it thinks of it.
fn upload(_bench: &Bench, address: SocketAddr) -> String {
    let tell = || {
        let mut stream = connect(address)?;
        let head = format!("POST /1k HTTP/1.1\r\nHost: localhost\r\n{CLOSE}Content-Length: {UPLOAD_BYTES}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        // A server may answer and close before it has heard it all.
        let _ = stream.write_all(&vec![b'u'; UPLOAD_BYTES]);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        Ok(status(&reply))
    };
    said(tell())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(address: SocketAddr, path: &str) -> io::Result<TcpStream> {
    let mut stream = connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n").as_bytes())?;
    Ok(stream)
}

/// Status of a reply, and whether its body is the file's.
fn hear(bench: &Bench, stream: &mut TcpStream, file: &str) -> io::Result<String> {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let body = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(&[][..], |end| &reply[end + 4..]);
    let is_right = bench
        .content(file)
        .is_some_and(|(bytes, content)| body.len() as u64 == bytes && Body::Seeded(content).matches(0, body));
    Ok(format!("{}, {}", status(&reply), if is_right { "right" } else { "wrong" }))
}

fn status(reply: &[u8]) -> String {
    let line = reply.get(9..12).unwrap_or_default();
    if line.is_empty() { "no reply".to_owned() } else { String::from_utf8_lossy(line).into_owned() }
}

fn said(outcome: io::Result<String>) -> String {
    outcome.unwrap_or_else(|error| format!("{:?}", error.kind()))
}
