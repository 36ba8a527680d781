//! What a path names, found out by asking the kernel: on the worker as long as everything is in memory, on a thread of the pool otherwise.
//!
//! The order of things matters. Directories are watched before a name in them is looked at, so that no change between the look and the
//! watch goes unnoticed. A file's version is taken before its bytes are read and compared after, so that no tag names torn content.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat_logic::serve::coding::{Coding, CodingSet};
use leat_logic::serve::etag::ETag;
use leat_logic::serve::limits::{FRESH_NS, HASH_AT_LOAD_BYTES_MAX};
use leat_logic::serve::path::{LoadRequest, directory_location};
use leat_logic::serve::resource::{Cause, Content, Description, Found, Resource};
use leat_logic::serve::version::{Known, Version};
use leat_logic::time::UnixTime;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::directory;
use super::file::OpenFile;
use super::hashes::Hashes;
use super::hashing::hash_file;
use super::limits;
use super::open::{Named, Patience, Root};
use super::residency::{read_cached, read_waiting};
use super::watch_tree::Names;

/// What a look gave.
#[derive(Debug)]
pub(super) enum Answer {
    /// What the asker holds is as it was.
    Unchanged,
    /// Something else, or the asker holds nothing.
    Found {
        found: Found<Arc<OpenFile>>,
        /// The state of the file, when comparing it can tell whether the answer still holds.
        version: Option<Version>,
        /// How long it may be used; none for this one reply.
        fresh_ns: Option<u64>,
        /// Whether watching the directories on the way shows every change.
        watchable: bool,
        /// A file whose hash somebody should work out when there's time.
        to_hash: Option<Arc<OpenFile>>,
    },
}

/// The look would have taken longer than whoever looks may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WouldWait;

/// Where a load goes wrong.
enum Trouble {
    WouldWait,
    /// There is more to read than may be.
    WouldHash,
    /// It's not there, or not to be had: the answer.
    Answer(Found<Arc<OpenFile>>),
    /// What was looked up is something else by now.
    Moved,
    /// The sibling in that coding can't be read: it's as if it weren't there.
    Sibling(Coding),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Trouble {
        match errno {
            Errno::STALE => Trouble::Moved,
            Errno::AGAIN => Trouble::WouldWait,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => {
                Trouble::Answer(Found::NotFound)
            }
            // Out of the root, a link where none may be, no permission; a device without a driver, a socket.
            Errno::XDEV | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV => {
                Trouble::Answer(Found::Forbidden)
            }
            _ => Trouble::Answer(Found::Unavailable(cause(errno))),
        }
    }
}

impl Trouble {
    /// The same where it's met with in opening or reading a file in that coding, which was there when it was looked up.
    fn with_file(self, coding: Option<Coding>) -> Trouble {
        match (self, coding) {
            (Trouble::Answer(Found::Forbidden | Found::NotFound), Some(coding)) => Trouble::Sibling(coding),
            (trouble, _) => trouble,
        }
    }
}

/// What an error that isn't about the name says of the system.
pub(super) fn cause(errno: Errno) -> Cause {
    match errno {
        Errno::MFILE | Errno::NFILE => Cause::DescriptorsExhausted,
        Errno::NOMEM => Cause::MemoryExhausted,
        Errno::AGAIN | Errno::STALE => Cause::Changing,
        _ => Cause::Failed(errno.raw_os_error()),
    }
}

/// Which file to serve.
struct Selected {
    relative: Vec<u8>,
    /// How much of `relative` is the name without a coding's suffix.
    plain_len: usize,
    coding: Option<Coding>,
    siblings: CodingSet,
}

/// One look at one path.
pub(super) struct Look<'a> {
    pub(super) root: &'a Root,
    pub(super) request: &'a LoadRequest,
    pub(super) hashes: &'a Hashes,
    /// What is known of the names in the directory of what is asked for.
    pub(super) names: Names,
    pub(super) patience: Patience,
    /// Whether a large file may be read from end to end for its tag.
    pub(super) may_hash: bool,
    pub(super) now: UnixTime,
}

impl Look<'_> {
    /// Finds out what the path names. With patience, the only thing that it refuses to wait for is a hash.
    pub(super) fn look(&self) -> Result<Answer, WouldWait> {
        let mut unreadable = CodingSet::default();
        let mut attempt = 1;
        while attempt <= limits::READ_ATTEMPTS_MAX {
            let is_last = attempt == limits::READ_ATTEMPTS_MAX;
            let answered = self.select(unreadable).and_then(|selected| match selected {
                Some((selected, named)) => {
                    self.answer_file(&selected, named, is_last).map_err(|trouble| trouble.with_file(selected.coding))
                }
                None => self.answer_directory(),
            });
            match answered {
                Ok(answer) => return Ok(answer),
                // One fewer each time.
                Err(Trouble::Sibling(coding)) => unreadable = unreadable.with(coding),
                Err(Trouble::WouldWait) if self.patience == Patience::Cached => return Err(WouldWait),
                Err(Trouble::WouldHash) => return Err(WouldWait),
                Err(Trouble::WouldWait | Trouble::Moved) => attempt += 1,
                Err(Trouble::Answer(found)) => return Ok(without_file(found)),
            }
        }
        if self.patience == Patience::Cached {
            return Err(WouldWait);
        }
        Ok(without_file(Found::Unavailable(Cause::Changing)))
    }

    /// The file that answers the request, in none of the codings `but`; none for a directory without an index.
    fn select(&self, but: CodingSet) -> Result<Option<(Selected, Named)>, Trouble> {
        let relative = self.request.relative();
        if !self.request.path().ends_with(b"/") {
            let named = self.find(relative)?;
            return match named.kind {
                FileType::RegularFile => self.with_sibling(relative.to_vec(), named, but).map(Some),
                FileType::Directory => Err(Trouble::Answer(Found::Redirect(directory_location(self.request.path())))),
                _ => Err(Trouble::Answer(Found::Forbidden)),
            };
        }
        for index in &self.request.policy().index {
            let candidate = [relative, index.as_bytes()].concat();
            match self.find(&candidate) {
                Ok(named) if named.kind == FileType::RegularFile => {
                    let path = [self.request.path(), index.as_bytes()].concat();
                    if self.request.policy().is_handled(&path) {
                        return Err(Trouble::Answer(Found::HandledIndex(path.into())));
                    }
                    return self.with_sibling(candidate, named, but).map(Some);
                }
                Ok(_) | Err(Trouble::Answer(Found::NotFound)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(None)
    }

    /// Prefers a precompressed sibling that the client takes. One older than its file by more than the spread of a deployment's times was
    /// made from another state of it.
    fn with_sibling(&self, relative: Vec<u8>, named: Named, but: CodingSet) -> Result<(Selected, Named), Trouble> {
        let plain_len = relative.len();
        let offered = &self.request.policy().precompressed;
        let mut found: Vec<(Coding, Named)> = Vec::new();
        let may_be_there = |coding: &&Coding| self.names.codings.contains(**coding) && !but.contains(**coding);
        for &coding in offered.iter().filter(may_be_there) {
            let path = [&relative, coding.suffix().as_bytes()].concat();
            match self.name(&path) {
                Ok(sibling)
                    if sibling.kind == FileType::RegularFile && !is_outdated(&sibling.version, &named.version) =>
                {
                    found.push((coding, sibling));
                }
                Ok(_) | Err(Trouble::Answer(Found::NotFound | Found::Forbidden)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        let siblings = found.iter().fold(CodingSet::default(), |siblings, (coding, _)| siblings.with(*coding));
        let chosen = self.request.codings().choose(siblings);
        match found.into_iter().find(|(coding, _)| Some(*coding) == chosen) {
            Some((coding, sibling)) => {
                let relative = [&relative, coding.suffix().as_bytes()].concat();
                Ok((Selected { relative, plain_len, coding: Some(coding), siblings }, sibling))
            }
            None => Ok((Selected { relative, plain_len, coding: None, siblings }, named)),
        }
    }

    fn answer_file(&self, selected: &Selected, named: Named, is_last: bool) -> Result<Answer, Trouble> {
        let Named { version, links, through_symlink, .. } = named;
        let granularity_ns = self.root.granularity_ns(version.device);
        let mut settled = version.is_settled_at(self.now, granularity_ns);
        let is_large = version.len_bytes > self.request.policy().memory_file_bytes_max;
        let remembered = if is_large && settled { self.hashes.get(&version) } else { None };
        if settled
            && self
                .request
                .known()
                .is_some_and(|known| is_as_known(known, selected, &version, is_large, remembered.is_some()))
        {
            return Ok(Answer::Unchanged);
        }
        let descriptor = self.root.read(&selected.relative, named, self.request.policy().symlinks, self.patience)?;
        let file = Arc::new(OpenFile::new(descriptor, version, links));
        let mut to_hash = None;
        let (content, etag, is_whole) = if is_large {
            if !settled {
                settled = self.settle(&file, granularity_ns)?;
            }
            let etag = match remembered {
                Some(etag) => Some(etag),
                None if !settled => None,
                None if version.len_bytes <= HASH_AT_LOAD_BYTES_MAX => self.hash(&file)?,
                None => {
                    to_hash = Some(file.clone());
                    None
                }
            };
            (Content::File(file), etag, true)
        } else {
            let (content, is_whole) = self.read_all(&file, is_last)?;
            let etag = is_whole.then(|| ETag::of(&content));
            (Content::Memory(content), etag, is_whole)
        };
        let fresh_ns = match (is_whole, settled, is_large) {
            (true, true, _) => Some(FRESH_NS),
            // What was read is one state of the file, if perhaps not its last: good until the clock has ticked.
            (true, false, false) => Some(granularity_ns.min(FRESH_NS)),
            _ => None,
        };
        Ok(Answer::Found {
            found: Found::Resource(Arc::new(self.resource(selected, &version, content, etag, is_whole))),
            version: settled.then_some(version),
            fresh_ns,
            watchable: !through_symlink && self.root.is_watchable(version.device),
            to_hash,
        })
    }

    fn resource(
        &self,
        selected: &Selected,
        version: &Version,
        content: Content<Arc<OpenFile>>,
        etag: Option<ETag>,
        is_whole: bool,
    ) -> Resource<Arc<OpenFile>> {
        let plain = &selected.relative[..selected.plain_len];
        let name = plain.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let len_bytes = match &content {
            Content::Memory(content) => content.len() as u64,
            Content::File(_) => version.len_bytes,
        };
        let description = Description {
            len_bytes,
            etag,
            modified: (is_whole && version.modified <= self.now).then_some(version.modified),
            content_type: self.request.policy().mime.type_of(name),
            coding: selected.coding,
            siblings: selected.siblings,
        };
        Resource::new(description, content, &self.added_fields())
    }

    /// All bytes of a small file, and whether they're one state of it. At the last attempt, what was read is served as it is, under no
    /// validator.
    fn read_all(&self, file: &OpenFile, is_last: bool) -> Result<(Bytes, bool), Trouble> {
        let len = usize::try_from(file.version().len_bytes).unwrap_or(usize::MAX);
        // If it grows meanwhile, its version tells.
        let mut content = match self.patience {
            Patience::Cached => read_cached(file, len, 0)?,
            Patience::Wait => {
                let mut content = vec![0; len];
                let read = read_waiting(file, &mut content, 0)?;
                content.truncate(read);
                content
            }
        };
        let is_whole = content.len() == len && file.is_unchanged();
        if !is_whole && !is_last {
            return Err(Trouble::Moved);
        }
        content.shrink_to_fit();
        Ok((content.into(), is_whole))
    }

    /// Waits until a file that has just been written can't change unseen any more; whether that is so, as nobody waits for seconds. Only on
    /// a thread that may hash: a tag is what the wait is for.
    fn settle(&self, file: &OpenFile, granularity_ns: u64) -> Result<bool, Trouble> {
        if granularity_ns > limits::TIMESTAMP_GRANULARITY_LOCAL_NS {
            return Ok(false);
        }
        if !self.may_hash {
            return Err(Trouble::WouldHash);
        }
        std::thread::sleep(Duration::from_nanos(granularity_ns));
        if file.is_unchanged() { Ok(true) } else { Err(Trouble::Moved) }
    }

    /// The tag of a file that's hashed before its first reply; none when it changed meanwhile.
    fn hash(&self, file: &OpenFile) -> Result<Option<ETag>, Trouble> {
        if !self.may_hash {
            return Err(Trouble::WouldHash);
        }
        let etag = hash_file(file)?;
        if let Some(etag) = etag {
            self.hashes.remember(*file.version(), etag);
        }
        Ok(etag)
    }

    fn answer_directory(&self) -> Result<Answer, Trouble> {
        let policy = self.request.policy();
        let relative = self.request.relative();
        let relative = relative.strip_suffix(b"/").unwrap_or(relative);
        let named = self.name(relative)?;
        if named.kind != FileType::Directory {
            return Err(Trouble::Answer(Found::NotFound));
        }
        if !policy.listing {
            return Err(Trouble::Answer(Found::Forbidden));
        }
        if self.patience == Patience::Cached {
            return Err(Trouble::WouldWait);
        }
        let (through_symlink, device) = (named.through_symlink, named.version.device);
        let page = directory::list(self.root, self.request, relative, named)?;
        let description = Description {
            len_bytes: page.len() as u64,
            etag: Some(ETag::of(&page)),
            modified: None,
            content_type: Bytes::from_static(b"text/html; charset=utf-8"),
            coding: None,
            siblings: CodingSet::default(),
        };
        Ok(Answer::Found {
            found: Found::Resource(Arc::new(Resource::new(description, Content::Memory(page), &self.added_fields()))),
            version: None,
            fresh_ns: Some(FRESH_NS),
            watchable: !through_symlink && self.root.is_watchable(device),
            to_hash: None,
        })
    }

    fn added_fields(&self) -> Vec<u8> {
        self.request.policy().fields(self.request.path())
    }

    /// What is under a name in the directory of what is asked for: open for reading where that's known to do no harm.
    fn find(&self, relative: &[u8]) -> Result<Named, Trouble> {
        if self.names.are_plain {
            match self.root.open_plain(relative, self.patience) {
                Ok(named) => return Ok(named),
                Err(errno @ (Errno::NOENT | Errno::AGAIN)) => return Err(errno.into()),
                // It may still be there: a directory that may be searched and not read, one behind a link.
                Err(_) => {}
            }
        }
        self.name(relative)
    }

    fn name(&self, relative: &[u8]) -> Result<Named, Trouble> {
        Ok(self.root.name(relative, self.request.policy().symlinks, self.patience)?)
    }
}

fn without_file(found: Found<Arc<OpenFile>>) -> Answer {
    let fresh_ns = if matches!(found, Found::Unavailable(_)) { None } else { Some(FRESH_NS) };
    Answer::Found { found, version: None, fresh_ns, watchable: true, to_hash: None }
}

fn is_as_known(
    known: &Known,
    selected: &Selected,
    version: &Version,
    is_large: bool,
    hash_is_remembered: bool,
) -> bool {
    known.version == *version
        && known.siblings == selected.siblings
        && !(is_large && !known.tagged && hash_is_remembered)
}

fn is_outdated(sibling: &Version, file: &Version) -> bool {
    sibling.modified.seconds + limits::SIBLING_AGE_SECONDS_MAX < file.modified.seconds
}
