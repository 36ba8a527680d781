//! The machines: a client behind a router, a dispatcher and node A on one network, node B on another.
//!
//! ```text
//!  client 10.79.0.2 --- 10.79.0.1 router 10.77.0.254 --- bridge --- 10.77.0.1  dispatcher (VIP 10.77.0.100)
//!                                        10.78.0.254        \------ 10.77.0.11 node A
//!                                             \---------------------10.78.0.12 node B
//! ```
//! IPv6 the same under fd77::, fd78:: and fd79::.

use std::path::PathBuf;
use std::process::Command;

use leat_host::namespace::{self, Namespace};

pub(crate) const VIP4: &str = "10.77.0.100:80";
pub(crate) const VIP6: &str = "[fd77::100]:80";

pub(crate) struct Lab {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) dispatcher: Namespace,
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
    _switch: Namespace,
    pins: Pins,
}

/// A BPF file system of its own, gone at the end.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        run("umount", &[&self.0.display().to_string()]);
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One machine: `(name, addresses of its end, namespace and interface of the other)`.
fn plug(machine: &Namespace, interface: &str, other: &Namespace, other_interface: &str) {
    machine.ip(&format!("link add {interface} type veth peer name {other_interface} netns {}", other.name())).unwrap();
    machine.ip(&format!("link set {interface} up")).unwrap();
    other.ip(&format!("link set {other_interface} up")).unwrap();
}

fn address(machine: &Namespace, interface: &str, network: u8, host: u8) {
    machine.ip(&format!("addr add 10.{network}.0.{host}/24 dev {interface}")).unwrap();
    machine.ip(&format!("addr add fd{network}::{host}/64 dev {interface} nodad")).unwrap();
}

fn default_route(machine: &Namespace, network: u8, host: u8) {
    machine.ip(&format!("route add default via 10.{network}.0.{host}")).unwrap();
    machine.ip(&format!("-6 route add default via fd{network}::{host}")).unwrap();
}

impl Lab {
    /// None, with a line that says why, where it isn't allowed.
    pub(crate) fn new(test: &str) -> Option<Lab> {
        let make = |machine: &str| namespace::for_test(&format!("{test}-{machine}"));
        let client = make("client")?;
        let (router, switch, dispatcher) = (make("router")?, make("switch")?, make("dispatcher")?);
        let (a, b) = (make("a")?, make("b")?);
        for machine in [&client, &router, &dispatcher, &a, &b] {
            for parameter in ["accept_dad", "accept_ra"] {
                machine.set(&format!("net.ipv6.conf.default.{parameter}"), "0").unwrap();
            }
            machine.set("net.ipv4.tcp_no_metrics_save", "1").unwrap();
        }
        switch.ip("link add bridge type bridge").unwrap();
        switch.ip("link set bridge up").unwrap();
        for (machine, port, host) in [(&router, "to-router", 254), (&dispatcher, "to-dispatcher", 1), (&a, "to-a", 11)]
        {
            plug(machine, "eth0", &switch, port);
            switch.ip(&format!("link set {port} master bridge")).unwrap();
            address(machine, "eth0", 77, host);
        }
        plug(&client, "eth0", &router, "to-client");
        address(&client, "eth0", 79, 2);
        address(&router, "to-client", 79, 1);
        plug(&b, "eth0", &router, "to-b");
        address(&b, "eth0", 78, 12);
        address(&router, "to-b", 78, 254);
        default_route(&client, 79, 1);
        default_route(&b, 78, 254);
        default_route(&a, 77, 254);
        default_route(&dispatcher, 77, 254);
        router.set("net.ipv4.ip_forward", "1").unwrap();
        router.set("net.ipv6.conf.all.forwarding", "1").unwrap();
        for machine in [&router, &a, &b] {
            machine.set("net.ipv4.conf.all.rp_filter", "0").unwrap();
            machine.set("net.ipv4.conf.default.rp_filter", "0").unwrap();
            machine.set("net.ipv4.conf.eth0.rp_filter", "0").unwrap();
        }
        dispatcher.ip("addr add 10.77.0.100/32 dev eth0").unwrap();
        dispatcher.ip("addr add fd77::100/128 dev eth0 nodad").unwrap();
        for node in [&a, &b] {
            node.set("net.ipv4.conf.all.arp_ignore", "1").unwrap();
            node.set("net.ipv4.conf.all.arp_announce", "2").unwrap();
            node.ip("route add local 10.77.0.100/32 dev lo").unwrap();
            node.ip("-6 route add local fd77::100/128 dev lo").unwrap();
        }
        let pins = Pins(std::env::temp_dir().join(format!("leat-{}-{test}", std::process::id())));
        std::fs::create_dir_all(&pins.0).unwrap();
        run("mount", &["-t", "bpf", "bpf", &pins.0.display().to_string()]);
        Some(Lab { client, router, dispatcher, a, b, _switch: switch, pins })
    }

    /// Where a machine pins.
    pub(crate) fn pins(&self, machine: &Namespace) -> PathBuf {
        self.pins.0.join(machine.name().replace('.', "-"))
    }

    /// Segments as they are on a wire, so that a packet that is lost is one packet.
    pub(crate) fn without_offloads(&self) {
        for machine in [&self.client, &self.router, &self.dispatcher, &self.a, &self.b] {
            machine
                .run(|| {
                    for interface in std::fs::read_dir("/proc/sys/net/ipv4/conf").unwrap() {
                        let interface = interface.unwrap().file_name().into_string().unwrap();
                        if ["all", "default", "lo"].contains(&interface.as_str()) {
                            continue;
                        }
                        run("ethtool", &["-K", &interface, "tso", "off", "gso", "off", "gro", "off", "tx", "off"]);
                    }
                })
                .unwrap();
        }
    }

    /// Has the router lose some per mille of what it forwards.
    pub(crate) fn lose(&self, per_mille: u32) {
        self.router
            .run(move || {
                run("nft", &["add table inet loss"]);
                run("nft", &["add chain inet loss forward { type filter hook forward priority 0 ; }"]);
                run("nft", &[&format!("add rule inet loss forward numgen random mod 1000 < {per_mille} drop")]);
            })
            .unwrap();
    }
}
