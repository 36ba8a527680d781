//! `leat lab`: a whole cluster on one machine, in network namespaces. Decides nothing: `plan` says what is built, `ground` builds it, `members`
//! starts leat in it. What a lab consists of can be told by its names, so that `down` finds all of it, also after a crash.

mod carry;
mod ground;
mod groups;
mod line;
mod members;
mod pins;
mod plan;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::{self, Config, Part};
use crate::console;
use carry::End;
pub use line::Traits;
use plan::{Host, HostKind, Member, Plan, SWITCH};

/// A lab, by its name.
#[derive(Clone, Debug)]
pub struct Lab {
    name: String,
}

/// A file for all machines of a cluster, by what its first machine makes of it.
fn load(file: &Path) -> Result<Config, String> {
    let part = Part { role: Some(config::first_role(file)), ..Part::default() };
    config::load_part(file, &part).map_err(|mistakes| mistakes.to_string())
}

/// Where labs keep logs and what `status` shows.
const STATE: &str = "/run/leat-lab";
/// Where namespaces have their names.
const NAMESPACES: &str = "/run/netns";

impl Lab {
    /// The lab of this name, which may exist or not.
    ///
    /// # Errors
    /// The name isn't made of 1 to 12 small letters and digits.
    pub fn new(name: &str) -> Result<Lab, String> {
        let is_name = (1..=12).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        match is_name {
            true => Ok(Lab { name: name.to_owned() }),
            false => Err(format!("\"{name}\" isn't a lab's name: write 1 to 12 small letters and digits")),
        }
    }

    /// What the names of all its namespaces and control groups begin with, and no others'.
    fn prefix(&self) -> String {
        format!("leat-lab-{}-", self.name)
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}{host}", self.prefix())
    }

    fn state(&self) -> PathBuf {
        Path::new(STATE).join(&self.name)
    }

    fn log(&self, host: &str) -> PathBuf {
        self.state().join(format!("{host}.log"))
    }

    /// Builds the cluster of a file, or those of several connection servers' files, and starts the members; says how to reach them.
    ///
    /// # Errors
    /// What is wrong with a file, or couldn't be built; then nothing is left of it.
    pub fn up(&self, files: &[PathBuf]) -> Result<String, String> {
        let configs = files.iter().map(|file| load(file)).collect::<Result<Vec<_>, _>>()?;
        let plan = Plan::new(&configs, |host| self.namespace(host))?;
        if !ground::namespaces(&self.prefix())?.is_empty() {
            return Err(format!("the lab {} is up already: leat lab down --name {}", self.name, self.name));
        }
        let built = self.build(files, &configs, &plan);
        if built.is_err() {
            // What went wrong is told; what can't be removed then would only hide it.
            let _ = self.down();
        }
        built
    }

    fn build(&self, files: &[PathBuf], configs: &[Config], plan: &Plan) -> Result<String, String> {
        let directory = self.state();
        let wrong = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => format!("{}: {error}: a lab needs root", directory.display()),
            _ => format!("{}: {error}", directory.display()),
        };
        fs::create_dir_all(&directory).map_err(wrong)?;
        pins::mount()?;
        ground::run_all(&plan.steps)?;
        let about = self.about(files, configs, plan);
        fs::write(directory.join("about"), &about).map_err(wrong)?;
        members::start_all(self, files, configs, plan)?;
        Ok(about)
    }

    fn about(&self, files: &[PathBuf], configs: &[Config], plan: &Plan) -> String {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let mut text = format!("The lab {} of {}\n\n", self.name, files.join(", "));
        let width = plan.hosts.iter().map(|host| host.name.len()).max().unwrap_or(0);
        for host in plan.hosts.iter().filter(|host| !host.addresses.is_empty()) {
            let addresses: Vec<_> = host.addresses.iter().map(ToString::to_string).collect();
            text += &format!("  {:width$}  {}\n", host.name, addresses.join(", "));
        }
        let vips: Vec<_> = configs.iter().flat_map(|config| &config.cluster.vip).map(ToString::to_string).collect();
        text += &format!("  {:width$}  {}\n", "VIP", vips.join(", "));
        let option = if self.name == "lab" { String::new() } else { format!("--name {} ", self.name) };
        text += &format!("\nLogs are in {}. Try:\n\n", self.state().display());
        if let Some(vip) = vips.first() {
            text += &format!("  leat lab exec {option}client curl http://{vip}/\n");
        }
        text += &format!("  leat lab down {option}\n").replace(" \n", "\n");
        for (family, known_max) in ground::neighbours_max() {
            text += &plan.too_many_neighbours(family, known_max).unwrap_or_default();
        }
        text
    }

    /// Takes everything away that belongs to it. What isn't there is no error.
    ///
    /// # Errors
    /// What couldn't be removed.
    pub fn down(&self) -> Result<(), String> {
        let prefix = self.prefix();
        let namespaces = ground::namespaces(&prefix)?;
        members::stop_all(&namespaces)?;
        pins::remove_all(&namespaces)?;
        for namespace in &namespaces {
            ground::run(&format!("ip netns delete {namespace}"))?;
        }
        groups::remove_all(&prefix)?;
        match fs::remove_dir_all(self.state()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", self.state().display()))
            }
            _ => {
                // Unless another lab is there.
                let _ = fs::remove_dir(STATE);
                Ok(())
            }
        }
    }

    /// Is the line between a client and its port of the switch, until the process is ended.
    ///
    /// # Errors
    /// It can't be.
    pub fn be_line(&self, client: &str, port: &str, traits: Traits, offloads: bool) -> Result<(), String> {
        let [near, far] = [client, SWITCH].map(|host| Path::new(NAMESPACES).join(self.namespace(host)));
        let ends = [End { namespace: &near, device: "eth0" }, End { namespace: &far, device: port }];
        let up = || console::print(format_args!("listening on both ends of the line to {client}\n"));
        carry::carry(ends, traits, offloads, up).map_err(|error| format!("the line to {client}: {error}"))
    }

    /// What there is of it, in words.
    ///
    /// # Errors
    /// It can't be found out.
    pub fn status(&self) -> Result<String, String> {
        let prefix = self.prefix();
        let namespaces = ground::namespaces(&prefix)?;
        if namespaces.is_empty() {
            return Ok(format!("the lab {} isn't up\n", self.name));
        }
        let about = fs::read_to_string(self.state().join("about"));
        let mut text =
            about.unwrap_or_else(|_| format!("the lab {0} isn't whole: leat lab down --name {0}\n", self.name));
        text += "\n";
        for (namespace, processes) in namespaces.iter().zip(ground::processes(&namespaces)?) {
            let count = processes.len();
            let host = namespace.strip_prefix(&prefix).unwrap_or(namespace);
            text += &format!("  {host}: {count} {}\n", if count == 1 { "process" } else { "processes" });
        }
        Ok(text)
    }

    /// Becomes `command`, run at one of its hosts; returns only when that can't be.
    #[must_use]
    pub fn exec(&self, host: &str, command: &[String]) -> String {
        let alias = if host == "client" { "client1" } else { host };
        let namespace = self.namespace(alias);
        match ground::namespaces(&self.prefix()) {
            Ok(known) if known.contains(&namespace) => {}
            Ok(known) if known.is_empty() => return format!("the lab {} isn't up: leat lab up FILE", self.name),
            Ok(known) => {
                let hosts: Vec<_> = known.iter().filter_map(|name| name.strip_prefix(&self.prefix())).collect();
                return format!("there is no host {host}: they are {}", hosts.join(", "));
            }
            Err(error) => return error,
        }
        // Not `ip netns exec`: that hides the control groups.
        let error = Command::new("nsenter").arg(ground::enter(&namespace)).args(command).exec();
        format!("nsenter can't be run: {error} (it's in the package util-linux)")
    }
}
