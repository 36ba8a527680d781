//! Users of the system.

use std::path::Path;

use leat_host::users::{self, User};

use super::path::reason;
use super::{Text, Wrong};

/// A user by name; nobody in particular when empty.
pub(in crate::config) const USER: Text<Option<User>> =
    Text { description: "name of a user, or `\"\"`", example: "www-data", parse: parse_user };

fn parse_user(written: &str, _: &Path) -> Result<Option<User>, Wrong> {
    if written.is_empty() {
        return Ok(None);
    }
    match users::find(written) {
        Ok(Some(user)) => Ok(Some(user)),
        Ok(None) => Wrong::new(
            "isn't a user of this machine",
            "write one that `getent passwd` lists, or make it: useradd --system --no-create-home NAME",
        ),
        Err(error) => Wrong::new(format!("can't be looked up: {}", reason(&error)), "see that `getent passwd` works"),
    }
}
