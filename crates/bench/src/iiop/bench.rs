//! What the cases have in common: omniORB's programs, two servers, whoever stands before them, and calls from the client.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::running::{Running, free_port, spawn};
use crate::experiment::{self, Records, RunOptions};
use crate::server::running::WorkFolder;

pub(super) const HAPROXY: &str = "haproxy";
/// The first server itself, with nobody in between.
pub(super) const DIRECT: &str = "direct";
/// leat, by what it finds a server for, and on which reactor.
pub(super) const LEAT: [(&str, &str, &str); 4] = [
    ("leat-io_uring", "request", "io_uring"),
    ("leat-epoll", "request", "epoll"),
    ("leat-io_uring, each connection", "connection", "io_uring"),
    ("leat-epoll, each connection", "connection", "epoll"),
];

const HOSTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];
const CORES: [usize; 2] = [2, 3];
const DISPATCHER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const WARM_UP_S: f64 = 0.3;

/// What the cases run on. Fields are dropped in this order.
pub(crate) struct Bench {
    pub(super) options: RunOptions,
    pub(crate) records: Records,
    dispatchers: Vec<(String, SocketAddr, Option<Running>)>,
    _servers: Vec<Running>,
    folder: WorkFolder,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// What one measurement brought.
pub(super) struct Calls {
    pub(super) answered: f64,
    pub(super) wrong: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of whoever stands in between.
    pub(super) spent: Duration,
}

impl Bench {
    pub(super) fn new(options: RunOptions, program: &Path) -> io::Result<Self> {
        let work = WorkFolder::create("iiop")?;
        let folder = work.path();
        build(folder)?;
        let port = free_port(&HOSTS)?;
        let address = |host: &str, port: u16| -> io::Result<SocketAddr> {
            Ok(SocketAddr::new(host.parse().map_err(io::Error::other)?, port))
        };
        // With fewer processors the client shares its own with the servers: what is measured has one to itself anyway.
        let last = std::thread::available_parallelism()?.get() - 1;
        let start = |(host, core): (&str, usize)| {
            let mut command = Command::new(folder.join("server"));
            command.args(["-ORBendPoint", &format!("giop:tcp:{host}:{port}")]);
            Running::listening(&mut command, (folder, host), address(host, port)?, core.min(last))
        };
        let servers = HOSTS.into_iter().zip(CORES).map(start).collect::<io::Result<Vec<_>>>()?;
        let mut records = Records::default();
        let mut dispatchers = vec![(DIRECT.to_owned(), address(HOSTS[0], port)?, None)];
        for (name, schedule, reactor) in LEAT {
            let at = address("127.0.0.1", free_port(&["127.0.0.1"])?)?;
            let file = folder.join(format!("{schedule}-{reactor}.toml"));
            fs::write(&file, leat_configuration(at, port, (schedule, reactor)))?;
            let mut command = Command::new(program);
            command.arg("dispatch").arg("--config").arg(&file);
            dispatchers.push((
                name.to_owned(),
                at,
                Some(Running::listening(&mut command, (folder, name), at, DISPATCHER_CORE)?),
            ));
        }
        let at = address("127.0.0.1", free_port(&["127.0.0.1"])?)?;
        let file = folder.join("haproxy.cfg");
        fs::write(&file, haproxy_configuration(at, port))?;
        match Running::listening(
            Command::new("haproxy").arg("-db").arg("-f").arg(&file),
            (folder, HAPROXY),
            at,
            DISPATCHER_CORE,
        ) {
            Ok(running) => dispatchers.push((HAPROXY.to_owned(), at, Some(running))),
            Err(error) => records.note(super::case::NAME, &format!("{error} (apt-get install haproxy)")),
        }
        Ok(Self { options, records, dispatchers, _servers: servers, folder: work })
    }

    /// Who is asked, in the order of the table.
    pub(super) fn asked(&self) -> Vec<String> {
        self.dispatchers.iter().map(|(name, ..)| name.clone()).collect()
    }

    /// Has the client call by way of one of those that are asked, on so many connections and with so many bytes each way.
    ///
    /// # Errors
    /// The client ends without saying what it found.
    pub(super) fn call(&self, who: &str, connections: usize, bytes: usize) -> io::Result<Calls> {
        let asked = self.dispatchers.iter().find(|(name, ..)| name == who);
        let (_, address, running) = asked.ok_or_else(|| io::Error::other(format!("{who} doesn't run")))?;
        let reference = format!("corbaloc::1.2@{address}/echo");
        let mut command = Command::new(self.folder.path().join("client"));
        command.args([&reference, &connections.to_string(), &bytes.to_string(), &WARM_UP_S.to_string()]);
        command.arg(self.options.seconds.to_string());
        command.args(["-ORBmaxGIOPConnectionPerServer", &connections.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut client = spawn(&mut command, CLIENT_CORE)?;
        let clock = || running.as_ref().map_or(Duration::ZERO, Running::cpu_time);
        let mut begin = Duration::ZERO;
        let mut found = None;
        for line in BufReader::new(client.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines() {
            let line = line?;
            match line.strip_prefix("end ") {
                Some(numbers) => {
                    found = read(numbers).map(|calls| Calls { spent: clock().saturating_sub(begin), ..calls })
                }
                None => begin = clock(),
            }
        }
        let status = client.wait()?;
        found.ok_or_else(|| io::Error::other(format!("{who}: the client ended with {status} and said nothing")))
    }
}

fn read(numbers: &str) -> Option<Calls> {
    let numbers: Vec<f64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let &[answered, wrong, p50_us, p99_us] = numbers.as_slice() else { return None };
    Some(Calls { answered, wrong, p50_us, p99_us, spent: Duration::ZERO })
}

/// Makes omniORB's programs in the folder.
fn build(folder: &Path) -> io::Result<()> {
    let sources = [
        ("echo.idl", include_str!("orb/echo.idl")),
        ("server.cc", include_str!("orb/server.cc")),
        ("client.cc", include_str!("orb/client.cc")),
    ];
    for (name, text) in sources {
        fs::write(folder.join(name), text)?;
    }
    run(folder, "omniidl", &["-bcxx", "echo.idl"])?;
    for name in ["server", "client"] {
        let source = PathBuf::from(name).with_extension("cc").display().to_string();
        let libraries = ["-lomniORB4", "-lomnithread", "-pthread"];
        run(folder, "g++", &[&["-O2", "-o", name, &source, "echoSK.cc"], libraries.as_slice()].concat())?;
    }
    Ok(())
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> io::Result<()> {
    let failed = |what: &str| {
        io::Error::other(format!("{program}: {}. As root: apt-get install g++ omniidl libomniorb4-dev", what.trim()))
    };
    let done = Command::new(program).args(arguments).current_dir(folder).output();
    let output = done.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(&String::from_utf8_lossy(&output.stderr))) }
}

fn leat_configuration(listen: SocketAddr, node_port: u16, (schedule, reactor): (&str, &str)) -> String {
    let nodes: String =
        HOSTS.iter().map(|host| format!("[[cluster.node]]\nname = '{host}'\naddress = '{host}'\n")).collect();
    format!(
        "role = 'dispatcher'\nworkers = 1\nreactor = '{reactor}'\n[admin]\nlisten = ''\n{nodes}[[cluster.port]]\n\
         listen = '{listen}'\nprotocol = 'iiop'\nnode_port = {node_port}\nschedule = '{schedule}'\npolicy = 'round_robin'\n"
    )
}

/// One thread; bytes go by splice(2) where it finds that worth it.
fn haproxy_configuration(listen: SocketAddr, node_port: u16) -> String {
    let servers: String = HOSTS.iter().map(|host| format!("    server {host} {host}:{node_port}\n")).collect();
    format!(
        "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 60s\n    \
         timeout server 60s\n    option splice-auto\nlisten orb\n    bind {listen} backlog 16384\n    balance roundrobin\n{servers}"
    )
}
