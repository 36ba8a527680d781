//! Apache with the event MPM, at 256, 1,024 and 2,048 workers as in the MVMDP paper; sendfile, no overrides, no log.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONNECTIONS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

const THREADS_PER_CHILD: usize = 256;

pub(super) struct Apache {
    name: String,
    workers: usize,
}

impl Apache {
    /// `workers` is a multiple of 256.
    pub(super) fn new(workers: usize) -> Self {
        Self { name: format!("apache-{workers}"), workers }
    }
}

impl Server for Apache {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("apache2")
    }

    fn package(&self) -> Option<&'static str> {
        Some("apache2")
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let children = self.workers / THREADS_PER_CHILD;
        // Idle connections beyond the workers: each child must be able to hold all of them.
        let factor = CONNECTIONS_MAX / THREADS_PER_CHILD + 1;
        let configuration = format!(
            r#"ServerRoot "/usr/lib/apache2"
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
ServerName localhost
Listen {address}
ListenBacklog 16384
User www-data
Group www-data
PidFile "{folder}/apache.pid"
DefaultRuntimeDir "{folder}"
ErrorLog "{folder}/error.log"
LogLevel error
Mutex default:{folder}
HostnameLookups Off
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout {KEEP_ALIVE_S}
Timeout {KEEP_ALIVE_S}
EnableSendfile On
EnableMMAP On
StartServers {children}
ServerLimit {children}
ThreadLimit {THREADS_PER_CHILD}
ThreadsPerChild {THREADS_PER_CHILD}
MaxRequestWorkers {workers}
MinSpareThreads 1
MaxSpareThreads {workers}
MaxConnectionsPerChild 0
AsyncRequestWorkerFactor {factor}
DocumentRoot "{root}"
<Directory "{root}">
    Options FollowSymLinks
    AllowOverride None
    Require all granted
</Directory>
"#,
            folder = directory.display(),
            workers = self.workers,
            root = site.root.display(),
        );
        let path = directory.join("apache.conf");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-DFOREGROUND").arg("-f").arg(path);
        Ok(command)
    }
}
