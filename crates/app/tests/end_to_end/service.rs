//! leat under a service manager, and as another user than root.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use crate::on_both_reactors;
use crate::support::patience::PATIENCE;
use crate::support::server::{run, write_configuration};
use crate::support::{Directory, Reactor, Server, eventually};

const SITE: &str = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n";

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn in_directory(directory: &Directory) -> Manager {
        let socket = UnixDatagram::bind(directory.at("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager(socket)
    }

    /// What is said next.
    fn hear(&self) -> String {
        let mut room = [0; 4096];
        let length = self.0.recv(&mut room).expect("something is said");
        String::from_utf8(room[..length].to_vec()).unwrap()
    }
}

fn a_service_manager_is_told(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let manager = Manager::in_directory(&directory);
    let file = write_configuration(reactor, &directory, SITE);
    let arguments = [OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()];
    let mut server = Server::start_with(&arguments, 1, &[("NOTIFY_SOCKET", directory.at("notify").as_os_str())]);
    assert_eq!(manager.hear(), "READY=1\nSTATUS=1 site on 1 address");
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
    write_configuration(reactor, &directory, &format!("{SITE}nonsense = 1\n"));
    server.signal("HUP");
    assert!(manager.hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.hear(), "READY=1\nSTATUS=the new configuration isn't used; the old one stays in force");
    write_configuration(
        reactor,
        &directory,
        &format!("{SITE}[[site]]\nlisten = \"127.0.0.1:0\"\nhosts = \"b.test\"\nroot = \"site\"\n"),
    );
    server.signal("HUP");
    assert!(manager.hear().starts_with("RELOADING=1\n"));
    assert_eq!(manager.hear(), "READY=1\nSTATUS=2 sites on 1 address");
    // An upgrade is no reload, but whoever takes over says that it's ready.
    server.signal("USR2");
    assert_eq!(manager.hear(), "READY=1\nSTATUS=2 sites on 1 address");
    server.signal("TERM");
    assert!(manager.hear().starts_with("STOPPING=1\n"));
    assert_eq!(server.wait_for_end().code(), Some(0));
}

/// User and group of a process, with the other groups.
fn identity(pid: u32) -> (String, String, String) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {status}"));
        line.trim().to_owned()
    };
    (line("Uid:"), line("Gid:"), line("Groups:"))
}

fn the_engine_and_programs_run_as_another_user(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n"), ("site/closed.txt", b"secret\n")]);
    let program = directory.write("whoami", "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nid -un\n");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(directory.at("site/closed.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let handler = "[[site.handler]]\npath = \"/who\"\ncgi = { command = \"whoami\" }\n";
    let server = Server::configured(reactor, &directory, &format!("user = \"nobody\"\n{SITE}{handler}"));
    let is_root = identity(std::process::id()).0.starts_with("0\t");
    if !is_root {
        server.wait_for_stderr(&["`user` counts for nothing, as leat isn't started by root"]);
        return;
    }
    let engines: Vec<u32> = server.processes().into_iter().filter(|pid| *pid != server.pid()).collect();
    assert_eq!(engines.len(), 1);
    let (user, group, groups) = identity(engines[0]);
    assert!(!user.split('\t').any(|id| id == "0") && !group.split('\t').any(|id| id == "0"), "{user} {group}");
    assert_eq!(groups, "");
    assert!(identity(server.pid()).0.starts_with("0\t"), "who listens at ports and upgrades stays root");
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
    assert_eq!(server.get("/closed.txt").status, 403);
    assert_eq!(server.get("/who").text(), "nobody\n");
    // A reload to another user is one to another engine.
    let said = server.reload(reactor, &directory, &format!("{SITE}{handler}"));
    assert!(said.contains("the new configuration is in force"), "{said}");
    // The old one may still accept a connection.
    eventually("root serves", || (server.get("/who").text() == "root\n").then_some(()));
    eventually("and reads what is root's", || (server.get("/closed.txt").text() == "secret\n").then_some(()));
}

#[test]
fn a_reload_says_what_is_new_and_nothing_else() {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = format!("{SITE}[limits]\nconnections = 16000000\n");
    let server = Server::configured(Reactor::Epoll, &directory, &text);
    server.reload(Reactor::Epoll, &directory, &text);
    let told = server.stderr().iter().filter(|line| line.contains("connections are accepted at once")).count();
    // None where there are descriptors for all.
    assert!(told <= 1, "{:?}", server.stderr());
}

#[test]
fn root_is_told_that_programs_would_be_root_too() {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let is_root = identity(std::process::id()).0.starts_with("0\t");
    let text = format!("{SITE}[[site.handler]]\npath = \"/x\"\ncgi = {{ command = \"/bin/true\" }}\n");
    let server = Server::configured(Reactor::Epoll, &directory, &text);
    let warned = server.stderr().iter().any(|line| line.contains("programs of handlers run as root"));
    assert_eq!(warned, is_root, "{:?}", server.stderr());
}

#[test]
fn a_file_for_a_whole_cluster_is_checked_for_each_of_its_machines() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for (name, lines) in [
        (
            "cluster.toml",
            &["dispatcher: 3 nodes behind 2 addresses", "node `n1` behind 2 addresses", "node `n3` behind"][..],
        ),
        ("spread.toml", &["dispatcher: 3 nodes behind 2 addresses", "node `n3` behind 2 addresses"]),
        ("leat.toml", &["2 sites on 2 addresses"]),
    ] {
        let file = format!("{examples}/{name}");
        let (code, out, err) = run(&["check", &file].map(OsStr::new));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}");
        for line in lines {
            assert!(out.contains(&format!("{name} is well: {line}")), "{name}: {out}");
        }
    }
}

on_both_reactors!(a_service_manager_is_told, the_engine_and_programs_run_as_another_user);
