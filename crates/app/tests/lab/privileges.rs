//! What a cluster's members must be allowed: with the capabilities that docs/service.md names they do all that root's do, and without one of
//! them they say which it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use super::motion::{self, Begun};
use super::{Folder, Lab, is_possible, spread, within};

/// A host of the lab, and how leat is started there.
type Member<'a> = (&'a str, &'a [&'a str]);

const ALL: &str = "+net_admin,+bpf,+perfmon,+net_bind_service";

/// Takes away what processes of a host have left in its kernel, as if the machine had been started anew.
pub(super) fn forget_pins(lab: &Lab, host: &str) {
    let namespace = format!("/run/netns/leat-lab-{}-{host}", lab.name);
    let mark = format!("leat-{}-", fs::metadata(&namespace).expect("the lab is up").ino());
    for pins in fs::read_dir("/sys/fs/bpf").expect("a lab mounts it").flatten() {
        if pins.file_name().to_string_lossy().starts_with(&mark) {
            fs::remove_dir_all(pins.path()).expect("root may");
        }
    }
}

/// Starts a member of the lab anew, as nobody with some capabilities, and nothing of what it had pinned before.
fn start_as_nobody(lab: &Lab, (host, part): Member<'_>, folder: &Folder, capabilities: &str) -> (Child, String) {
    lab.kill(host);
    within("it has ended", || lab.processes(host).is_empty());
    forget_pins(lab, host);
    let namespace = format!("/run/netns/leat-lab-{}-{host}", lab.name);
    let log = folder.path(&format!("{host}.log"));
    let mut command = Command::new("nsenter");
    // A device for taps of its own, as the machine's may be root's.
    let mount =
        ["unshare", "--mount", "sh", "-c", "mount --bind \"$0\" /dev/net/tun && exec \"$@\"", &folder.path("tun")];
    command.arg(format!("--net={namespace}")).args(mount).args([
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    command.args(["--no-new-privs", &format!("--bounding-set=-all,{capabilities}")]);
    command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
    command.arg(folder.path("leat")).args(part).args(["--config", &folder.path("cluster.toml")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).expect("a file for what it says"));
    (command.spawn().expect("nsenter can be run"), log)
}

/// Has anybody write there, execute leat, and make taps.
fn open_to_all(folder: &Folder) {
    let made = Command::new("mknod").args(["-m", "666", &folder.path("tun"), "c", "10", "200"]).status();
    assert!(made.is_ok_and(|status| status.success()));
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).expect("it's the test's");
    let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
    fs::copy(program, folder.path("leat")).expect("it's a file");
}

#[test]
fn a_front_that_may_not_spread_connections_is_not_well() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("blind"));
    fs::write(folder.path("site/small"), "small").expect("a file to serve");
    spread::up(&lab, &folder, "");
    let health = || lab.curl("front1", "http://127.0.0.1:9180/health");
    within("with all that it needs it is", || health() == "200");
    open_to_all(&folder);
    let front: Member<'_> = ("front1", &["dispatch", "--name", "front1"]);
    let (mut blind, log) = start_as_nobody(&lab, front, &folder, &ALL.replace("+perfmon,", ""));
    within("it says what it lacks", || {
        fs::read_to_string(&log).unwrap_or_default().contains("this process lacks CAP_PERFMON, which")
    });
    assert_eq!(health(), "503", "routers that ask for it send it nothing");
    lab.kill("front1");
    blind.wait().expect("it has been killed");
}

#[test]
fn a_cluster_needs_capabilities_and_not_root() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("privileges"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    open_to_all(&folder);
    let (dispatcher, node): (Member<'_>, Member<'_>) =
        (("dispatcher", &["dispatch"]), ("n1", &["node", "--name", "n1"]));
    // Without one of them, it's said which, and requests are answered all the same.
    let (mut lesser, log) = start_as_nobody(&lab, dispatcher, &folder, &ALL.replace("+perfmon,", ""));
    let said = || fs::read_to_string(&log).unwrap_or_default();
    within("it says what it lacks", || said().contains("this process lacks CAP_PERFMON, which"));
    assert!(said().contains("requests are proxied") && said().len() < 2_000, "{}", said());
    within("nodes answer", || lab.curl("client1", "http://10.77.0.100/small") == "200");
    // The same of the device for taps.
    let device = |mode| fs::set_permissions(folder.path("tun"), fs::Permissions::from_mode(mode)).expect("it's ours");
    device(0o600);
    let (mut without, log) = start_as_nobody(&lab, dispatcher, &folder, ALL);
    lesser.wait().expect("it has been killed");
    let told = || fs::read_to_string(&log).unwrap_or_default();
    within("it says what it can't open", || {
        told().contains("let whoever leat runs as open it: chmod 666 /dev/net/tun")
    });
    within("nodes answer", || lab.curl("client1", "http://10.77.0.100/small") == "200");
    device(0o666);
    let members = [dispatcher, node].map(|member| start_as_nobody(&lab, member, &folder, ALL));
    without.wait().expect("it has been killed");
    let linked = |log: &str| fs::read_to_string(log).unwrap_or_default().matches("its link is up").count();
    within("all nodes are known", || linked(&members[0].1) >= 3);
    lab.at("client1", || {
        let mut clients: Vec<_> = (0..12).map(|_| (motion::connect(), Vec::new())).collect();
        let mut ask_all = || {
            for (stream, rest) in &mut clients {
                motion::ask(stream, &["small"]);
                assert!(motion::read_reply(stream, rest).expect("a reply") == files["small"]);
            }
        };
        ask_all();
        for node in ["n1", "n2"] {
            let said = motion::tell(&folder.path("leat.sock"), &["drain", node]);
            assert!(said.contains(&format!("{node} is empty after ")), "{said}");
        }
        ask_all();
    });
    let log = fs::read_to_string(&members[0].1).unwrap_or_default();
    assert!(lab.number("dispatcher", "leat_births_total") >= 12 || log.contains("as the kernel can't"), "{log}");
    assert!(lab.number("dispatcher", "leat_handoffs_total") > 0, "connections were moved");
    for (host, (mut child, _)) in ["dispatcher", "n1"].into_iter().zip(members) {
        lab.kill(host);
        child.wait().expect("it has been killed");
    }
}
