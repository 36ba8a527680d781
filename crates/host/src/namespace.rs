//! Network namespaces: whole hosts for tests and demonstrations on one machine. What is connected to what is the caller's.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where this is set, a test that lacks the right to make namespaces fails instead of being skipped.
pub const REQUIRE_VARIABLE: &str = "LEAT_REQUIRE_NAMESPACES";

/// A namespace for one test, or a line that says why there is none.
///
/// # Panics
/// When there is none and [`REQUIRE_VARIABLE`] is set.
#[must_use]
pub fn for_test(name: &str) -> Option<Namespace> {
    match Namespace::new(&format!("leat-{}-{name}", std::process::id())) {
        Ok(namespace) => Some(namespace),
        Err(error) if std::env::var_os(REQUIRE_VARIABLE).is_none() => {
            println!("skipped: {error} (needs root and iproute2)");
            None
        }
        Err(error) => panic!("{REQUIRE_VARIABLE} is set, but {error}"),
    }
}

/// Sets a kernel parameter (`net.ipv4.ip_forward`, for instance) in the namespace that a file stands for.
///
/// # Errors
/// There is no such namespace; the parameter doesn't exist (`NotFound`), or not in namespaces.
pub fn set(namespace: &Path, parameter: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/{}", parameter.replace('.', "/"));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    // The directory shows the namespace of the thread that opens it.
    within(namespace, || std::fs::write(&path, value).map_err(named))
}

/// Does something in the namespace that a file stands for, on a thread of its own, which is then gone: the caller stays where it is.
pub(crate) fn within<T: Send>(namespace: &Path, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let there = File::open(namespace)?;
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(there.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        });
        thread.join().map_err(|_| io::Error::other("the thread in the namespace panicked"))?
    })
}

/// A namespace with a name, as `ip netns` makes it. It is gone when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace whose loopback is up. One of the same name that somebody left behind is replaced.
    ///
    /// # Errors
    /// What `ip` says: not root, or no iproute2.
    pub fn new(name: &str) -> io::Result<Namespace> {
        // It fails when there is none, as it should be.
        let _ = ip(&format!("netns delete {name}"));
        ip(&format!("netns add {name}"))?;
        let namespace = Namespace { name: name.to_owned() };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/var/run/netns").join(&self.name)
    }

    /// Has `ip` do something in it: the arguments, separated by blanks.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn ip(&self, arguments: &str) -> io::Result<()> {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// Sets kernel parameters in it: `net.ipv4.ip_forward`, for instance.
    ///
    /// # Errors
    /// The parameter doesn't exist, or not in namespaces.
    pub fn set(&self, parameter: &str, value: &str) -> io::Result<()> {
        set(&self.path(), parameter, value)
    }

    /// Runs something in it, on a thread of its own. Sockets stay where they were made, whoever uses them later.
    ///
    /// # Errors
    /// The namespace can't be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        match self.start(work).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// As [`Namespace::run`], without waiting for it.
    pub fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<io::Result<T>> {
        let path = self.path();
        thread::spawn(move || {
            let file = File::open(path)?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the next one of this name replaces it.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {arguments}: {}", complaint.trim())))
}
