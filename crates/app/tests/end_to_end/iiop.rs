//! A port for CORBA before two servers of omniORB, as in CASS's section 5.1: each call of one client goes to its node. Skipped, and saying so, where
//! omniORB's compiler and libraries aren't installed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use crate::on_both_reactors;
use crate::ports::{count, dispatch};
use crate::support::{Directory, Reactor};

const IDL: &str = "typedef sequence<octet> Bytes;\n\
    interface Echo { string who(); Bytes back(in Bytes content); oneway void note(); long notes(); };\n";

const SERVER: &str = r#"
#include "echo.hh"
#include <cstdio>
static CORBA::Long noted = 0;
struct Echo_i : POA_Echo {
    const char* name;
    Echo_i(const char* name) : name(name) {}
    char* who() { return CORBA::string_dup(name); }
    Bytes* back(const Bytes& content) { return new Bytes(content); }
    void note() { noted++; }
    CORBA::Long notes() { return noted; }
};
int main(int count, char** arguments) {
    CORBA::ORB_var orb = CORBA::ORB_init(count, arguments);
    CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    poa->the_POAManager()->activate();
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("echo");
    poa->activate_object_with_id(id, new Echo_i(arguments[1]));
    puts("ready");
    fflush(stdout);
    orb->run();
}
"#;

/// Calls so often, and says how many calls each server has answered.
const CLIENT: &str = r#"
#include "echo.hh"
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
int main(int count, char** arguments) {
    CORBA::ORB_var orb = CORBA::ORB_init(count, arguments);
    CORBA::Object_var object = orb->string_to_object(arguments[1]);
    Echo_var echo = Echo::_narrow(object);
    std::map<std::string, int> seen;
    for (int call = 0; call < atoi(arguments[2]); call++) {
        CORBA::String_var who = echo->who();
        seen[(char*) who]++;
        echo->note();
        Bytes sent;
        sent.length(call * 997 % 100000);
        for (CORBA::ULong at = 0; at < sent.length(); at++) sent[at] = (at + call) % 251;
        Bytes_var back = echo->back(sent);
        if (back->length() != sent.length()) return 3;
        for (CORBA::ULong at = 0; at < sent.length(); at++) if (back[at] != sent[at]) return 4;
    }
    for (auto& one : seen) printf("%s %d\n", one.first.c_str(), one.second);
    orb->destroy();
}
"#;

/// Where both programs are, made for all tests that need them at the same time; `None` where they can't be.
fn programs() -> Option<Arc<Directory>> {
    static PROGRAMS: Mutex<Weak<Directory>> = Mutex::new(Weak::new());
    let mut known = PROGRAMS.lock().unwrap();
    if let Some(made) = known.upgrade() {
        return Some(made);
    }
    let directory = Directory::with(&[
        ("echo.idl", IDL.as_bytes()),
        ("server.cc", SERVER.as_bytes()),
        ("client.cc", CLIENT.as_bytes()),
    ]);
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let done = command.args(arguments).current_dir(directory.path()).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let build =
        |name: &str| run("g++", &["-o", name, &format!("{name}.cc"), "echoSK.cc", "-lomniORB4", "-lomnithread"]);
    if !(run("omniidl", &["-bcxx", "echo.idl"]) && build("server") && build("client")) {
        eprintln!("skipped: no omniORB (apt-get install g++ omniidl libomniorb4-dev)");
        return None;
    }
    let made = Arc::new(directory);
    *known = Arc::downgrade(&made);
    Some(made)
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn calls_of_one_client_go_to_both_servers(reactor: Reactor) {
    let Some(programs) = programs() else { return };
    let directory = Directory::new();
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let servers: Vec<Running> = ["127.0.0.2", "127.0.0.3"]
        .iter()
        .map(|address| {
            let mut child = Command::new(programs.at("server"))
                .args([*address, "-ORBendPoint", format!("giop:tcp:{address}:{port}").as_str()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            Running(child)
        })
        .collect();
    let dispatcher = dispatch(reactor, &directory, 2, port, "protocol = \"iiop\"\npolicy = \"round_robin\"");
    for version in ["1.0", "1.1", "1.2"] {
        let place = format!("corbaloc::{version}@{}/echo", dispatcher.address());
        let output =
            Command::new(programs.at("client")).args([&place, "60", "-ORBmaxGIOPVersion", version]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "GIOP {version}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let calls: Vec<u32> = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(calls.len() == 2 && calls.iter().sum::<u32>() == 60, "GIOP {version}: {text}");
        assert!(calls.iter().all(|&calls| calls >= 20), "GIOP {version}: {text}");
    }
    assert_eq!(count(&dispatcher, "mistakes_total"), 0);
    drop(servers);
}

on_both_reactors!(calls_of_one_client_go_to_both_servers);
