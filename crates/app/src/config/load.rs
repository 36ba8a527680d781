//! From a file to a [`Config`]: reading, parsing, judging, and the listeners that the sites make together.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use leat_logic::serve::hosts::HostTable;
use toml::de::DeTable;

use super::kinds::reason;
use super::mistake::{Mistake, Mistakes, Severity};
use super::schema::{Context, Reader, Section};
use super::server::{Admin, Config, Listener, Reactor};
use super::site::Site;
use super::source::Source;

/// The largest file that is read: a hundred thousand sites fit.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The configuration in `path`, or all that is wrong with it. Warnings are passed over: [`check`] has them.
///
/// # Errors
///
/// One entry for each mistake in the file, or the reason why it can't be read.
pub fn load(path: &Path) -> Result<Config, Mistakes> {
    let (config, mistakes) = check(path);
    config.ok_or(mistakes)
}

/// The configuration in `path`, unless it has errors, and all that is wrong with it, warnings too.
pub fn check(path: &Path) -> (Option<Config>, Mistakes) {
    let name = path.display().to_string();
    match read(path) {
        Ok(text) => match String::from_utf8(text) {
            Ok(text) => {
                let base = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                parse(&name, &text, base)
            }
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let source = Source::new(name, String::from_utf8_lossy(error.as_bytes()));
                let mistake =
                    Mistake::new(Severity::Error, valid..valid + 1, "this isn't UTF-8", "save the file in UTF-8");
                (None, Mistakes::new(source, vec![mistake]))
            }
        },
        Err((message, help)) => (None, Mistakes::of_file(Source::new(name, ""), message, help)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, (String, String)> {
    let help = "write the path of a configuration file that leat may read; docs/config.md has its keys".to_owned();
    let wrong = |error: std::io::Error| (format!("can't be read: {}", reason(&error)), help.clone());
    let metadata = fs::metadata(path).map_err(wrong)?;
    if !metadata.is_file() {
        return Err(("isn't a regular file".to_owned(), help));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err((format!("is larger than {} bytes", FILE_BYTES_MAX), help));
    }
    fs::read(path).map_err(wrong)
}

/// The configuration in `text`. `name` is for messages; relative paths start at `base`.
pub(super) fn parse(name: &str, text: &str, base: &Path) -> (Option<Config>, Mistakes) {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let root = document.get_ref();
    let context = Context::new(base, Some(root));
    let mut config = Config::read(&Reader::new(root, document.span(), Config::SCHEMA, &context));
    for site in &mut config.sites {
        complete(site);
    }
    config.listeners = listeners(&config.sites);
    let mut mistakes = context.mistakes.into_inner();
    for error in &syntax {
        let span = error.span().unwrap_or(0..0);
        mistakes.push(Mistake::new(Severity::Error, span, error.message(), ""));
    }
    let mistakes = Mistakes::new(Source::new(name, text), mistakes);
    ((mistakes.errors() == 0).then_some(config), mistakes)
}

/// The configuration of `leat serve DIR`: one site for every host, with listings, no admin address and everything else at its default.
/// `workers` and `reactor` are the defaults too when `None`; `listen` is 127.0.0.1:8080 when empty.
pub fn from_directory(
    directory: &Path,
    listen: &[SocketAddr],
    workers: Option<usize>,
    reactor: Option<Reactor>,
) -> Config {
    let listen = if listen.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 8080))] } else { listen.to_vec() };
    let root = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
    let mut site = Site { listen, root, listing: true, ..Site::default() };
    complete(&mut site);
    let defaults = Config::default();
    let sites = vec![site];
    Config {
        workers: workers.unwrap_or(defaults.workers),
        reactor: reactor.unwrap_or(defaults.reactor),
        admin: Admin { listen: None },
        listeners: listeners(&sites),
        sites,
        ..defaults
    }
}

/// Fills in what one key takes from another.
fn complete(site: &mut Site) {
    if site.name.is_empty() {
        site.name = site.hosts.first().map_or_else(|| "default".to_owned(), ToString::to_string);
    }
}

/// The addresses of all sites, in their order, each with its table of hosts.
fn listeners(sites: &[Site]) -> Vec<Listener> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in sites.iter().flat_map(|site| &site.listen) {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    let on = |address: SocketAddr| {
        let sites = sites.iter().enumerate().filter(move |(_, site)| site.listen.contains(&address));
        sites.map(|(index, site)| (u32::try_from(index).unwrap_or(u32::MAX), site))
    };
    let table = |address: SocketAddr| {
        let hosts = on(address).flat_map(|(index, site)| site.hosts.iter().map(move |host| (host.clone(), index)));
        let default = on(address).find(|(_, site)| site.hosts.is_empty()).map(|(index, _)| index);
        HostTable::new(hosts, default)
    };
    addresses.into_iter().map(|address| Listener { address, hosts: table(address) }).collect()
}
