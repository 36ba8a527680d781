//! Tomcat 10 with its default servlet: one connector, no log, no limit of requests on a connection.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONNECTIONS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

/// Where Debian keeps it.
const HOME: &str = "/usr/share/tomcat10";
const THREADS: usize = 64;

pub(crate) struct Tomcat;

impl Server for Tomcat {
    fn name(&self) -> &str {
        "tomcat"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("java").filter(|_| Path::new(HOME).join("bin/bootstrap.jar").is_file())
    }

    fn package(&self) -> Option<&'static str> {
        Some("tomcat10")
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let folder = directory.join("conf");
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(Path::new(HOME).join("etc/web.xml"), folder.join("web.xml"))?;
        let configuration = format!(
            r#"<Server port="-1">
  <Service name="Catalina">
    <Connector protocol="HTTP/1.1" address="{host}" port="{port}" maxThreads="{THREADS}" maxConnections="{CONNECTIONS_MAX}"
               acceptCount="16384" maxKeepAliveRequests="-1" keepAliveTimeout="{KEEP_ALIVE_S}000" connectionTimeout="60000" />
    <Engine name="Catalina" defaultHost="localhost">
      <Host name="localhost" appBase="apps"><Context path="" docBase="{root}" /></Host>
    </Engine>
  </Service>
</Server>
"#,
            host = address.ip(),
            port = address.port(),
            root = site.root.display(),
        );
        std::fs::write(folder.join("server.xml"), configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg(format!("-Dcatalina.home={HOME}")).arg(format!("-Dcatalina.base={}", directory.display()));
        command.arg(format!("-Djava.io.tmpdir={}", directory.display()));
        command.args([
            "-Xmx256m",
            "-cp",
            &["bootstrap.jar", "tomcat-juli.jar"].map(|jar| format!("{HOME}/bin/{jar}")).join(":"),
        ]);
        command.args(["org.apache.catalina.startup.Bootstrap", "start"]);
        Ok(command)
    }
}
