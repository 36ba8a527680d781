//! The kinds of value that keys take. A kind reads one TOML value, says what is wrong with it, and describes itself for the reference.
//! Which key has which kind is left to `server` and `site`; what needs two keys to be judged, to `check`.

mod address;
mod command;
mod header;
mod host;
mod nested;
mod number;
mod path;
mod pattern;
mod policy;
mod secret;
mod text;
mod user;

use toml::Spanned;
use toml::de::DeValue;

use super::schema::{At, Schema};

pub use address::address_argument;
pub(super) use address::{ADDRESS, IP_ADDRESS, NETWORK, OPTIONAL_ADDRESS};
pub use command::Command;
pub(super) use command::{CommandLine, PEER, UPSTREAM, VARIABLE_NAME, VARIABLE_VALUE};
pub(super) use header::{HEADER_NAME, HEADER_VALUE, HeaderName, MEDIA_TYPE};
pub(super) use host::HOST;
pub(super) use nested::{Maybe, Nested, Repeated};
pub(super) use number::{Count, Duration as Period, GIB, KIB, Percent, Rate, Size, TIB, Workers, cores, show_size};
pub(super) use path::{
    ACCESS_LOG, DIRECTORY, EXTENSION, FILE_NAME, FILE_NAME_OR_NONE, SOCKET, URL_PATH, URL_PATH_OR_NONE, is_directory,
    reason,
};
pub(super) use pattern::{BELOW, DESTINATION, PATH_PATTERN};
pub(super) use policy::{DISPATCH_POLICY, POLICY, PROTOCOL};
pub(super) use secret::{ADMIN_TOKEN, CLUSTER_KEY};
pub(super) use text::{CHARSET, CPU_LIST, Choice, Flag, ListOf, NAME, OWNER, Pairs, STATUS, TOKEN, Text, Wrong};
pub(super) use user::USER;

/// What the reference says about a kind.
pub(in crate::config) trait Describe {
    /// The type column: "size, 1KiB to 1MiB".
    fn describe(&self) -> String;

    /// A value as one would write it, for messages.
    fn example(&self) -> String;

    /// Words that it takes and that want explaining, each with its explanation.
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// The section that a value of this kind is.
    fn nested(&self) -> Option<&'static Schema> {
        None
    }
}

/// One kind of value.
pub(in crate::config) trait Kind: Describe {
    /// What a value becomes.
    type Value;

    /// Reads `value`; every mistake goes to `at`, and then there is no value.
    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Self::Value>;

    /// The value where nothing is written and no default can be.
    fn otherwise(&self, _at: &At<'_>) -> Option<Self::Value> {
        None
    }
}

/// A kind whose value is blank where nothing is written: something else fills it in, or the file is refused.
pub(super) struct OrBlank<K>(pub(super) K);

impl<K: Describe> Describe for OrBlank<K> {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn example(&self) -> String {
        self.0.example()
    }
}

impl<K: Kind<Value: Default>> Kind for OrBlank<K> {
    type Value = K::Value;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<K::Value> {
        self.0.read(value, at)
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<K::Value> {
        Some(K::Value::default())
    }
}

/// A kind whose value is none where nothing is written.
pub(super) struct Optional<K>(pub(super) K);

impl<K: Describe> Describe for Optional<K> {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn example(&self) -> String {
        self.0.example()
    }
}

impl<K: Kind> Kind for Optional<K> {
    type Value = Option<K::Value>;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<Self::Value> {
        self.0.read(value, at).map(Some)
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<Self::Value> {
        Some(None)
    }
}
