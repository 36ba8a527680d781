//! Where the configuration comes from: a file, or the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use leat_logic::serve::policy::SymlinkPolicy;

use crate::config::{self, Config, Mistakes, Part, Reactor};

/// See the module.
#[derive(Clone, Debug)]
pub enum Source {
    /// `--config FILE`.
    File(PathBuf),
    /// `--config FILE` for a machine with this part in a cluster.
    Member(PathBuf, Part),
    /// What flags say, written as a file would have it.
    Text(String),
    /// A directory, with what the command line says about it.
    Directory {
        /// What is served.
        directory: PathBuf,
        /// Where; empty for the default.
        listen: Vec<SocketAddr>,
        /// How many workers; `None` for the default.
        workers: Option<usize>,
        /// Whether symbolic links may lead out of the directory.
        follow_symlinks: bool,
        /// How they wait; `None` for the default.
        reactor: Option<Reactor>,
    },
}

impl Source {
    /// Reads it. Returns the text of its file as well, if it has one.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self) -> Result<(Config, String), Mistakes> {
        let text = self.file().map_or_else(|| Ok(String::new()), config::read_text)?;
        Ok((self.load_text(&text)?, text))
    }

    /// What it says if `text` is that of its file.
    ///
    /// # Errors
    /// As [`Source::load`].
    pub fn load_text(&self, text: &str) -> Result<Config, Mistakes> {
        match self {
            Source::File(path) => config::load_text(path, text, &Part::default()),
            Source::Member(path, part) => config::load_text(path, text, part),
            Source::Text(text) => config::from_text(text),
            Source::Directory { directory, listen, workers, follow_symlinks, reactor } => {
                let mut config = config::from_directory(directory, listen, *workers, *reactor)?;
                if *follow_symlinks {
                    for site in &mut config.sites {
                        site.symlinks = SymlinkPolicy::Follow;
                    }
                }
                Ok(config)
            }
        }
    }

    /// Refuses a configuration of which a value can't be had: that of `key` of `[section]`, in its file's `text`.
    #[must_use]
    pub fn mistake_at(&self, text: &str, value: (&str, &str), message: String, help: &str) -> Mistakes {
        match (self, self.file()) {
            (Source::Text(text), _) => config::mistake_at("command line", text, value, message, help),
            (_, Some(path)) => config::mistake_at(&path.display().to_string(), text, value, message, help),
            (_, None) => config::mistake_at("command line", "", value, message, help),
        }
    }

    /// The file, if it's one.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        match self {
            Source::File(path) | Source::Member(path, _) => Some(path),
            Source::Text(_) | Source::Directory { .. } => None,
        }
    }

    /// The arguments that make another process read the same.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        match self {
            Source::File(path) => vec!["--config".into(), path.into()],
            Source::Member(path, part) => {
                let mut arguments: Vec<OsString> = vec!["--config".into(), path.into()];
                if let Some(role) = part.role {
                    arguments.extend(["--role".into(), role.name().into()]);
                }
                if let Some(name) = &part.name {
                    arguments.extend(["--name".into(), name.into()]);
                }
                for server in &part.server {
                    arguments.extend(["--for".into(), server.to_string().into()]);
                }
                arguments
            }
            Source::Text(text) => vec!["--text".into(), text.into()],
            Source::Directory { directory, listen, workers, follow_symlinks, reactor } => {
                let mut arguments: Vec<OsString> = Vec::new();
                for address in listen {
                    arguments.extend(["--listen".into(), address.to_string().into()]);
                }
                if let Some(workers) = workers {
                    arguments.extend(["--workers".into(), workers.to_string().into()]);
                }
                if *follow_symlinks {
                    arguments.push("--follow-symlinks".into());
                }
                if let Some(reactor) = reactor {
                    let name = match reactor {
                        Reactor::IoUring => "io_uring",
                        Reactor::Epoll => "epoll",
                    };
                    arguments.extend(["--reactor".into(), name.into()]);
                }
                arguments.extend(["--".into(), directory.into()]);
                arguments
            }
        }
    }
}
