//! How long a connection is nobody's: from its freeze at the dispatcher until the dispatcher has heard that a node has it, by the dispatcher's own
//! histogram, beside a socket round trip between the two machines' processors.
//!
//! Each request's head comes in two packets, so that its connection begins at the dispatcher, and is moved by `TCP_REPAIR`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::at_most;
use crate::experiment::samples::median;
use crate::experiment::{Case, Samples};
use crate::handoff::bench::{Bench, LEAT, NODES, SIZES, vip};
use crate::lab::asking::ask_in_two_packets;
use crate::lab::{CLIENT, CLIENT_CORE, DISPATCHER, node_core};
use crate::result::Mark;

const NAME: &str = "ready";
/// Connections in a second of the round's length.
const CONNECTIONS_PER_S: f64 = 200.0;
/// What a node may take to make a socket of an image, beside the way there and back.
const ALLOWED_US: f64 = 30.0;
const ROUND_TRIPS: usize = 2_000;
/// As long as an image of an idle connection, about.
const MESSAGE_BYTES: usize = 300;
/// Any that nothing listens on.
const PORT: u16 = 9_998;
/// As in `lab::processors`.
const DISPATCHER_CORE: usize = 0;

pub(super) struct Ready;

impl Case<Bench> for Ready {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "from a connection's freeze until the dispatcher hears that a node has it, one connection at a time"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let count = (bench.options.run.seconds * CONNECTIONS_PER_S) as usize;
        for round in 0..bench.options.run.rounds {
            let at = (NAME, "", round);
            let round_trip_us = round_trip_us(bench)?;
            let before = bench.handoffs()?;
            bench.lab.at(CLIENT, CLIENT_CORE, || {
                (0..count).try_for_each(|_| {
                    let mut stream = TcpStream::connect(vip())?;
                    ask_in_two_packets(&mut stream, SIZES[0].wanted()).map(drop)
                })
            })?;
            let handoffs = bench.handoffs()?.since(before);
            bench.records.record(at, LEAT, "handed", handoffs.count);
            bench.records.record(at, LEAT, "mean_us", handoffs.mean_us());
            bench.records.record(at, LEAT, "round_trip_us", round_trip_us);
            bench.records.record(at, LEAT, "beyond_us", handoffs.mean_us() - round_trip_us);
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let (beyond, handed) = (samples.median(NAME, "", LEAT, "beyond_us"), samples.median(NAME, "", LEAT, "handed"));
        let doubt = if handed.is_some_and(|handed| handed < 1.0) { "none was moved" } else { "" };
        let text = "a round trip between the processes and 30 us at most, the mean";
        vec![at_most((NAME, ""), text, beyond, Some(ALLOWED_US), "us", doubt.to_owned())]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("handed", "moved", 0),
            ("mean_us", "freeze to ready, us", 1),
            ("round_trip_us", "a round trip, us", 1),
            ("beyond_us", "beyond it", 1),
        ]
    }
}

/// Between two threads that sleep in between, on the processors of dispatcher and node, in their namespaces.
fn round_trip_us(bench: &Bench) -> io::Result<f64> {
    let (name, address) = NODES[0];
    let address = SocketAddr::new(address.parse().map_err(io::Error::other)?, PORT);
    let listener = bench.lab.at(name, node_core(), || TcpListener::bind(address))?;
    thread::scope(|scope| {
        let echo = scope.spawn(|| bench.lab.at(name, node_core(), || echo(&listener)));
        let times = bench.lab.at(DISPATCHER, DISPATCHER_CORE, || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut message = [0; MESSAGE_BYTES];
            (0..ROUND_TRIPS)
                .map(|_| {
                    let began = Instant::now();
                    stream.write_all(&message)?;
                    stream.read_exact(&mut message)?;
                    // So that both sleep before the next one, as processes that are handed connections now and then do.
                    let time = began.elapsed();
                    thread::sleep(Duration::from_micros(200));
                    Ok(time.as_secs_f64() * 1e6)
                })
                .collect::<io::Result<Vec<_>>>()
        });
        echo.join().map_err(|_| io::Error::other("the echo panicked"))??;
        Ok(median(times?).unwrap_or_default())
    })
}

/// Until the other side ends.
fn echo(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut message = [0; MESSAGE_BYTES];
    while stream.read(&mut message[..1])? > 0 {
        stream.read_exact(&mut message[1..])?;
        stream.write_all(&message)?;
    }
    Ok(())
}
