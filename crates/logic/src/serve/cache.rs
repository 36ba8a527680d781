//! One worker's memory of what paths name: bounded, looked up by every request, told of changes.
//!
//! Small files, open files and answers without a file each have their own order and bound, so that none can push out the others.
//! [`order`] decides which entry goes, and [`door`] for whom. The table's hash is keyed by the caller (nothing here draws a random number); only names that
//! exist can be kept without bound by number of answers without a file, so a flood of names that hash alike has at most
//! `absent_entries_max` of them in the table at a time.

mod door;
mod order;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use hashbrown::HashTable;

use self::door::Door;
use self::order::{NONE, Order};
use super::coding::{Coding, CodingOrder, CodingSet};
use super::limits;
use super::path::LoadRequest;
use super::policy::FilePolicy;
use super::resource::{Change, Content, Found, Keep, Loaded, Watch, WatchId};
use super::version::{Known, Version};
use crate::time::Instant;

/// How much a cache may hold.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// Files in memory: content, path and overhead, in bytes.
    pub bytes_max: usize,
    /// Files in memory, by number.
    pub memory_entries_max: usize,
    /// Open files.
    pub open_files_max: usize,
    /// Answers without a file.
    pub absent_entries_max: usize,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits {
            bytes_max: limits::CACHE_BYTES_MAX,
            memory_entries_max: limits::CACHE_MEMORY_ENTRIES_MAX,
            open_files_max: limits::CACHE_OPEN_FILES_MAX,
            absent_entries_max: limits::CACHE_ABSENT_ENTRIES_MAX,
        }
    }
}

/// What a lookup gives.
#[derive(Debug)]
pub enum Lookup<'a, F> {
    /// An answer to be used.
    Fresh(&'a Found<F>),
    /// An answer to be used only when the storage says that it's still so: load with [`LoadRequest::unless`], then [`Cache::renew`]
    /// or [`Cache::insert`].
    Stale(&'a Found<F>, Option<Known>),
    /// Nothing.
    Absent,
}

/// Which bound an entry counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Memory = 0,
    OpenFile = 1,
    Absent = 2,
}

/// What a lookup reads comes first and fits a cache line; the rest stands apart.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry<F> {
    path: Box<[u8]>,
    fresh_until: Instant,
    site: u32,
    /// What there was to choose from, and what was chosen: who would choose the same gets this answer.
    siblings: CodingSet,
    coding: Option<Coding>,
    class: Class,
    found: Found<F>,
    cold: Box<ColdEntry>,
}

#[derive(Debug)]
struct ColdEntry {
    hash: u64,
    fresh_ns: u64,
    version: Option<Version>,
    cost_bytes: usize,
    watch: Option<Watch>,
    /// Set where the path is the watched directory itself: which names in it matter is the site's to say.
    directory_policy: Option<Arc<FilePolicy>>,
    previous_in_directory: u32,
    next_in_directory: u32,
}

impl<F> Entry<F> {
    fn known(&self) -> Option<Known> {
        let Found::Resource(resource) = &self.found else { return None };
        let description = &resource.description;
        Some(Known { version: self.cold.version?, tagged: description.etag.is_some(), siblings: self.siblings })
    }

    /// The name in the watched directory on which this answer depends; empty for the directory itself.
    fn watched_name(&self) -> &[u8] {
        let start = self.cold.watch.map_or(0, |watch| usize::from(watch.directory_bytes));
        self.path.get(start..).unwrap_or_default().split(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Whether this answer, whose watched name is empty, depends on `name` in its directory.
    fn directory_depends_on(&self, name: &[u8]) -> bool {
        let Some(policy) = &self.cold.directory_policy else { return true };
        let is_listing = matches!(self.found, Found::Resource(_)) && self.cold.version.is_none();
        is_listing
            || policy
                .index
                .iter()
                .any(|index| name == index.as_bytes() || without_suffix(name) == Some(index.as_bytes()))
    }
}

/// See the head of this file. `F` is the storage's open file.
#[derive(Debug)]
pub struct Cache<F> {
    limits: CacheLimits,
    hasher: SeedableRandomState,
    by_key: HashTable<u32>,
    /// Entries by watched directory and name in it.
    by_name: HashTable<u32>,
    /// The first of each watched directory's entries.
    by_directory: BTreeMap<WatchId, u32>,
    entries: Vec<Option<Entry<F>>>,
    vacant: Vec<u32>,
    /// Links of all three orders, by entry.
    links: order::Links,
    orders: [Order; 3],
    door: Door,
    bytes: usize,
}

impl<F> Cache<F> {
    /// An empty cache. `seed` keys the hash: a number that clients can't know, or any in a simulation.
    #[must_use]
    pub fn new(limits: CacheLimits, seed: u64) -> Cache<F> {
        Cache {
            limits,
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            by_key: HashTable::new(),
            by_name: HashTable::new(),
            by_directory: BTreeMap::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            links: order::Links::default(),
            orders: [Order::default(); 3],
            door: Door::default(),
            bytes: 0,
        }
    }

    /// What is known of `path` (decoded) at `site` for a client that takes `codings`.
    #[inline]
    pub fn lookup(&mut self, site: u32, codings: CodingOrder, path: &[u8], now: Instant) -> Lookup<'_, F> {
        let hash = self.key_hash(site, path);
        let Some(place) = self.find_for(hash, site, codings, path) else { return Lookup::Absent };
        self.links.mark_used(place);
        let Some(entry) = &self.entries[place as usize] else { return Lookup::Absent };
        if now < entry.fresh_until { Lookup::Fresh(&entry.found) } else { Lookup::Stale(&entry.found, entry.known()) }
    }

    /// Keeps an answer as long as it says, in the place of those that there were for the same clients, or that knew of other siblings. If others would have to
    /// go for it, it's kept when it comes for the second time.
    pub fn insert(&mut self, site: u32, request: &LoadRequest, loaded: &Loaded<F>, now: Instant)
    where
        F: Clone,
    {
        let (codings, path) = (request.codings(), &request.path()[..]);
        let hash = self.key_hash(site, path);
        let (siblings, coding) = match &loaded.found {
            Found::Resource(resource) => (resource.description.siblings, resource.description.coding),
            _ => (CodingSet::default(), None),
        };
        let is_outdated = |entry: &Entry<F>| {
            entry.siblings != siblings || entry.coding == coding || entry.coding == codings.choose(entry.siblings)
        };
        let (mut was_there, mut was_used) = (false, false);
        while let Some(place) = self.find(hash, site, path, is_outdated) {
            was_there = true;
            was_used |= self.links.is_used(place);
            self.remove(place);
        }
        let Keep::For { fresh_ns, watch } = loaded.keep else { return };
        let (class, content_bytes) = classify(&loaded.found);
        let cost_bytes = content_bytes + path.len() + limits::CACHE_ENTRY_OVERHEAD_BYTES;
        if matches!(loaded.found, Found::Unavailable(_)) || cost_bytes > self.limits.bytes_max {
            return;
        }
        let others = self.len();
        if !was_there && !self.fits(class, 1, cost_bytes) && !self.door.has_seen(hash, others) {
            return;
        }
        let names_directory = watch.is_some_and(|watch| usize::from(watch.directory_bytes) == path.len());
        let cold = Box::new(ColdEntry {
            hash,
            fresh_ns,
            version: loaded.version,
            cost_bytes,
            watch,
            directory_policy: names_directory.then(|| request.policy().clone()),
            previous_in_directory: NONE,
            next_in_directory: NONE,
        });
        self.add(Entry {
            path: path.into(),
            fresh_until: now.after(Duration::from_nanos(fresh_ns)),
            site,
            siblings,
            coding,
            class,
            found: loaded.found.clone(),
            cold,
        });
        if was_used && let Some(place) = self.find_for(hash, site, codings, path) {
            self.links.mark_used(place);
        }
        self.shrink();
    }

    /// Makes an answer fresh again that the storage has confirmed.
    pub fn renew(&mut self, site: u32, codings: CodingOrder, path: &[u8], now: Instant) {
        let hash = self.key_hash(site, path);
        if let Some(place) = self.find_for(hash, site, codings, path)
            && let Some(entry) = &mut self.entries[place as usize]
        {
            entry.fresh_until = now.after(Duration::from_nanos(entry.cold.fresh_ns));
        }
    }

    /// Drops what a change may have made untrue.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Name { directory, name } => {
                self.drop_name(*directory, name, None);
                if let Some(stem) = without_suffix(name) {
                    self.drop_name(*directory, stem, None);
                }
                self.drop_name(*directory, b"", Some(name));
            }
            Change::Directory(directory) => {
                while let Some(&first) = self.by_directory.get(directory) {
                    self.remove(first);
                }
            }
            Change::Everything => self.clear(),
        }
    }

    /// Drops up to `count` open files, the least wanted first; those being sent stay open until they are done. Gives how many went.
    pub fn release_files(&mut self, count: usize) -> usize {
        (0..count).take_while(|_| self.evict(Class::OpenFile)).count()
    }

    /// Drops every answer of one site: its rules have changed.
    pub fn clear_site(&mut self, site: u32) {
        for place in 0..u32::try_from(self.entries.len()).unwrap_or(NONE) {
            if self.entries[place as usize].as_ref().is_some_and(|entry| entry.site == site) {
                self.remove(place);
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_name.clear();
        self.by_directory.clear();
        self.entries.clear();
        self.vacant.clear();
        self.links = order::Links::default();
        self.orders = [Order::default(); 3];
        self.bytes = 0;
    }

    /// How many answers are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Content, paths and overhead of files in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many open files are kept.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.orders[Class::OpenFile as usize].count()
    }

    #[inline]
    fn key_hash(&self, site: u32, path: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(u64::from(site));
        hasher.write(path);
        hasher.finish()
    }

    fn name_hash(&self, directory: WatchId, name: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(directory.0);
        hasher.write(name);
        hasher.finish()
    }

    /// The answer for a client that takes `codings`. A path has one for each coding that somebody was sent, all under one hash.
    #[inline]
    fn find_for(&self, hash: u64, site: u32, codings: CodingOrder, path: &[u8]) -> Option<u32> {
        self.find(hash, site, path, |entry| entry.coding == codings.choose(entry.siblings))
    }

    #[inline]
    fn find(&self, hash: u64, site: u32, path: &[u8], is_wanted: impl Fn(&Entry<F>) -> bool) -> Option<u32> {
        let entries = &self.entries;
        let is_it = |&place: &u32| {
            entries[place as usize]
                .as_ref()
                .is_some_and(|entry| entry.site == site && *entry.path == *path && is_wanted(entry))
        };
        self.by_key.find(hash, is_it).copied()
    }

    fn add(&mut self, entry: Entry<F>) {
        let (hash, class, watch) = (entry.cold.hash, entry.class, entry.cold.watch);
        if class == Class::Memory {
            self.bytes += entry.cold.cost_bytes;
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("the limits keep entries far below 2^32")
        });
        self.entries[place as usize] = Some(entry);
        self.orders[class as usize].push(&mut self.links, place);
        let entries = &self.entries;
        self.by_key
            .insert_unique(hash, place, |&other| entries[other as usize].as_ref().map_or(0, |entry| entry.cold.hash));
        if let Some(watch) = watch {
            self.add_to_directory(place, watch.directory);
        }
    }

    fn add_to_directory(&mut self, place: u32, directory: WatchId) {
        let next = self.by_directory.insert(directory, place).unwrap_or(NONE);
        if let Some(Some(entry)) = self.entries.get_mut(next as usize) {
            entry.cold.previous_in_directory = place;
        }
        let mut hash = 0;
        if let Some(Some(entry)) = self.entries.get_mut(place as usize) {
            entry.cold.next_in_directory = next;
        }
        if let Some(Some(entry)) = self.entries.get(place as usize) {
            hash = self.name_hash(directory, entry.watched_name());
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_name.insert_unique(hash, place, |&other| {
            let mut state = hasher.build_hasher();
            if let Some(Some(entry)) = entries.get(other as usize) {
                state.write_u64(entry.cold.watch.map_or(0, |watch| watch.directory.0));
                state.write(entry.watched_name());
            }
            state.finish()
        });
    }

    fn remove(&mut self, place: u32) {
        let Some(entry) = self.entries.get_mut(place as usize).and_then(Option::take) else { return };
        if let Ok(found) = self.by_key.find_entry(entry.cold.hash, |&other| other == place) {
            found.remove();
        }
        if let Some(watch) = entry.cold.watch {
            let hash = self.name_hash(watch.directory, entry.watched_name());
            if let Ok(found) = self.by_name.find_entry(hash, |&other| other == place) {
                found.remove();
            }
            if let Some(Some(next)) = self.entries.get_mut(entry.cold.next_in_directory as usize) {
                next.cold.previous_in_directory = entry.cold.previous_in_directory;
            }
            if let Some(Some(previous)) = self.entries.get_mut(entry.cold.previous_in_directory as usize) {
                previous.cold.next_in_directory = entry.cold.next_in_directory;
            } else if entry.cold.next_in_directory == NONE {
                self.by_directory.remove(&watch.directory);
            } else {
                self.by_directory.insert(watch.directory, entry.cold.next_in_directory);
            }
        }
        self.orders[entry.class as usize].remove(&mut self.links, place);
        if entry.class == Class::Memory {
            self.bytes -= entry.cold.cost_bytes;
        }
        self.vacant.push(place);
    }

    /// Drops what depends on `name` in `directory`; `changed` is the name that changed, where `name` is empty.
    fn drop_name(&mut self, directory: WatchId, name: &[u8], changed: Option<&[u8]>) {
        let hash = self.name_hash(directory, name);
        let depends = |place: &u32| {
            self.entries[*place as usize].as_ref().is_some_and(|entry| {
                entry.cold.watch.is_some_and(|watch| watch.directory == directory)
                    && entry.watched_name() == name
                    && changed.is_none_or(|changed| entry.directory_depends_on(changed))
            })
        };
        let places: Vec<u32> = self.by_name.iter_hash(hash).copied().filter(|place| depends(place)).collect();
        for place in places {
            self.remove(place);
        }
    }

    /// Whether so many more would be within the bounds of their class.
    fn fits(&self, class: Class, entries: usize, bytes: usize) -> bool {
        let (limits, count) = (self.limits, self.orders[class as usize].count() + entries);
        match class {
            Class::Memory => count <= limits.memory_entries_max && self.bytes + bytes <= limits.bytes_max,
            Class::OpenFile => count <= limits.open_files_max,
            Class::Absent => count <= limits.absent_entries_max,
        }
    }

    fn shrink(&mut self) {
        for class in [Class::Memory, Class::OpenFile, Class::Absent] {
            while !self.fits(class, 0, 0) && self.evict(class) {}
        }
    }

    fn evict(&mut self, class: Class) -> bool {
        let Some(place) = self.orders[class as usize].victim(&mut self.links) else { return false };
        self.remove(place);
        true
    }
}

fn classify<F>(found: &Found<F>) -> (Class, usize) {
    match found {
        Found::Resource(resource) => match &resource.content {
            Content::Memory(content) => (Class::Memory, content.len()),
            Content::File(_) => (Class::OpenFile, 0),
        },
        _ => (Class::Absent, 0),
    }
}

/// `name` without a coding's suffix; none when it has none.
fn without_suffix(name: &[u8]) -> Option<&[u8]> {
    Coding::ALL.iter().find_map(|coding| name.strip_suffix(coding.suffix().as_bytes()))
}

#[cfg(test)]
mod tests;
