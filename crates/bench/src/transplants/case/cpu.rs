//! The dispatcher's processor time where each request has a node of its own choosing and the nodes' server is nginx: contents by Zipf over both nodes, placed by
//! Mix-LARD, ten requests on a connection, which goes on at another node between two of them. Proxies choose by a consistent hash.

use std::io;

use crate::experiment::{Case, Samples};
use crate::handoff::case::spread;
use crate::result::Mark;
use crate::transplants::bench::Bench;

const NAME: &str = "cpu";

pub(super) struct Cpu;

impl Case<Bench> for Cpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "the dispatcher's processor time where contents are spread over nodes with nginx, ten requests a connection, beside proxies that hash"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        bench.beside_proxies(|beside| spread::take_turns(beside, NAME))
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        spread::marks(samples, NAME)
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        spread::columns()
    }
}
