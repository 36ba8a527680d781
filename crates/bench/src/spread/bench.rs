//! What the cases have in common: the lab, HAProxy in it, the file, load from the client's namespace, and what happens to fronts and nodes.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leat::ctl;

use crate::experiment::{self, Records, RunOptions};
use crate::lab::asking::ask_for;
use crate::lab::cost::{Meter, Spent};
use crate::lab::placed::Placed;
use crate::lab::proxy::{Place, Proxy};
use crate::lab::steered::steered_us;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab, ROUTER};
use crate::load::{self, Observer, Outcome, Plan};
use crate::server::running::WorkFolder;
use crate::server::{self, Site};
use crate::sys::process;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

pub(super) const LEAT: &str = "leat";
pub(super) const HAPROXY: &str = "haproxy";
pub(super) const FRONTS: [(&str, &str); 2] = [("front1", "10.77.0.1"), ("front2", "10.77.0.2")];
const NODES: [(&str, &str); 3] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12"), ("n3", "10.77.0.13")];
/// The node that is added.
pub(super) const ADDED: &str = "n3";
/// Where servers that aren't leat listen.
const SERVER_PORT: u16 = 8080;
const VIP: &str = "10.77.0.100";
const FILE: (&str, u64) = ("1k", 1 << 10);
/// How long a front may take until it has found all nodes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the cases run on. Fields are dropped in this order: who runs first, then what they run in.
pub(crate) struct Bench {
    pub(super) options: RunOptions,
    pub(crate) records: Records,
    proxy: Proxy,
    /// At the nodes, where these aren't leat's.
    servers: Vec<Placed>,
    lab: Lab,
    program: PathBuf,
    files: FileSet,
    folder: WorkFolder,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// Reads what each host spends.
pub(super) struct Meters(Vec<Meter>);

impl Meters {
    /// All of them together.
    pub(super) fn spent(&self) -> Spent {
        self.0.iter().fold(Spent::default(), |all, meter| Spent {
            process: all.process + meter.spent.process,
            waited: all.waited + meter.spent.waited,
            programs: all.programs + meter.spent.programs,
            program_runs: all.program_runs + meter.spent.program_runs,
            packets_in: all.packets_in + meter.spent.packets_in,
        })
    }
}

impl Observer for Meters {
    fn window_begins(&mut self) {
        self.0.iter_mut().for_each(Observer::window_begins);
    }

    fn window_ends(&mut self) {
        self.0.iter_mut().for_each(Observer::window_ends);
    }
}

impl Bench {
    pub(super) fn new(options: RunOptions, program: &Path) -> io::Result<Self> {
        Self::of_nodes(options, program, leats_node)
    }

    fn of_nodes(options: RunOptions, program: &Path, node: fn(&str, &str) -> String) -> io::Result<Self> {
        let _programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("spread")?;
        let root = folder.path().join("files");
        let files = FileSet::of_sizes(&root, &[FILE], options.seed)?;
        let lab = Lab::up(program, folder.path(), &[configuration(folder.path(), &root, node)])?;
        let (host, address) = FRONTS[0];
        let proxy = Proxy::haproxy_tcp(Place { lab: &lab, folder: folder.path(), host, address, servers: &NODES })?;
        let (program, records) = (program.to_owned(), Records::default());
        let servers = Vec::new();
        Ok(Self { options, records, proxy, servers, lab, program, files, folder, _programs_are_timed })
    }

    /// Another one, whose nodes are nginx with leat beside it; returns when the fronts give all of them connections.
    ///
    /// # Errors
    /// As [`Bench::new`], or nginx isn't installed.
    pub(super) fn with_nginx(&self) -> io::Result<Bench> {
        let nginx = server::nginx(None)?;
        let mut bench = Bench::of_nodes(self.options.clone(), &self.program, foreign_node)?;
        let site = Site { root: bench.folder.path().join("files"), only_file: None, close: false };
        for (number, (host, address)) in NODES.into_iter().enumerate() {
            let address = SocketAddr::new(address.parse().map_err(io::Error::other)?, SERVER_PORT);
            let at = (address, 2 + number % 2);
            bench.servers.push(Placed::start(&bench.lab, host, nginx.as_ref(), &site, at, bench.folder.path())?);
        }
        FRONTS.iter().try_for_each(|(front, _)| bench.await_nodes(front))?;
        Ok(bench)
    }

    /// Who stands between client and nodes, and where.
    pub(super) fn subjects(&self) -> [(&'static str, SocketAddr); 2] {
        [(LEAT, vip()), (HAPROXY, self.proxy.address)]
    }

    /// What a front's kernel takes to send a packet on, at this moment.
    ///
    /// # Errors
    /// It can't be measured.
    pub(super) fn steered_us(&self) -> io::Result<f64> {
        let hosts = FRONTS.iter().chain(&NODES).map(|(host, _)| self.lab.processes(host));
        let processes = hosts.collect::<io::Result<Vec<_>>>()?.concat();
        let node = SocketAddr::new(NODES[0].1.parse().map_err(io::Error::other)?, vip().port());
        steered_us(&self.lab, &processes, || {
            let begin = |address| {
                let mut stream = TcpStream::connect(address)?;
                ask_for(&mut stream, FILE).map(|_| stream)
            };
            Ok([begin(vip())?, begin(node)?])
        })
    }

    /// Requests for the file, on connections that the server closes after each where `close` says so.
    pub(super) fn requests(&self, close: bool) -> Mix {
        let content = self.files.content(FILE.0);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let target = Target::of_host(VIP, &format!("/{}", FILE.0), if close { CLOSE } else { "" });
        Mix::new(vec![(target.with_body(content.map(|(bytes, _)| bytes), body), 1.0)])
    }

    /// A closed loop. Every eighth body is compared.
    pub(super) fn saturate(&self, address: SocketAddr, connections: usize, window: Duration) -> Plan {
        Plan {
            warm_up: Duration::from_millis(200),
            window,
            drain: Duration::from_secs(5),
            verify_every: 8,
            seed: self.options.seed,
            sleep: true,
            ..Plan::saturate(address, connections)
        }
    }

    /// Runs a load in the client's namespace, and reads what `name` spends meanwhile.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, name: &str, plan: &Plan, mix: &Mix) -> io::Result<(Outcome, Meters)> {
        let mut meters = Meters(match name {
            LEAT => {
                let haproxy = self.proxy.processes();
                let processes = |(host, _): &(&str, &str)| {
                    let mut processes = self.lab.processes(host)?;
                    processes.retain(|pid| !haproxy.contains(pid));
                    Ok(Meter::new(processes))
                };
                FRONTS.iter().map(processes).collect::<io::Result<_>>()?
            }
            _ => vec![Meter::new(self.proxy.processes())],
        });
        let outcome = self.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, mix, &mut meters))?;
        Ok((outcome, meters))
    }

    fn socket(&self, front: &str) -> PathBuf {
        Lab::socket(self.folder.path()).with_added_extension(front)
    }

    /// Tells a front something.
    ///
    /// # Errors
    /// It doesn't answer.
    pub(super) fn tell(&self, front: &str, command: &ctl::Command) -> io::Result<serde_json::Value> {
        ctl::ask(&self.socket(front), command).map_err(io::Error::other)
    }

    /// Has the router send what is for the VIP to these fronts, as a routing protocol would.
    ///
    /// # Errors
    /// What ip(8) says.
    pub(super) fn route_to(&self, fronts: &[(&str, &str)]) -> io::Result<()> {
        let hops: String = fronts.iter().map(|(_, address)| format!(" nexthop via {address}")).collect();
        self.lab.run_at(ROUTER, &format!("ip route replace {VIP}/32{hops}"))
    }

    /// A front's machine dies: nothing is left of it.
    ///
    /// # Errors
    /// It can't be killed.
    pub(super) fn kill_front(&self, front: &str) -> io::Result<()> {
        self.lab.run_at(front, "ip link set eth0 down")?;
        let haproxy = self.proxy.processes();
        for pid in self.lab.processes(front)?.into_iter().filter(|pid| !haproxy.contains(pid)) {
            process::signal(pid, libc::SIGKILL)?;
        }
        let mark = format!("leat-{}-", fs::metadata(self.lab.namespace(front))?.ino());
        for entry in fs::read_dir("/sys/fs/bpf")?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&mark) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// A front comes that remembers nothing; returns when it has found all nodes.
    ///
    /// # Errors
    /// It doesn't start, or doesn't find them.
    pub(super) fn start_front(&self, front: &str) -> io::Result<Child> {
        self.lab.run_at(front, "ip link set eth0 up; ip route replace default via 10.77.0.254")?;
        let namespace = format!("--net={}", self.lab.namespace(front).display());
        let mut command = Command::new("nsenter");
        command.arg(namespace).arg(&self.program).args(["dispatch", "--name", front, "--config"]);
        command.arg(self.folder.path().join("cluster0.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process::start_as_others(&mut command, &[0]);
        let child = command.spawn()?;
        self.await_nodes(front)?;
        Ok(child)
    }

    /// Returns when a front gives all nodes connections.
    fn await_nodes(&self, front: &str) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let nodes = self.tell(front, &ctl::Command::Nodes).unwrap_or_default();
            let found = nodes["nodes"].as_array().into_iter().flatten();
            if found.filter(|node| node["standing"] == "may be chosen").count() == NODES.len() {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{front} doesn't find all nodes: {nodes}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn leats_node(name: &str, address: &str) -> String {
    format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n")
}

fn foreign_node(name: &str, address: &str) -> String {
    format!("{}port = {SERVER_PORT}\nfor = '{address}:{SERVER_PORT}'\n", leats_node(name, address))
}

/// All nodes serve `root`.
fn configuration(folder: &Path, root: &Path, node: fn(&str, &str) -> String) -> String {
    format!(
        "[admin]\nlisten = '127.0.0.1:9180'\nsocket = '{}'\n[cluster]\nspread = 'l4'\nvip = '{VIP}:80'\ndispatchers = ['{}', '{}']\n\
         key_file = 'cluster.key'\n[cluster.health]\ninterval = '200ms'\ntimeout = '200ms'\nfall = 10\npath = '/1k'\n{}[[site]]\nroot = '{}'\n\
         listen = '0.0.0.0:80'\n{}",
        Lab::socket(folder).display(),
        FRONTS[0].1,
        FRONTS[1].1,
        NODES.iter().map(|(name, address)| node(name, address)).collect::<String>(),
        root.display(),
        lab::processors(),
    )
}

/// leat's address.
pub(super) fn vip() -> SocketAddr {
    SocketAddr::new(VIP.parse().expect("it's written as an address"), 80)
}
