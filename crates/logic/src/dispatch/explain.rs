//! Where a request would go and why, in words. The reasons are the policy's and the dispatcher's.

use std::fmt;
use std::time::Duration;

use super::classify::Class;
use super::cost::{Decision, Place};
use super::dispatcher::{Refusal, Standing};
use super::facts::ContentKey;
use super::policy::{PolicyKind, Why};

/// A node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// Whether it may be chosen.
    pub standing: Standing,
    /// As configured.
    pub weight: u32,
    /// The part of its weight that counts, in thousandths.
    pub share_permille: u64,
    /// Requests under way.
    pub active: u32,
    /// The busy part of its processors; 0 when it hasn't said so lately.
    pub busy_permille: u16,
    /// Time since its last load report.
    pub report_age: Option<Duration>,
}

/// Where a request would go. Displays as several lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The request's class.
    pub class: Class,
    /// The request's content.
    pub key: ContentKey,
    /// Under which policy.
    pub policy: PolicyKind,
    /// Whether it may go elsewhere for the host that clients name: none is known.
    pub lacks_host: bool,
    /// The node's name and the reason, or why there is none.
    pub chosen: Result<(String, Why), Refusal>,
    /// How it would get there, as a connection's first request and from another node that has the connection.
    pub ways: Vec<(Place, Decision)>,
    /// Where the content was sent, and how long ago it was asked for last.
    pub entry: Option<(Vec<String>, Duration)>,
    /// Every node.
    pub nodes: Vec<NodeLine>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} request under the policy {}", self.class, self.policy)?;
        match &self.chosen {
            Ok((name, why)) => writeln!(f, "  goes to {name}: {why}")?,
            Err(refusal) => writeln!(f, "  goes nowhere: {refusal}")?,
        }
        if self.lacks_host {
            writeln!(
                f,
                "  that is without a host, which counts: name the one that clients ask, as in 'GET http://www.example.org/path'"
            )?;
        }
        for (place, decision) in &self.ways {
            let whence = match place {
                Place::Dispatcher => "as a connection's first request",
                Place::Node => "on another node's connection",
            };
            writeln!(f, "  {whence}: {decision}")?;
        }
        if let Some((names, age)) = &self.entry {
            writeln!(f, "  content {}: last used {:.1} s ago, at {}", self.key, age.as_secs_f64(), names.join(", "))?;
        }
        writeln!(f, "  nodes:")?;
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let names = width(&mut self.nodes.iter().map(|line| line.name.len()));
        let standings = width(&mut self.nodes.iter().map(|line| line.standing.to_string().len()));
        for line in &self.nodes {
            let standing = line.standing.to_string();
            writeln!(f, "    {:names$}  {standing:standings$}  {}", line.name, line.figures())?;
        }
        Ok(())
    }
}

impl NodeLine {
    /// Its numbers in words: `load 3, busy 12.0 %, weight 100, reported 1.0 s ago`.
    #[must_use]
    pub fn figures(&self) -> String {
        let mut text = format!("load {}", self.active);
        if self.busy_permille > 0 {
            text += &format!(", busy {:.1} %", f64::from(self.busy_permille) / 10.0);
        }
        text += &format!(", weight {}", self.weight);
        if self.share_permille < 1000 {
            text += &format!(" of which {:.1} % count as yet", self.share_permille as f64 / 10.0);
        }
        match self.report_age {
            Some(age) => text + &format!(", reported {:.1} s ago", age.as_secs_f64()),
            None => text + ", no report",
        }
    }
}
