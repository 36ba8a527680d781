//! Who a process runs as, and users by their names.

use std::ffi::CString;
use std::io;
use std::mem;
use std::ptr;

/// A user as the kernel knows one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The number.
    pub id: u32,
    /// The number of the first group.
    pub group: u32,
}

/// Room for an entry of the user database: many times what one has.
const ENTRY_BYTES: usize = 64 * 1024;

/// Looks a user up by name, wherever the system keeps them (getpwnam_r(3)).
///
/// # Errors
/// The database can't be read.
pub fn find(name: &str) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut room: Vec<libc::c_char> = vec![0; ENTRY_BYTES];
    let mut found = ptr::null_mut();
    // SAFETY: all-zero bytes are a valid passwd; name, entry, room and result live through the call, and the room's true length is told.
    let (entry, error) = unsafe {
        let mut entry: libc::passwd = mem::zeroed();
        let error = libc::getpwnam_r(name.as_ptr(), &raw mut entry, room.as_mut_ptr(), room.len(), &raw mut found);
        (entry, error)
    };
    match error {
        0 if found.is_null() => Ok(None),
        0 => Ok(Some(User { id: entry.pw_uid, group: entry.pw_gid })),
        // Some databases say so of a name that they don't have (getpwnam(3)).
        libc::ENOENT | libc::ESRCH => Ok(None),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The number of the user that this process runs as. Root, who may start others as anybody, is 0.
#[must_use]
pub fn own_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(find("root").unwrap(), Some(User { id: 0, group: 0 }));
        assert_eq!(find("nobody-of-this-name").unwrap(), None);
        assert_eq!(find("ro\0ot").unwrap(), None);
    }
}
