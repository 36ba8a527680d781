//! What happens to files while they are being served.

use crate::agenda::{Happening, MILLISECOND, SECOND};
use crate::files::Name;
use crate::world::World;

/// A change that takes several steps.
#[derive(Debug)]
pub(crate) struct Mutation {
    name: Name,
    /// Where the next piece goes, and what is left to be written.
    offset: usize,
    left: Vec<u8>,
    piece_bytes: usize,
}

/// The longest pause between two steps.
const STEP_NS_MAX: u64 = 30 * MILLISECOND;

impl World {
    /// Changes some file in some way.
    pub(crate) fn begin_mutation(&mut self) {
        let names = self.files.known_names();
        let name = self.random.pick(&names).clone();
        let now_ns = self.agenda.now_ns();
        let len = self.files.current(&name).map_or(0, |content| content.bytes.len());
        let kind = if len == 0 { 0 } else { self.random.below(8) };
        match kind {
            0 | 1 => {
                let len = self.new_length();
                let bytes = self.random.bytes(len);
                self.files.put(now_ns, &name, bytes);
            }
            2 => self.files.remove(now_ns, &name),
            3 => {
                let len = self.random.below(len as u64) as usize;
                self.files.truncate(now_ns, &name, len);
            }
            4 => {
                let count = self.random.between(1, 3_000) as usize;
                let bytes = self.random.bytes(count);
                self.files.write(now_ns, &name, len, &bytes);
            }
            5 => {
                // Somewhere in the middle, and the length stays.
                let offset = self.random.below(len as u64) as usize;
                let count = (self.random.between(1, 9_000) as usize).min(len - offset);
                let bytes = self.random.bytes(count);
                self.files.write(now_ns, &name, offset, &bytes);
            }
            _ => {
                // As an editor or a copy does it: cut, then written anew piece by piece; or written over in place.
                if kind == 6 {
                    self.files.truncate(now_ns, &name, 0);
                }
                let len = if kind == 6 { self.new_length() } else { len };
                let left = self.random.bytes(len);
                let piece_bytes = self.random.between(1 + len as u64 / 6, 1 + len as u64) as usize;
                self.mutations.push(Mutation { name: name.clone(), offset: 0, left, piece_bytes });
                let delay_ns = self.random.below(STEP_NS_MAX);
                self.agenda.after(delay_ns, Happening::MutationStep(self.mutations.len() - 1));
            }
        }
        self.trace(|| format!("mutation {kind} of {name:?}"));
        self.name_changed(&name);
    }

    pub(crate) fn step_mutation(&mut self, place: usize) {
        let now_ns = self.agenda.now_ns();
        let mutation = &mut self.mutations[place];
        let count = mutation.piece_bytes.min(mutation.left.len());
        let piece: Vec<u8> = mutation.left.drain(..count).collect();
        let offset = mutation.offset;
        mutation.offset += count;
        let (name, is_done) = (mutation.name.clone(), mutation.left.is_empty());
        self.files.write(now_ns, &name, offset, &piece);
        self.name_changed(&name);
        if !is_done {
            let delay_ns = self.random.below(STEP_NS_MAX);
            self.agenda.after(delay_ns, Happening::MutationStep(place));
        }
    }

    /// Most files are small; some take many sends.
    pub(crate) fn new_length(&mut self) -> usize {
        let bytes_max = match self.random.below(12) {
            0 => 1,
            1..6 => 3_000,
            6..9 => 20_000,
            9..11 => 120_000,
            _ => 700_000,
        };
        self.random.below(bytes_max) as usize
    }

    /// Files to begin with, and a plan for their changes.
    pub(crate) fn furnish(&mut self, sites: usize, mutations: u64, until_ns: u64) {
        for site in 0..sites {
            for path in ["/index.html", "/a", "/b.txt", "/docs/index.html", "/docs/c.html", "/docs/large", "/sometimes"]
            {
                let name = (site, path.to_owned());
                let len = if path == "/docs/large" { 90_000 } else { self.new_length() };
                let bytes = self.random.bytes(len);
                self.files.put(0, &name, bytes);
            }
        }
        for _ in 0..mutations {
            let at_ns = self.random.below(until_ns.max(SECOND));
            self.agenda.after(at_ns, Happening::Mutation);
        }
    }
}
