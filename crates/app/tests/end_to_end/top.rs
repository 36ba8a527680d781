//! `leat top`: its samples for scripts, and that it leaves a terminal as it found it. The terminal is `script`'s (util-linux).

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::support::patience::PATIENCE;
use crate::support::server::{binary, run, signal};
use crate::support::{Directory, Reactor, Server, eventually};

const ENTER_ALTERNATE_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_ALTERNATE_SCREEN: &str = "\u{1b}[?1049l";

fn server(directory: &Directory) -> Server {
    directory.write("site/a.txt", "alpha\n");
    let text = "[admin]\nlisten = \"127.0.0.1:0\"\n[[owner]]\nname = \"press\"\n[[site]]\nowner = \"press\"\nname = \"measured\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    Server::configured(Reactor::Epoll, directory, text)
}

#[test]
fn one_sample_for_scripts() {
    let directory = Directory::new();
    let server = server(&directory);
    server.get("/a.txt");
    let top = |more: &[&str]| {
        let admin = server.admin().to_string();
        let arguments = ["top", &admin, "--interval", "0.1"].into_iter().chain(more.iter().copied()).map(OsStr::new);
        run(&arguments.collect::<Vec<_>>())
    };
    let (code, table, errors) = top(&["--once"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(table.starts_with("SITE") && table.contains("\n[press] ") && table.contains("\n  measured "), "{table}");
    let (code, json, errors) = top(&["--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&json).expect("one JSON document");
    let rows = json["rows"].as_array().expect("rows");
    let site = rows.iter().find(|row| row["site"] == "measured" && row["stage"].is_null() && row["worker"].is_null());
    assert_eq!(site.expect("the site's row")["requests_per_s"], 0.0);
    let owner = rows.iter().find(|row| row["owner"] == "press").expect("the owner's row");
    assert_eq!((&owner["requests_per_s"], &owner["site"]), (&0.0.into(), &serde_json::Value::Null));
    let (code, _, errors) = top(&["--sort", "nothing"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("requests_per_s"), "the message names what there is: {errors}");
}

#[test]
fn the_admin_address_comes_from_the_configuration_or_the_message_says_what_is_wrong() {
    let directory = Directory::new();
    directory.write("site/a.txt", "alpha\n");
    let admin = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let text = format!(
        "[admin]\nlisten = \"{admin}\"\n[[site]]\nname = \"measured\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n"
    );
    let file = directory.write("leat.toml", &text);
    let top = || run(&[OsStr::new("top"), OsStr::new("--json"), OsStr::new("--config"), file.as_os_str()]);
    let (code, _, errors) = top();
    assert_eq!(code, Some(1));
    assert!(errors.contains(&admin.to_string()) && errors.contains("is leat running"), "{errors}");
    let _server = Server::configured(Reactor::Epoll, &directory, &text);
    let (code, json, errors) = top();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(json.contains("\"measured\""), "{json}");
}

/// `leat top` on a terminal of its own.
struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn open(server: &Server) -> Terminal {
        let admin = server.admin();
        let line = format!("stty rows 10 cols 40; exec {} top {admin} --interval 0.1", binary().display());
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` is there: it belongs to util-linux");
        let mut stdout = child.stdout.take().expect("it is piped");
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count) = stdout.read(&mut piece) {
                if count == 0 || send.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, output, text: String::new() }
    }

    fn wait_for(&mut self, words: &str) {
        while !self.text.contains(words) {
            let piece =
                self.output.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.text));
            self.text.push_str(&String::from_utf8_lossy(&piece));
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.child.stdin.as_mut().expect("it is piped").write_all(keys).expect("the terminal takes keys");
    }

    /// The process of `leat top` itself, which `script` started.
    fn top_pid(&self) -> u32 {
        eventually("the program runs", || {
            let path = format!("/proc/{0}/task/{0}/children", self.child.id());
            std::fs::read_to_string(path).unwrap().split_whitespace().next().and_then(|pid| pid.parse().ok())
        })
    }

    fn must_end_well(mut self) {
        self.wait_for(LEAVE_ALTERNATE_SCREEN);
        let status = eventually("it ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_fills_the_terminal_and_gives_it_back() {
    let directory = Directory::new();
    let server = server(&directory);
    for ending in [Some(&b"q"[..]), Some(b"\x03"), None] {
        let mut terminal = Terminal::open(&server);
        terminal.wait_for(ENTER_ALTERNATE_SCREEN);
        terminal.wait_for("measured");
        match ending {
            Some(keys) => terminal.press(keys),
            None => signal(terminal.top_pid(), "TERM"),
        }
        terminal.must_end_well();
    }
}
