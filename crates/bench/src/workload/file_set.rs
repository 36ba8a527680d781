//! A directory of files made from a seed, removed when dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::content::Content;
use super::mix::{Body, Mix, Target};
use super::specweb99::SetFile;
use crate::cleanup;

/// Files on disk whose contents are known by seed.
pub(crate) struct FileSet {
    root: PathBuf,
    files: Vec<(SetFile, Content)>,
}

impl FileSet {
    /// Writes `files` below `root`, which must not exist yet; the same seed gives the same bytes. Readable by all, as
    /// some peers give up root.
    pub(crate) fn create(root: &Path, files: Vec<SetFile>, seed: u64) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        cleanup::remove_at_end(root);
        let mut seeds = fastrand::Rng::with_seed(seed);
        let mut set = Self { root: root.to_owned(), files: Vec::new() };
        for file in files {
            let content = Content::new(seeds.u64(..));
            let path = root.join(&file.path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, content.bytes(file.bytes as usize))?;
            set.files.push((file, content));
        }
        Ok(set)
    }

    /// A set of single files: `(path, bytes)`, all asked for equally often.
    pub(crate) fn of_sizes(root: &Path, sizes: &[(&str, u64)], seed: u64) -> io::Result<Self> {
        let files = sizes.iter().map(|&(path, bytes)| SetFile { path: path.to_owned(), bytes, weight: 1.0 }).collect();
        Self::create(root, files, seed)
    }

    /// Of all files, below the root.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(file, _)| file.path.as_str())
    }

    /// Length and content of the file at a path below the root.
    pub(crate) fn content(&self, path: &str) -> Option<(u64, Content)> {
        self.files.iter().find(|(file, _)| file.path == path).map(|(file, content)| (file.bytes, *content))
    }

    /// Length and content of the file at a path below the roots of several servers, whose replies can be told apart where there are several.
    pub(crate) fn body(sets: &[FileSet], path: &str) -> (Option<u64>, Body) {
        let found: Vec<_> = sets.iter().map(|set| set.content(path)).collect();
        let bytes = found.iter().flatten().map(|(bytes, _)| *bytes).next();
        let body = match &found[..] {
            [one] => one.map_or(Body::Unknown, |(_, content)| Body::Seeded(content)),
            several => Body::ByServer(several.iter().map(|known| known.map(|(_, content)| content)).collect()),
        };
        (bytes, body)
    }

    /// Requests for those files whose path `wanted` accepts, each on a kept connection unless `close`.
    pub(crate) fn mix(&self, close: bool, wanted: impl Fn(&str) -> bool) -> Mix {
        Mix::new(self.targets(close, wanted))
    }

    /// The same, each with its weight, for a mix that has others too.
    pub(crate) fn targets(&self, close: bool, wanted: impl Fn(&str) -> bool) -> Vec<(Target, f64)> {
        let targets = self.files.iter().filter(|(file, _)| wanted(&file.path)).map(|(file, content)| {
            let target = Target::new(&format!("/{}", file.path), close, Some(file.bytes), Body::Seeded(*content));
            (target, file.weight)
        });
        targets.collect()
    }
}

impl Drop for FileSet {
    fn drop(&mut self) {
        // What can't be removed stays in the temporary directory: nothing to be done about it here.
        let _ = fs::remove_dir_all(&self.root);
        cleanup::removed(&self.root);
    }
}
