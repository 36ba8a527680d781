//! leat with a configuration of its own: sites with shares, owners, policies, and an admin address to read its counters from.

use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Server, Site};

/// One site of the configuration. Its host is its name.
#[derive(Clone, Debug)]
pub(crate) struct SharedSite {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) priority: u8,
    /// Empty for none.
    pub(crate) owner: &'static str,
}

impl SharedSite {
    pub(crate) fn of_weight(name: &str, weight: u32) -> Self {
        Self { name: name.to_owned(), weight, priority: 0, owner: "" }
    }
}

/// What is configured, but for addresses and folders.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) reactor: &'static str,
    /// The policy right below the root.
    pub(crate) root_policy: &'static str,
    /// Names and weights.
    pub(crate) owners: Vec<(&'static str, u32)>,
    pub(crate) sites: Vec<SharedSite>,
}

impl Setup {
    /// One worker, weighted fair.
    pub(crate) fn of_sites(sites: Vec<SharedSite>) -> Self {
        Self { workers: 1, reactor: "io_uring", root_policy: "weighted_fair", owners: Vec::new(), sites }
    }

    /// The file's text. The first site answers for `localhost` too.
    fn text(&self, root: &Path, listen: SocketAddr, admin: SocketAddr) -> String {
        let Self { workers, reactor, root_policy, owners, sites } = self;
        let mut text = format!(
            "workers = {workers}\nreactor = \"{reactor}\"\n\n[admin]\nlisten = \"{admin}\"\n\n\
             [limits]\nidle_timeout = \"1h\"\n\n[schedule]\nroot = \"{root_policy}\"\n"
        );
        // Writing to a string can't fail, here and below.
        for (name, weight) in owners {
            let _ = writeln!(text, "\n[[owner]]\nname = \"{name}\"\nweight = {weight}");
        }
        for (place, site) in sites.iter().enumerate() {
            let SharedSite { name, weight, priority, owner } = site;
            let also = if place == 0 { ", \"localhost\"" } else { "" };
            let _ = writeln!(
                text,
                "\n[[site]]\nname = \"{name}\"\nhosts = [\"{name}\"{also}]\nlisten = [\"{listen}\"]\nroot = \"{}\"\n\
                 weight = {weight}\npriority = {priority}\nowner = \"{owner}\"\n\n\
                 [[site.handler]]\npath = \"/burn\"\nburn = {{ forever = true }}",
                root.display()
            );
        }
        text
    }
}

/// leat as a server of the bench.
pub(crate) struct ConfiguredLeat {
    program: PathBuf,
    setup: Setup,
    /// Where its counters are read.
    pub(crate) admin: SocketAddr,
}

impl ConfiguredLeat {
    /// # Errors
    /// No port is free.
    pub(crate) fn new(program: &Path, setup: Setup) -> io::Result<Self> {
        // Free when asked; that somebody else takes it in between shows as a server that doesn't start.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self { program: program.to_owned(), setup, admin })
    }
}

impl Server for ConfiguredLeat {
    fn name(&self) -> &'static str {
        "leat"
    }

    fn program(&self) -> Option<PathBuf> {
        self.program.is_file().then(|| self.program.clone())
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let file = directory.join("leat.toml");
        std::fs::write(&file, self.setup.text(&site.root, address, self.admin))?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(file);
        Ok(command)
    }
}
