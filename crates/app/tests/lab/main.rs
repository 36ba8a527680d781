//! `leat lab` with the real binary: a cluster in namespaces, reached by its clients, and nothing left of it afterwards. Needs root, iproute2 and
//! curl; says so and ends where they are missing, and fails where `LEAT_REQUIRE_NAMESPACES` is set.

mod born;
mod checks;
mod clients;
mod deaths;
mod direct;
mod foreign;
mod fronts;
mod motion;
mod nodes;
mod passing;
mod paths;
mod peer;
mod privileges;
mod replays;
mod resets;
mod restart;
mod split;
mod split_near;
mod split_shared;
mod spread;
mod transplants;
mod upgrade;
mod ways;

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A lab of this test's own, taken down when it's dropped.
struct Lab {
    name: String,
}

impl Lab {
    fn new() -> Lab {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Lab { name: format!("t{}x{}", COUNT.fetch_add(1, Ordering::Relaxed), std::process::id()) }
    }

    fn leat(&self, arguments: &[&str]) -> Output {
        let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
        let mut command = Command::new(program);
        command.args(["lab", "--name", &self.name]).args(arguments).output().expect("leat can be run")
    }

    fn well(&self, arguments: &[&str]) -> String {
        let output = self.leat(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "leat lab {}: {said}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The status of a reply to curl at `host`, `000` where there was none.
    fn curl(&self, host: &str, url: &str) -> String {
        let command = ["exec", host, "curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", url];
        String::from_utf8_lossy(&self.leat(&command).stdout).into_owned()
    }

    /// Does something in a host's namespace, on a thread of its own. Sockets that it makes stay there.
    fn at<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/leat-lab-{}-{host}", self.name);
        let namespace = fs::File::open(&path).expect("the lab is up");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind)
                    .expect("root may enter it");
                work()
            });
            thread.join().expect("it ends well")
        })
    }

    /// Has every process at a host die at once: all stand still before the first is killed, as one that outlives its supervisor by a moment gives its
    /// connections away. Returns when nothing is left of their connections, which may be a while after them, as threads and rings
    /// have files too: until then their kernel takes in what clients send.
    fn kill(&self, host: &str) {
        self.stop(host);
        // An engine that has died with its supervisor can't be sent anything any more: what counts is that none is left.
        self.send(host, "-KILL");
        within("they die", || self.processes(host).trim().is_empty());
        let connections = || self.well(&["exec", host, "ss", "-Htn", "state", "established"]);
        within("their connections end", || connections().trim().is_empty());
    }

    /// Stops every process at a host: none of them does anything from then on.
    fn stop(&self, host: &str) {
        self.signal(host, "-STOP");
        let state = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let stands = |pid: &str| {
            let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it's there, stopped");
            tasks.all(|task| task.is_ok_and(|task| state(task).contains("State:\tT")))
        };
        let pids = self.processes(host);
        within("they stop", || pids.split_whitespace().all(stands));
    }

    fn processes(&self, host: &str) -> String {
        let pids = Command::new("ip").args(["netns", "pids", &format!("leat-lab-{}-{host}", self.name)]).output();
        String::from_utf8_lossy(&pids.expect("ip can be run").stdout).into_owned()
    }

    /// Sends every process at a host a signal.
    fn signal(&self, host: &str, signal: &str) {
        assert!(self.send(host, signal));
    }

    /// Whether all of a host's processes were there to be sent a signal.
    fn send(&self, host: &str, signal: &str) -> bool {
        let processes = self.processes(host);
        assert!(processes.split_whitespace().count() >= 2, "a supervisor and an engine, not {processes:?}");
        let sent = Command::new("kill").arg(signal).args(processes.split_whitespace()).status();
        sent.expect("there is kill").success()
    }

    /// Has a host's supervisor read its configuration anew, and waits until it has.
    fn reload(&self, host: &str) {
        let reloads = || self.number(host, "leat_reloads_total");
        let before = reloads();
        self.tell_supervisor(host, "-HUP");
        within("it reloads", || reloads() > before);
    }

    /// Sends the supervisor of a host's only leat a signal.
    fn tell_supervisor(&self, host: &str, signal: &str) {
        self.tell(host, true, signal);
    }

    /// Has the engine of a host's only leat die at once. Its supervisor starts another.
    fn kill_engine(&self, host: &str) {
        self.tell(host, false, "-KILL");
    }

    /// An engine that has just died may not have been followed by the next yet.
    fn tell(&self, host: &str, is_for_supervisor: bool, signal: &str) {
        within("it runs, and is told", || self.is_told(host, is_for_supervisor, signal));
    }

    fn is_told(&self, host: &str, is_for_supervisor: bool, signal: &str) -> bool {
        let pids = self.processes(host);
        let parent = |pid: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned())).unwrap_or_default()
        };
        // Another server's process may have the lower number, once these have come to their end and begin anew.
        let is_leat = |pid: &&str| {
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("leat"))
        };
        let is_supervisor = |pid: &str| !pids.split_whitespace().any(|other| other == parent(pid));
        let is_meant = |pid: &&str| is_supervisor(pid) == is_for_supervisor;
        let Some(whom) = pids.split_whitespace().filter(is_leat).find(is_meant) else { return false };
        Command::new("kill").args([signal, whom]).status().is_ok_and(|status| status.success())
    }

    /// A number of a host's metrics, once it stands still.
    fn number(&self, host: &str, name: &str) -> u64 {
        self.number_at(host, 9180, name)
    }

    /// The same of the leat there that tells its metrics at another port.
    fn number_at(&self, host: &str, port: u16, name: &str) -> u64 {
        let [number] = self.numbers([(host, port, name)]);
        number
    }

    /// A number of several hosts' metrics, summed up.
    fn total<const N: usize>(&self, hosts: [&str; N], name: &str) -> u64 {
        self.numbers(hosts.map(|host| (host, 9180, name))).iter().sum()
    }

    /// Numbers of metrics, by their hosts, ports and names, once all of them stand still.
    fn numbers<const N: usize>(&self, names: [(&str, u16, &str); N]) -> [u64; N] {
        let read = || {
            names.map(|(host, port, name)| {
                let page = self.metrics(host, port);
                let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
                line.unwrap_or_else(|| panic!("{host} doesn't tell {name}"))
            })
        };
        let mut last = read();
        loop {
            // Some of them are told four times a second.
            std::thread::sleep(Duration::from_millis(300));
            let next = read();
            if next == last {
                return last;
            }
            last = next;
        }
    }

    fn metrics(&self, host: &str, port: u16) -> String {
        let read = || {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page).map(|_| page)
        };
        self.at(host, read).unwrap_or_else(|error| panic!("the metrics of {host}: {error}"))
    }

    /// What a test that fails is to be understood by: the ends of its servers' logs.
    fn show_logs(&self) {
        let folder = std::path::Path::new("/run/leat-lab").join(&self.name);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let end = &lines[lines.len().saturating_sub(20)..];
                eprintln!("{}:\n{}", entry.path().display(), end.join("\n"));
            }
        }
    }

    /// Names of what is left of it.
    fn remains(&self) -> Vec<String> {
        let prefix = format!("leat-lab-{}-", self.name);
        let mut folders = vec![PathBuf::from("/run/netns")];
        folders.extend(
            ["cpu", "cpuset", "memory", "blkio"].map(|controller| Path::new("/sys/fs/cgroup").join(controller)),
        );
        let entries =
            folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flat_map(|entries| entries.flatten());
        let mut names: Vec<_> = entries.map(|entry| entry.path().display().to_string()).collect();
        names.retain(|name| name.contains(&prefix));
        let state = Path::new("/run/leat-lab").join(&self.name);
        names.extend(state.exists().then(|| state.display().to_string()));
        names
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        self.leat(&["down"]);
    }
}

/// Whether labs can be built here, or the reason why not, printed.
fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(find_out)
}

fn find_out() -> bool {
    let works = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let name = format!("leat-lab-probe-{}", std::process::id());
    let can_make = works("ip", &["netns", "add", &name]);
    if can_make {
        works("ip", &["netns", "delete", &name]);
    }
    let is_possible = can_make && works("curl", &["--version"]) && works("nsenter", &["--version"]);
    let is_required = std::env::var_os("LEAT_REQUIRE_NAMESPACES").is_some();
    assert!(is_possible || !is_required, "LEAT_REQUIRE_NAMESPACES is set, but no lab can be built here");
    if !is_possible {
        println!("skipped: a lab needs root, iproute2, util-linux and curl");
    }
    is_possible
}

#[test]
fn a_cluster_is_built_reached_and_removed() {
    if !is_possible() {
        return;
    }
    let (lab, example) = (Lab::new(), repository().join("examples/cluster.toml"));
    let example = example.to_str().expect("a path in UTF-8");
    let said = lab.well(&["up", example]);
    assert!(said.contains("client2") && said.contains("10.77.0.100:80"), "{said}");
    for address in ["10.77.0.11", "10.77.0.12", "10.78.0.3", "[fd77::11]", "[fd77::12]", "[fd78::3]"] {
        assert_eq!(lab.curl("client", &format!("http://{address}/")), "200", "{address}");
        assert_eq!(lab.curl("client2", &format!("http://{address}/")), "200", "{address}");
        assert_eq!(lab.curl("dispatcher", &format!("http://{address}/")), "200", "{address}");
    }
    // By way of the dispatcher, whose nodes answer: replies carry no trace of that, but the nodes' numbers do.
    for vip in ["10.77.0.100", "[fd77::100]"] {
        let url = format!("http://{vip}/");
        for _ in 0..20 {
            assert_eq!(lab.curl("client", &url), "200", "{vip}");
        }
        // One connection, several requests: it stays at its node.
        let several = ["exec", "client2", "curl", "-s", "-m", "5", &url, &format!("{url}nothing"), &url];
        assert!(String::from_utf8_lossy(&lab.leat(&several).stdout).matches("<title>").count() >= 2, "{vip}");
        let upload =
            ["exec", "client", "curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", "-d", "x=y", &url];
        assert_eq!(lab.well(&upload), "405", "{vip}");
    }
    let count = |what| lab.total(["n1", "n2", "n3"], what);
    // Where the kernel can, they began at their node. Where it can't, those of several requests may have gone on to where their content is.
    let (born, moved) = (count("leat_births_total"), count("leat_handoffs_total"));
    let all = if born == 0 { 44..=48 } else { 44..=44 };
    let handed_over = if born == 0 { moved } else { born };
    assert!(all.contains(&handed_over), "every connection was handed over: {born} began at nodes, {moved} were moved");
    // A node has the VIP, and nobody hears of it: what a client sends there goes to the dispatcher.
    for vip in ["10.77.0.100", "[fd77::100]"] {
        assert_eq!(lab.curl("n1", &format!("http://{vip}/")), "200", "{vip}");
        assert_eq!(lab.curl("n3", &format!("http://{vip}/")), "200", "{vip}");
    }
    let neighbours = lab.well(&["exec", "router", "ip", "neigh", "show", "10.77.0.100"]);
    assert!(neighbours.is_empty() || !neighbours.contains("FAILED"), "{neighbours}");
    let status = lab.well(&["status"]);
    assert!(status.contains("n1: ") && status.contains("client1: 0 processes"), "{status}");
    let again = lab.leat(&["up", example]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is up already"));
    let nowhere = lab.leat(&["exec", "n9", "true"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("there is no host n9: they are "));
    // As who was killed in building it has left it.
    fs::remove_file(format!("/run/leat-lab/{}/about", lab.name)).expect("it's what status shows");
    assert!(lab.well(&["status"]).contains(&format!("isn't whole: leat lab down --name {}\n", lab.name)));
    lab.well(&["down"]);
    assert_eq!(lab.remains(), Vec::<String>::new());
    assert!(lab.well(&["status"]).contains("isn't up"));
}

#[test]
fn a_drained_node_gives_up_its_connections_and_none_is_cut() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("drain"));
    let socket = folder.path("leat.sock");
    let text = format!(
        "[admin]\nlisten = ''\nsocket = '{socket}'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\n[[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n\
         [[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n[[site]]\nroot = 'site'\n"
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let mut clients = lab.at("client1", || {
        let connect = |_| TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens");
        let mut clients: Vec<TcpStream> = (0..60).map(connect).collect();
        clients.iter_mut().for_each(|stream| ask(stream).expect("a node answers"));
        clients
    });
    let flows = |node: &str| foreign::held(&folder, node);
    // About half each: a node that has just come up grows to its weight.
    let at_first = flows("n1");
    assert!((15..=45).contains(&at_first) && at_first + flows("n2") == 60, "{at_first} of 60");
    let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
    let drained = Command::new(program).args(["drain", "n1", "--timeout", "20", "--socket", &socket]).output();
    let drained = String::from_utf8_lossy(&drained.expect("leat can be run").stdout).into_owned();
    assert!(drained.contains(&format!("{at_first} connections are to leave it\nn1 is empty after ")), "{drained}");
    assert_eq!((flows("n1"), flows("n2")), (0, 60));
    clients.iter_mut().for_each(|stream| ask(stream).expect("the other node answers"));
    // There's nowhere to go on when the last node dies, but nobody waits for it: who is known to have had the last reply is refused, others are reset.
    lab.kill("n2");
    let outcomes = lab.at("client1", || clients.iter_mut().map(ask).collect::<Vec<_>>());
    for outcome in outcomes {
        let kind = outcome.expect_err("its node is dead").kind();
        assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::HostUnreachable), "{kind}");
    }
}

/// Waits until something is so.
fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_worker_of_dispatcher_and_nodes_has_its_part() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("workers"));
    let socket = folder.path("leat.sock");
    let configure = |workers: usize| {
        let text = format!(
            "workers = {workers}\n[admin]\nlisten = '127.0.0.1:9180'\nsocket = '{socket}'\n[cluster]\nvip = '10.77.0.100:80'\n\
             dispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\npolicy = 'round_robin'\n[[cluster.node]]\nname = 'n1'\n\
             address = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n[[site]]\nroot = 'site'\n"
        );
        fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    };
    configure(3);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let connect_some = || {
        let connect = |_| TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens");
        let mut clients: Vec<TcpStream> = (0..30).map(connect).collect();
        clients.iter_mut().for_each(|stream| ask(stream).expect("a node answers"));
        clients
    };
    let mut clients = Vec::new();
    let busy_workers = |node: &str| {
        let names = (0..3).map(|worker| format!("leat_connections{{worker=\"{worker}\"}}"));
        names.filter(|name| lab.number(node, name) > 0).count()
    };
    // A link to each of the dispatcher's workers from each of the nodes' takes a moment.
    within("every worker has its part", || {
        clients.append(&mut lab.at("client1", connect_some));
        busy_workers("n1") == 3 && busy_workers("n2") == 3
    });
    let count = clients.len() as u64;
    let answer = |command| leat::ctl::ask(Path::new(&socket), &command).expect("the dispatcher answers");
    let flows = || {
        let flows = answer(leat::ctl::Command::Flows);
        let of = |node: &str| flows["nodes"][node].as_u64().expect("a number");
        (flows["flows"].as_u64().expect("a number"), of("n1"), of("n2"))
    };
    assert_eq!((flows().0, flows().1 + flows().2), (count, count), "of all homes together");
    let nodes = answer(leat::ctl::Command::Nodes);
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(2), "{nodes}");
    // Workers that go give back what they have, workers that come are given some: at the homes, then at the nodes.
    let mut ask_all = |when: &str| {
        for (number, stream) in clients.iter_mut().enumerate() {
            ask(stream).unwrap_or_else(|error| panic!("{when}: client {number}: {error}"));
        }
    };
    for workers in [1, 3] {
        configure(workers);
        lab.reload("dispatcher");
        ask_all("a dispatcher's workers changed");
    }
    for workers in [1, 3] {
        configure(workers);
        ["n1", "n2"].iter().for_each(|node| lab.reload(node));
        ask_all("nodes' workers changed");
    }
    within("all are at nodes", || flows().1 + flows().2 == count);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

/// So many connections more to a dispatcher; then each that there is asks for something.
fn connect_and_ask(lab: &Lab, clients: &mut Vec<TcpStream>, count: usize) {
    lab.at("client1", || {
        clients.extend((0..count).map(|_| TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens")));
        clients.iter_mut().for_each(|stream| ask(stream).expect("a node answers"));
    });
}

/// Asks for the site's page on a connection that stays.
fn ask(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let (mut reply, mut room) = (Vec::new(), [0; 16384]);
    while !reply.ends_with(b"the end") {
        let count = stream.read(&mut room)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reply.extend_from_slice(&room[..count]);
        if reply.starts_with(b"HTTP/1.1 503 ") {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
    }
    assert!(reply.starts_with(b"HTTP/1.1 200 "));
    Ok(())
}

/// A directory with a site and a key, for a lab of its own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("leat-lab-{name}{number}-{}", std::process::id()));
        fs::create_dir_all(folder.join("site")).expect("a directory for the test");
        fs::write(folder.join("site/large"), [&[b'x'; 50_000][..], b"the end"].concat()).expect("a file to serve");
        fs::write(folder.join("cluster.key"), "0f".repeat(32)).expect("a key");
        Folder(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn clients_may_be_far_away_behind_a_line_that_loses_and_reorders() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("far"));
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(folder.path("site/file"), &content).expect("a file to serve");
    let text = "[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[site]]\nroot = 'site'\n\
                [lab]\nclients = 2\nclient_delay = '20ms'\nclient_loss = '1%'\nclient_reorder = '1%'\noffloads = false\n";
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    for client in ["client1", "client2"] {
        let began = std::time::Instant::now();
        let got = lab.leat(&["exec", client, "curl", "-s", "-m", "60", "http://10.77.0.100/file"]).stdout;
        assert!(got == content, "{client} got {} bytes", got.len());
        // A handshake and a request take a round trip each.
        assert!(began.elapsed() >= Duration::from_millis(80), "{:?}", began.elapsed());
    }
    lab.well(&["down"]);
    assert_eq!(lab.remains(), Vec::<String>::new());
}

#[test]
fn limits_hold_and_what_is_left_of_a_crash_is_removed() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), std::env::temp_dir().join(format!("leat-lab-test-{}", std::process::id())));
    fs::create_dir_all(folder.join("site")).expect("a directory for the test");
    fs::write(folder.join("site/large"), vec![b'x'; 2_000_000]).expect("a file to serve");
    fs::write(folder.join("cluster.key"), "0f".repeat(32)).expect("a key");
    let file = folder.join("cluster.toml");
    let text = "[admin]\nlisten = ''\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[site]]\nroot = 'site'\n[lab]\nnode_rate_mbit = 16\n";
    fs::write(&file, text).expect("a configuration");
    let file = file.to_str().expect("a path in UTF-8");
    lab.well(&["up", file]);
    let curl = ["exec", "client", "curl", "-s", "-o", "/dev/null", "-w", "%{time_total}", "http://10.77.0.11/large"];
    let seconds: f64 = lab.well(&curl).parse().expect("a number of seconds");
    assert!(seconds > 0.7, "2 MB at 16 Mbit/s take a second, and not {seconds}");
    // As after a crash: nothing says what there is but the names.
    fs::remove_dir_all(Path::new("/run/leat-lab").join(&lab.name)).expect("it was there");
    lab.well(&["down"]);
    assert_eq!(lab.remains(), Vec::<String>::new());

    fs::write(file, text.replace("node_rate_mbit = 16", "node_cpu_percent = 25\nnode_cpus = '0'"))
        .expect("a configuration");
    if Path::new("/sys/fs/cgroup/cpu/cgroup.procs").exists() {
        lab.well(&["up", file]);
        let group = format!("/sys/fs/cgroup/cpu/leat-lab-{}-n1", lab.name);
        let read = |file: &str| fs::read_to_string(format!("{group}/{file}")).expect("the group is there");
        assert_eq!(read("cpu.cfs_quota_us").trim(), "2500");
        assert!(read("cgroup.procs").lines().count() >= 2, "supervisor and engine");
        lab.well(&["down"]);
    }
    fs::write(file, text.replace("node_rate_mbit = 16", "node_cpus = '4095'")).expect("a configuration");
    let refused = lab.leat(&["up", file]);
    assert!(!refused.status.success(), "there are no such processors");
    assert_eq!(lab.remains(), Vec::<String>::new(), "what was built before the failure is gone");
    assert_eq!(told_of(file), Vec::<String>::new(), "and so is who was started");

    if Path::new("/sys/fs/cgroup/blkio/cgroup.procs").exists() {
        copies_of_its_own(&lab, &folder, (file, text));
    }
    fs::remove_dir_all(&folder).expect("the test's directory");
}

/// The command lines of processes that were told of a file.
fn told_of(file: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").expect("there is proc").flatten();
    let lines = lines.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.map(|line| line.replace('\0', " ")).filter(|line| line.contains(file)).collect()
}

/// Nodes have files, memory and a disk of their own.
fn copies_of_its_own(lab: &Lab, folder: &Path, (file, text): (&str, &str)) {
    fs::create_dir_all(folder.join("copies/n2")).expect("a directory for the test");
    fs::write(
        file,
        text.replace("node_rate_mbit = 16", "node_read_rate = '1MiB'\nnode_memory = '256MiB'\nnode_files = 'copies'"),
    )
    .expect("a configuration");
    let refused = lab.leat(&["up", file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("copies/n1 isn't a directory: create it"), "{said}");
    assert_eq!(lab.remains(), Vec::<String>::new());
    assert_eq!(told_of(file), Vec::<String>::new());
    fs::rename(folder.join("copies/n2"), folder.join("copies/n1")).expect("a directory for the test");
    fs::write(folder.join("copies/n1/own"), "its own").expect("a file to serve");
    lab.well(&["up", file]);
    assert_eq!(lab.curl("client", "http://10.77.0.100/own"), "200");
    assert_eq!(lab.curl("client", "http://10.77.0.100/large"), "404", "that is others'");
    assert!(folder.join("site/large").exists(), "the site is where it was");
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).expect("the group is there");
    let (memory, blkio) = (format!("memory/leat-lab-{}-n1", lab.name), format!("blkio/leat-lab-{}-n1", lab.name));
    assert_eq!(read(&format!("{memory}/memory.limit_in_bytes")).trim(), (256 << 20).to_string());
    assert!(read(&format!("{blkio}/blkio.throttle.read_bps_device")).trim().ends_with(" 1048576"));
    assert!(read(&format!("{blkio}/cgroup.procs")).lines().count() >= 2, "supervisor and engine");
    lab.well(&["down"]);
}
