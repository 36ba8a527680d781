//! A server process of its own for each test: started on ports that the kernel picks, ended with the test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::client::{Client, Reply};
use super::directory::Directory;
use super::patience::{PATIENCE, eventually};

/// The two ways to talk to the kernel; every end-to-end test runs on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reactor {
    Epoll,
    IoUring,
}

impl Reactor {
    /// As on the command line and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Reactor::Epoll => "epoll",
            Reactor::IoUring => "io_uring",
        }
    }
}

/// The program under test. `LEAT_BINARY` names another build of it.
pub fn binary() -> PathBuf {
    std::env::var_os("LEAT_BINARY").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_leat")), PathBuf::from)
}

/// What a process has printed so far, line by line.
#[derive(Default)]
struct Lines {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

impl Lines {
    fn follow(from: impl Read + Send + 'static) -> Arc<Lines> {
        let lines = Arc::new(Lines::default());
        let filled = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                filled.lines.lock().unwrap().0.push(String::from_utf8_lossy(&line).into_owned());
                filled.grown.notify_all();
            }
            filled.lines.lock().unwrap().1 = true;
            filled.grown.notify_all();
        });
        lines
    }

    fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().0.clone()
    }

    /// Waits until `pick` finds what it wants; `None` when the output ended, or time ran out, without it.
    fn wait<T>(&self, mut pick: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        let mut guard = self.lines.lock().unwrap();
        loop {
            if let Some(found) = pick(&guard.0) {
                return Some(found);
            }
            let left = PATIENCE.checked_sub(start.elapsed())?;
            if guard.1 {
                return None;
            }
            guard = self.grown.wait_timeout(guard, left).unwrap().0;
        }
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A running server.
pub struct Server {
    child: Child,
    mark: String,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// `leat serve DIR`, with no configuration.
    pub fn of(reactor: Reactor, root: impl AsRef<Path>) -> Server {
        Server::with(reactor, root, &[])
    }

    /// `leat serve DIR` with more arguments.
    pub fn with(reactor: Reactor, root: impl AsRef<Path>, more: &[&str]) -> Server {
        let mut arguments = vec![OsStr::new("serve"), root.as_ref().as_os_str()];
        arguments.extend(["--listen", "127.0.0.1:0", "--reactor", reactor.name()].map(OsStr::new));
        arguments.extend(more.iter().map(OsStr::new));
        Server::start(&arguments, 1)
    }

    /// `leat serve --config`, with a file of this text written to `directory`. No admin address unless the text has one.
    pub fn configured(reactor: Reactor, directory: &Directory, text: &str) -> Server {
        Server::configured_with_listeners(reactor, directory, text, 1)
    }

    /// As [`Server::configured`], with more than one address to listen on.
    pub fn configured_with_listeners(reactor: Reactor, directory: &Directory, text: &str, listeners: usize) -> Server {
        let file = write_configuration(reactor, directory, text);
        Server::start(&[OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()], listeners)
    }

    /// Gives it another configuration and waits for the line that says what became of it.
    pub fn reload(&self, reactor: Reactor, directory: &Directory, text: &str) -> String {
        write_configuration(reactor, directory, text);
        let before = self.stderr().len();
        self.signal("HUP");
        let found = self.stderr.wait(|lines| lines[before..].iter().find(|line| line.contains("in force")).cloned());
        found.unwrap_or_else(|| panic!("nothing was said about the new configuration: {:#?}", self.stderr()))
    }

    /// The admin address, which the configuration must have.
    pub fn admin(&self) -> SocketAddr {
        self.wait_for_stdout("admin address", |lines| {
            lines.iter().find_map(|line| address_after(line, "admin on http://"))
        })
    }

    /// Starts the program and waits until it has printed as many addresses as it has listeners.
    pub fn start(arguments: &[&OsStr], listeners: usize) -> Server {
        Server::start_program(&binary(), arguments, listeners)
    }

    /// As [`Server::start`], with more variables in its environment.
    pub fn start_with(arguments: &[&OsStr], listeners: usize, environment: &[(&str, &OsStr)]) -> Server {
        let mut command = Command::new(binary());
        command.args(arguments).envs(environment.iter().copied());
        Server::run(command, listeners)
    }

    /// As [`Server::start`], with another copy of the program.
    pub fn start_program(program: &Path, arguments: &[&OsStr], listeners: usize) -> Server {
        let mut command = Command::new(program);
        command.args(arguments);
        Server::run(command, listeners)
    }

    fn run(mut command: Command, listeners: usize) -> Server {
        // The mark finds every process of this server again, whoever their parents are by then.
        let mark = format!("leat-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        command.env("LEAT_TEST_MARK", &mark).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that a test has just written is busy as long as a process that another test started meanwhile hasn't become another
        // program: until then it has inherited the descriptor.
        let mut child = eventually("the program isn't busy", || match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
            started => Some(started),
        })
        .expect("the program starts");
        let stdout = Lines::follow(child.stdout.take().unwrap());
        let stderr = Lines::follow(child.stderr.take().unwrap());
        let mut server = Server { child, mark, stdout, stderr, addresses: Vec::new() };
        let found = server.stdout.wait(|lines| {
            let addresses: Vec<_> = lines.iter().filter_map(|line| listening(line)).collect();
            (addresses.len() >= listeners).then_some(addresses)
        });
        let Some(found) = found else {
            panic!(
                "no `listening on` line from {command:?}\nstdout: {:#?}\nstderr: {:#?}",
                server.stdout(),
                server.stderr()
            );
        };
        server.addresses = found;
        server
    }

    /// The first listener.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All listeners, in the order of their lines.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The URL of a path on the first listener.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// A new connection to the first listener.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// The reply to one request on a connection of its own.
    pub fn request(&self, request: impl AsRef<[u8]>) -> Reply {
        self.connect().ask(request)
    }

    /// The reply to `GET path`.
    pub fn get(&self, path: &str) -> Reply {
        self.get_with(path, "")
    }

    /// The reply to `GET path` with more field lines, each with its CRLF.
    pub fn get_with(&self, path: &str, fields: &str) -> Reply {
        self.request(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"))
    }

    /// The main process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Every process of this server that lives, the main one too.
    pub fn processes(&self) -> Vec<u32> {
        let wanted = format!("LEAT_TEST_MARK={}", self.mark).into_bytes();
        let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers
            .filter(|pid: &u32| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|&byte| byte == 0).any(|entry| entry == wanted) && !is_zombie(*pid)
            })
            .collect()
    }

    /// Processor time that its processes have used, as exact as the kernel tells it: in hundredths of a second.
    pub fn processor_time(&self) -> Duration {
        let ticks = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
            [11, 12].iter().filter_map(|&place| fields.get(place)?.parse::<u64>().ok()).sum::<u64>()
        };
        Duration::from_millis(10 * self.processes().into_iter().map(ticks).sum::<u64>())
    }

    /// Sends a signal (`TERM`, `HUP`, ...) to the main process.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the main process to end by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        eventually("the server ends", || self.child.try_wait().unwrap())
    }

    /// Whether the main process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has printed to standard output.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.all()
    }

    /// What it has printed to standard error.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.all()
    }

    /// Waits for a line on standard output that `pick` takes.
    pub fn wait_for_stdout<T>(&self, what: &str, pick: impl FnMut(&[String]) -> Option<T>) -> T {
        self.stdout.wait(pick).unwrap_or_else(|| panic!("no {what} on stdout: {:#?}", self.stdout()))
    }

    /// Waits for a line on standard error that contains one of `words`, and returns it.
    pub fn wait_for_stderr(&self, words: &[&str]) -> String {
        let found = self.stderr.wait(|lines| {
            lines.iter().find(|line| words.iter().any(|word| line.to_lowercase().contains(word))).cloned()
        });
        found.unwrap_or_else(|| panic!("no line with one of {words:?} on stderr: {:#?}", self.stderr()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.stderr() {
                eprintln!("server: {line}");
            }
        }
        // Programs know nothing of this test: they are found by their parents, while these live.
        let programs = descendants(self.pid());
        // The main process first, so that it starts no others.
        signal(self.pid(), "KILL");
        let _ = self.child.wait();
        for pid in self.processes().into_iter().chain(programs) {
            signal(pid, "KILL");
        }
    }
}

/// Children of a process, and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
    };
    let mut found: Vec<u32> = children(pid).collect();
    let mut at = 0;
    while at < found.len() {
        let more: Vec<u32> = children(found[at]).collect();
        found.extend(more);
        at += 1;
    }
    found
}

/// Sends a signal to a process of this test's server.
pub fn signal(pid: u32, name: &str) {
    // The command, as the call itself would need unsafe. It fails when the process has just ended.
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// Runs the program to its end: (exit code, stdout, stderr).
pub fn run(arguments: &[&OsStr]) -> (Option<i32>, String, String) {
    let child = Command::new(binary())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(PATIENCE).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
            signal(pid, "KILL");
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watch.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn listening(line: &str) -> Option<SocketAddr> {
    let rest = line.strip_prefix("listening on ")?;
    address_after(rest, "://")
}

fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    line.split_once(words)?.1.split('/').next()?.trim().parse().ok()
}

/// Writes `leat.toml`: the reactor, then `text`.
pub fn write_configuration(reactor: Reactor, directory: &Directory, text: &str) -> PathBuf {
    let admin = if text.contains("[admin]") { "" } else { "\n[admin]\nlisten = \"\"\n" };
    directory.write("leat.toml", format!("reactor = \"{}\"\n{text}\n{admin}", reactor.name()))
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}
