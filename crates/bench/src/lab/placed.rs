//! A server in a node's namespace, set up as for serving files; ended when dropped.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Lab, all_cores};
use crate::cleanup;
use crate::server::running::descendants;
use crate::server::{Server, Site};
use crate::sys::process;

pub(crate) struct Placed {
    child: Child,
}

impl Placed {
    /// Starts a server that is to listen at `address` of `host`, on that core or, where there are fewer, on the last. It needn't listen yet when this returns.
    ///
    /// # Errors
    /// Its files can't be written, or it can't be started.
    pub(crate) fn start(
        lab: &Lab,
        host: &str,
        server: &dyn Server,
        site: &Site,
        (address, core): (SocketAddr, usize),
        folder: &Path,
    ) -> io::Result<Placed> {
        let directory = folder.join(format!("{}-{host}", server.name()));
        fs::create_dir_all(&directory)?;
        let set_up = server.command(site, address, &directory)?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", lab.namespace(host).display()))
            .arg(set_up.get_program())
            .args(set_up.get_args());
        command.envs(set_up.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = fs::File::create(directory.join("output.log"))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        process::start_as_others(&mut command, &[core.min(all_cores().len() - 1)]);
        let _not_at_the_end = cleanup::starting();
        Ok(Placed { child: command.spawn()? })
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        descendants(self.child.id())
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = process::signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
    }
}
