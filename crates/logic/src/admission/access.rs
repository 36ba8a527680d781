//! Who may ask for some paths of a site, and how often: by the client's address, and by what it has asked for lately. Decides whether a request is
//! denied; what is answered then is for others.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::client_rates::ClientRates;
use crate::network::Network;
use crate::serve::path_pattern::PathPattern;
use crate::time::Instant;

/// What is asked of the clients of some paths.
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// The paths, as they are asked for.
    pub paths: PathPattern,
    /// Who may; everybody when empty.
    pub allow: Vec<Network>,
    /// Who may not, even if allowed.
    pub deny: Vec<Network>,
    /// How often each may.
    pub rates: Option<Arc<ClientRates>>,
}

/// Why a request isn't served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Its client may not ask for that.
    Address,
    /// Its client asks too often; when it may again.
    Rate(Duration),
}

impl Denial {
    /// How many there are.
    pub const COUNT: usize = 2;
    /// Names in metrics, by [`Denial::index`].
    pub const LABELS: [&'static str; Denial::COUNT] = ["address", "rate"];

    /// The place in an array of counters.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Denial::Address => 0,
            Denial::Rate(_) => 1,
        }
    }
}

/// Whether a client may ask for a path now: all rules that fit must let it. Whose address isn't known is nobody that was allowed. A request that
/// is let in counts for the rates; call it once for each.
///
/// # Errors
/// Why it may not.
pub fn judge(rules: &[AccessRule], path: &[u8], client: Option<IpAddr>, now: Instant) -> Result<(), Denial> {
    let fitting = || rules.iter().filter(|rule| rule.paths.split(path).is_some());
    let is_in = |networks: &[Network], client: IpAddr| networks.iter().any(|network| network.contains(client));
    let is_let_in = |rule: &AccessRule| match client {
        Some(client) => (rule.allow.is_empty() || is_in(&rule.allow, client)) && !is_in(&rule.deny, client),
        None => rule.allow.is_empty() && rule.deny.is_empty(),
    };
    if !fitting().all(is_let_in) {
        return Err(Denial::Address);
    }
    let Some(client) = client else { return Ok(()) };
    let rates = || fitting().filter_map(|rule| rule.rates.as_ref());
    // What one of them refuses doesn't count for the others.
    rates().try_for_each(|rates| rates.check(client, now)).map_err(Denial::Rate)?;
    rates().try_for_each(|rates| rates.ask(client, now)).map_err(Denial::Rate)
}

#[cfg(test)]
mod tests {
    use super::super::client_rates::ClientRate;
    use super::*;

    const NOW: Instant = Instant { ns: 1_000_000_000 };

    fn rule(path: &str, allow: &[&str], deny: &[&str]) -> AccessRule {
        let networks = |texts: &[&str]| {
            let network = |text: &&str| {
                let (address, prefix) = text.split_once('/').unwrap();
                Network::new(address.parse().unwrap(), prefix.parse().unwrap()).unwrap()
            };
            texts.iter().map(network).collect()
        };
        let paths = PathPattern::parse(path).unwrap();
        AccessRule { paths, allow: networks(allow), deny: networks(deny), rates: None }
    }

    #[test]
    fn all_rules_that_fit_must_let_a_client_in() {
        let rules = [
            rule("/*", &[], &["198.51.100.0/24"]),
            rule("/inside/*", &["10.0.0.0/8", "2001:db8::/32"], &["10.0.0.1/32"]),
            rule("/inside/own/*", &["10.1.0.0/16"], &[]),
        ];
        let may = |path: &str, client: &str| {
            let client = (!client.is_empty()).then(|| client.parse().unwrap());
            judge(&rules, path.as_bytes(), client, NOW).is_ok()
        };
        assert!(may("/", "192.0.2.1") && !may("/", "198.51.100.7") && !may("/", "::ffff:198.51.100.7"));
        assert!(may("/inside", "10.2.3.4") && may("/inside/x", "2001:db8::1") && !may("/inside/", "192.0.2.1"));
        assert!(!may("/inside/x", "10.0.0.1") && may("/insider", "192.0.2.1"));
        assert!(may("/inside/own/x", "10.1.2.3") && !may("/inside/own/x", "10.2.3.4"));
        assert!(!may("/", "") && judge(&rules[1..], b"/", None, NOW).is_ok());
    }

    #[test]
    fn what_one_rate_refuses_doesnt_count_for_another() {
        let limited = |path: &str, requests| {
            let rate = ClientRate { requests, per: Duration::from_secs(60) };
            AccessRule { rates: Some(Arc::new(ClientRates::new(rate, 1))), ..rule(path, &[], &[]) }
        };
        let rules = [limited("/*", 5), limited("/login", 1)];
        let may = |path: &str| judge(&rules, path.as_bytes(), Some([10, 0, 0, 1].into()), NOW).is_ok();
        assert!(may("/login") && !(0..9).any(|_| may("/login")));
        assert_eq!((0..9).filter(|_| may("/")).count(), 4);
    }

    #[test]
    fn a_rate_is_for_those_who_are_let_in() {
        let rate = ClientRate { requests: 1, per: Duration::from_secs(60) };
        let rates = Some(Arc::new(ClientRates::new(rate, 1)));
        let rules = [AccessRule { rates, ..rule("/login/*", &[], &["10.0.0.1/32"]) }];
        let ask = |path: &[u8], client: &str| judge(&rules, path, Some(client.parse().unwrap()), NOW);
        assert_eq!(ask(b"/login", "10.0.0.1"), Err(Denial::Address));
        assert_eq!(ask(b"/login", "10.0.0.2"), Ok(()));
        assert_eq!(ask(b"/login/x", "10.0.0.2"), Err(Denial::Rate(Duration::from_secs(60))));
        assert_eq!(ask(b"/", "10.0.0.2"), Ok(()));
        assert_eq!(judge(&rules[..0], b"/login", None, NOW), Ok(()));
    }
}
