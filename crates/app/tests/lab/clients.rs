//! Clients as there are: each asks for files and uploads one, over IPv4 and IPv6, on connections that begin at nodes, move, and whose requests belong to
//! several nodes. What comes must be what was asked for. Programs that aren't installed are named and left out.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::motion::{content, tell};
use super::{Folder, Lab, is_possible};

const VIPS: [&str; 2] = ["10.77.0.100", "[fd77::100]"];
const UPLOAD_BYTES: usize = 300_000;

/// A lab of two nodes, each of which has some of the files by now.
fn up(lab: &Lab, folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let file = |number: usize| {
        let name = format!("f{number}");
        (name.clone(), content(&name, if number.is_multiple_of(3) { 100_000 } else { 2_000 }))
    };
    let files: BTreeMap<String, Vec<u8>> = (0..8).map(file).collect();
    for (name, content) in &files {
        fs::write(folder.path(&format!("site/{name}")), content).expect("a file to serve");
    }
    let program = folder.path("size");
    fs::write(&program, "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec wc -c\n").expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it's ours");
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = ['10.77.0.100:80', '[fd77::100]:80']\ndispatchers = ['10.77.0.1', 'fd77::1']\nkey_file = 'cluster.key'\n\
         [[cluster.node]]\nname = 'n1'\naddress = ['10.77.0.11', 'fd77::11']\n[[cluster.node]]\nname = 'n2'\naddress = ['10.77.0.12', 'fd77::12']\n\
         [[site]]\nroot = 'site'\nlisten = ['0.0.0.0:80', '[::]:80']\n[site.limits]\nbody_size = '1MiB'\n\
         [[site.handler]]\npath = '/cgi/size'\n[site.handler.cgi]\ncommand = '{program}'\n",
        folder.path("leat.sock")
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    files
}

/// What a client that asks for all files, uploads one, and asks `again` for all, is to have got.
fn expected(files: &BTreeMap<String, Vec<u8>>, again: bool) -> Vec<u8> {
    let all = files.values().flatten().copied();
    let after = if again { files } else { const { &BTreeMap::new() } };
    all.chain(format!("{UPLOAD_BYTES}\n").into_bytes()).chain(after.values().flatten().copied()).collect()
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("{program} isn't installed: it isn't tried");
    }
    found
}

fn source(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/lab/clients", name].iter().collect();
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Runs a client at the lab's client; what it says.
fn run(lab: &Lab, words: &[&str]) -> Vec<u8> {
    let output = lab.leat(&[&["exec", "client1"], words].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn curl(lab: &Lab, folder: &Folder, vip: &str, files: &BTreeMap<String, Vec<u8>>) {
    let urls: Vec<String> = files.keys().map(|name| format!("http://{vip}/{name}")).collect();
    let (upload, size) = (format!("@{}", folder.path("upload")), format!("http://{vip}/cgi/size"));
    let mut words = vec!["curl", "-sS", "-m", "20"];
    words.extend(urls.iter().map(String::as_str));
    words.extend(["--next", "-sS", "-m", "20", "--data-binary", &upload, &size]);
    assert!(run(lab, &words) == expected(files, false), "curl to {vip}");
}

fn python(lab: &Lab, vip: &str, files: &BTreeMap<String, Vec<u8>>) {
    let program = source("client.py");
    let mut words = vec!["python3", &program, vip];
    words.extend(files.keys().map(String::as_str));
    assert!(run(lab, &words) == expected(files, true), "Python to {vip}");
}

/// Many connections at once, of one request each and of many.
fn loads(lab: &Lab, vip: &str) {
    let url = format!("http://{vip}/f1");
    if is_there("wrk") {
        for field in ["X-Kept: yes", "Connection: close"] {
            let said = run(lab, &["wrk", "-t1", "-c8", "-d1s", "--timeout", "10s", "-H", field, &url]);
            let said = String::from_utf8_lossy(&said).into_owned();
            let is_well = said.contains("requests in") && !said.contains("errors") && !said.contains("Non-2xx");
            assert!(is_well, "{said}{}", String::from_utf8_lossy(&run(lab, &["ss", "-s"])));
        }
    }
    if is_there("h2load") {
        // With an address of IPv6 in the URL it leaves out the brackets, which is no host: 400.
        let there = format!("--connect-to={vip}:80");
        let said = run(lab, &["h2load", "--h1", "-n400", "-c8", &there, "http://leat.test/f1"]);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("400 succeeded, 0 failed, 0 errored") && said.contains("400 2xx"), "{said}");
    }
}

#[test]
fn clients_get_what_they_ask_for() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("clients"));
    let files = up(&lab, &folder);
    fs::write(folder.path("upload"), vec![b'y'; UPLOAD_BYTES]).expect("a file to upload");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    // Without timestamps a port waits a minute before it can be used for the same VIP again, and wrk uses some 10,000 a second.
    run(&lab, &["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"]);
    // With and without timestamps and selective acknowledgements.
    for (timestamps, sack) in [("1", "1"), ("0", "1"), ("1", "0"), ("0", "0")] {
        for (name, value) in [("timestamps", timestamps), ("sack", sack)] {
            run(&lab, &["sysctl", "-qw", &format!("net.ipv4.tcp_{name}={value}")]);
        }
        for vip in VIPS {
            curl(&lab, &folder, vip, &files);
            loads(&lab, vip);
            if is_there("python3") {
                python(&lab, vip, &files);
            }
        }
    }
    ["timestamps", "sack"].iter().for_each(|name| _ = run(&lab, &["sysctl", "-qw", &format!("net.ipv4.tcp_{name}=1")]));
    if is_there("go") {
        let program = folder.path("client-go");
        let built =
            Command::new("go").args(["build", "-o", &program, &source("client.go")]).output().expect("it can be run");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        for vip in VIPS {
            assert!(run(&lab, &[&[&program, vip], &names[..]].concat()) == expected(&files, false), "Go to {vip}");
        }
    }
    if is_there("java") {
        let program = source("Client.java");
        for vip in VIPS {
            let words = [&["java", &program, vip], &names[..]].concat();
            assert!(run(&lab, &words) == expected(&files, false), "Java to {vip}");
        }
    }
    if is_there("chromium") {
        browse(&lab, &folder, &files);
    }
    let at_home = |name| lab.number("dispatcher", name);
    assert!(at_home("leat_births_total") + at_home("leat_handoffs_total") > 100, "connections were handed over");
    assert_eq!(at_home("leat_flows_cut_total"), 0);
    super::within("the books are empty", || at_home("leat_flows") == 0);
}

/// A page whose script asks for everything and says how much came.
fn browse(lab: &Lab, folder: &Folder, files: &BTreeMap<String, Vec<u8>>) {
    let names: Vec<String> = files.keys().map(|name| format!("'{name}'")).collect();
    let page = format!(
        "<title>?</title><script>(async () => {{ let sizes = await Promise.all([{}].map(async name => (await (await fetch(name)).text()).length));\n\
         let size = await (await fetch('cgi/size', {{ method: 'POST', body: 'y'.repeat({UPLOAD_BYTES}) }})).text();\n\
         document.title = [...sizes, size.trim()].join(' '); }})()</script>\n",
        names.join(", ")
    );
    fs::write(folder.path("site/page.html"), page).expect("a page to serve");
    let sizes: Vec<String> = files.values().map(|content| content.len().to_string()).collect();
    let title = format!("<title>{} {UPLOAD_BYTES}</title>", sizes.join(" "));
    for vip in VIPS {
        let (url, profile) = (format!("http://{vip}/page.html"), format!("--user-data-dir={}", folder.path("profile")));
        let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"];
        let shown = run(lab, &[&["chromium", &profile], &quiet[..], &[&url]].concat());
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(shown.contains(&title), "{vip}: {shown}");
    }
}

#[test]
fn uploads_arrive_whole_whose_node_is_drained_in_the_middle() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("uploads"));
    up(&lab, &folder);
    let socket = folder.path("leat.sock");
    let head =
        format!("POST /cgi/size HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n");
    let body = vec![b'y'; UPLOAD_BYTES];
    for vip in VIPS {
        lab.at("client1", || {
            let begin = |number: usize| {
                let stream = std::net::TcpStream::connect(format!("{vip}:80")).expect("the dispatcher listens");
                let mut stream = stream;
                stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a time-out");
                // With nothing of the content, with some of it, with half.
                let first = [0, 900, UPLOAD_BYTES / 2][number % 3];
                stream.write_all(&[head.as_bytes(), &body[..first]].concat()).expect("it's open");
                (stream, first)
            };
            let clients: Vec<_> = (0..24).map(begin).collect();
            let drained = std::thread::scope(|scope| {
                let drained = scope.spawn(|| tell(&socket, &["drain", "n1", "--timeout", "20"]));
                for (mut stream, first) in clients {
                    stream.write_all(&body[first..]).expect("it's open");
                    let mut reply = String::new();
                    stream.read_to_string(&mut reply).expect("a reply, and its end");
                    assert!(
                        reply.starts_with("HTTP/1.1 200 ") && reply.contains(&format!("\r\n{UPLOAD_BYTES}\n")),
                        "{vip}: {reply}"
                    );
                }
                drained.join().expect("it ends well")
            });
            assert!(drained.contains("n1 is empty"), "{drained}");
            tell(&socket, &["ctl", "resume", "n1"]);
        });
    }
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}
