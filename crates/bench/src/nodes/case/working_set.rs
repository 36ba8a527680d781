//! More files than one node's memory holds and less than all nodes' do, and as few as fit in each: Mix-LARD beside policies that know nothing of content.

use std::io;

use super::super::bench::Bench;
use super::super::setup::Policy;
use super::{COLUMNS, NODES, at_most, by_policy, percent};
use crate::experiment::{Case, Samples};
use crate::result::Mark;
use crate::workload::mix::Mix;

const POLICIES: [Policy; 3] = [Policy::MixLard, Policy::RoundRobin, Policy::LeastConnections];

/// So many directories of SPECweb99's, of 5 MB each.
pub(super) struct WorkingSet {
    name: &'static str,
    title: &'static str,
    directories: u32,
    /// What Mix-LARD must answer, in hundredths of the best of the others, and what it may read, if that is asked.
    answered_percent: f64,
    read_percent: Option<f64>,
}

pub(super) const TOO_LARGE: WorkingSet = WorkingSet {
    name: "working-set",
    title: "files of 176 MiB, four nodes with 80 MiB of memory (leat's own and the kernel's caches in it) and 2 MiB/s from the disk each",
    directories: 36,
    answered_percent: 200.0,
    read_percent: Some(50.0),
};

pub(super) const FITS: WorkingSet = WorkingSet {
    name: "fits",
    title: "files of 20 MiB, which each node's memory holds",
    directories: 4,
    // No loss, but for what two equal measurements differ by here.
    answered_percent: 97.0,
    read_percent: None,
};

impl Case<Bench> for WorkingSet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let files = bench.specweb99(self.directories, NODES)?;
        bench.records.note(self.name, &format!("the files have {:.0} MiB", files.mib()));
        let mix = Mix::new(files.all());
        by_policy(bench, self.name, &POLICIES, (&files, &mix))
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of = |policy: Policy, metric| samples.median(self.name, "", policy.name(), metric);
        let other = |policy: Policy| {
            let doubt = || samples.failures(self.name, "", Policy::MixLard.name());
            let answered = percent(of(policy, "answered_per_s"), of(Policy::MixLard, "answered_per_s"));
            let text = format!("what {} answers, of Mix-LARD's", policy.name());
            let mut marks =
                vec![at_most((self.name, ""), &text, answered, 100.0 * 100.0 / self.answered_percent, "%", doubt())];
            if let Some(limit) = self.read_percent {
                let read = percent(of(Policy::MixLard, "disk_kb"), of(policy, "disk_kb"));
                let text = format!("read from disks for a request, of {}'s", policy.name());
                marks.push(at_most((self.name, ""), &text, read, limit, "%", doubt()));
            }
            marks
        };
        POLICIES[1..].iter().copied().flat_map(other).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        COLUMNS.to_vec()
    }
}
