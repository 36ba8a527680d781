//! The hosts of a site. Which patterns there are is decided in `leat_logic::serve::hosts`.

use std::path::Path;

use leat_logic::serve::hosts::{HostPattern, HostPatternError};

use super::{Text, Wrong};

pub(in crate::config) const HOST: Text<HostPattern> =
    Text { description: "host, or `*.` and a host", example: "www.example.org", parse: parse_host };

fn parse_host(written: &str, _: &Path) -> Result<HostPattern, Wrong> {
    written.parse().or_else(|error: HostPatternError| {
        let help = match error {
            HostPatternError::Brackets => return Wrong::new(error.to_string(), format!("write \"[{written}]\"")),
            HostPatternError::Port => "take the port out; ports are set with `listen`",
            HostPatternError::Everything => {
                "leave `hosts` out: the site then answers for every host that no other site has"
            }
            HostPatternError::Wildcard => "a star stands for whole labels at the start only, as in \"*.example.org\"",
            HostPatternError::Character('/') => "write the host alone, without scheme and path",
            HostPatternError::Character(c) if !c.is_ascii() => {
                "write the name in its ASCII form (punycode), as in \"xn--bcher-kva.example\""
            }
            _ => "write a host as in \"www.example.org\", \"*.example.org\", \"192.0.2.1\" or \"[2001:db8::1]\"",
        };
        Wrong::new(error.to_string(), help)
    })
}
