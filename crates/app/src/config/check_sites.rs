//! Sites against each other: names, hosts and addresses that two of them claim.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;

use leat_logic::serve::hosts::HostPattern;

use super::check::{Judge, SiteTable};

pub(super) fn judge(judge: &mut Judge<'_>, sites: &[SiteTable<'_>]) {
    names(judge, sites);
    hosts(judge, sites);
    admin(judge, sites);
}

fn names(judge: &mut Judge<'_>, sites: &[SiteTable<'_>]) {
    let mut seen: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for table in sites {
        if !table.is_meant(judge, "name") || !table.is_meant(judge, "hosts") {
            continue;
        }
        let name = table.section.name.as_str();
        let span = table.value("name").map_or_else(|| table.span(), |value| value.span());
        match seen.get(name) {
            Some(first) => {
                let note = (first.clone(), "the other is");
                let help = match table.value("name") {
                    Some(_) => "write another name: metrics and logs tell sites apart by it",
                    None => "add `name` to this one: metrics and logs tell sites apart by it",
                };
                judge.error_with_note(span, format!("two sites have the name `{name}`"), help, note);
            }
            None => {
                seen.insert(name, span);
            }
        }
    }
}

/// What a site answers for on one address.
type Claim<'a> = (SocketAddr, Option<&'a HostPattern>);

fn hosts(judge: &mut Judge<'_>, sites: &[SiteTable<'_>]) {
    let mut seen: BTreeMap<Claim<'_>, Range<usize>> = BTreeMap::new();
    for table in sites {
        if !table.is_meant(judge, "hosts") || !table.is_meant(judge, "listen") {
            continue;
        }
        let site = table.section;
        let claims: Vec<(Option<&HostPattern>, Range<usize>)> = if site.hosts.is_empty() {
            vec![(None, table.span())]
        } else {
            let span = |index| table.item("hosts", index).unwrap_or_else(|| table.span());
            site.hosts.iter().enumerate().map(|(index, host)| (Some(host), span(index))).collect()
        };
        for (host, span) in claims {
            // One address in common is enough to say; the first is named.
            let taken = site.listen.iter().find_map(|address| Some((*address, seen.get(&(*address, host))?.clone())));
            if let Some((address, first)) = taken {
                let (message, help) = match host {
                    Some(host) => (
                        format!("`{host}` on {address} belongs to another site already"),
                        "take it out of one of them, or give them addresses of their own with `listen`",
                    ),
                    None => (
                        format!("two sites without `hosts` listen on {address}"),
                        "add `hosts` to one of them, or give them addresses of their own with `listen`",
                    ),
                };
                judge.error_with_note(span.clone(), message, help, (first, "the other is"));
            }
            for address in &site.listen {
                seen.entry((*address, host)).or_insert(span.clone());
            }
        }
    }
}

/// The admin address has a listener of its own, so that no site can have the port too.
fn admin(judge: &mut Judge<'_>, sites: &[SiteTable<'_>]) {
    let Some((admin, admin_span)) = judge.admin() else { return };
    for table in sites {
        if !table.is_meant(judge, "listen") {
            continue;
        }
        let clash = |address: &SocketAddr| {
            let both = address.is_ipv4() == admin.is_ipv4();
            let wide = address.ip().is_unspecified() || admin.ip().is_unspecified();
            address.port() == admin.port() && admin.port() != 0 && both && (wide || address.ip() == admin.ip())
        };
        let Some(index) = table.section.listen.iter().position(clash) else { continue };
        let span = table.item("listen", index).unwrap_or_else(|| table.span());
        let message = format!("{} is the admin address's", table.section.listen[index]);
        let help = "write another port here or in [admin]";
        match &admin_span {
            Some(place) => judge.error_with_note(span, message, help, (place.clone(), "it is set")),
            None => {
                judge.error(span, message, "write another port here, or set `listen` in [admin] (\"\" turns it off)")
            }
        }
        return;
    }
}
