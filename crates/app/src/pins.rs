//! Where a server's eBPF maps and programs are pinned, so that they outlive its process: one directory for each part that it has in a cluster. What is in it
//! counts for as much as what leat knows, so it's used only where nobody else can have put anything there.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use leat_host::users;

/// The BPF file system.
pub(crate) const FILE_SYSTEM: &str = "/sys/fs/bpf";

/// Where directories are: below one that belongs to whom leat runs as, if an administrator has made it, else where root may make them.
pub(crate) const PARENTS: [&str; 2] = ["/sys/fs/bpf/leat", FILE_SYSTEM];

/// What only whom a directory belongs to may do: write there.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Who may write in a directory may not take others' things out of it.
const STICKY: u32 = 0o1000;

/// How the names of all directories begin that belong to a network namespace, told apart by its inode: machines of a lab share a file system.
pub(crate) fn mark(namespace: u64) -> String {
    format!("leat-{namespace}-")
}

/// The directory for `part`, made if it isn't there.
///
/// # Errors
/// What is wrong, and the cure.
pub(crate) fn directory(part: &str) -> Result<PathBuf, String> {
    let namespace = fs::metadata("/proc/self/ns/net").map_err(|error| format!("/proc/self/ns/net: {error}"))?;
    let name: String = part.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    find_or_make(&PARENTS.map(Path::new), &format!("{}{name}", mark(namespace.ino())), users::own_id())
}

/// A user's directory below one of `parents`: the one that is there, or a new one below the first that is the user's, else below the second.
fn find_or_make(parents: &[&Path; 2], name: &str, user: u32) -> Result<PathBuf, String> {
    for parent in parents {
        let directory = parent.join(name);
        if let Ok(found) = fs::symlink_metadata(&directory) {
            may_trust_parent(parent, user)?;
            return may_trust(&directory, &found, user).map(|()| directory);
        }
    }
    let is_users =
        |parent: &&&Path| fs::symlink_metadata(parent).is_ok_and(|found| found.is_dir() && found.uid() == user);
    let parent = parents.iter().find(is_users).unwrap_or(&parents[1]);
    may_trust_parent(parent, user)?;
    let directory = parent.join(name);
    // Two processes may come here at once.
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(not_made(&directory, &error)),
        _ => {
            let found = fs::symlink_metadata(&directory).map_err(|error| not_made(&directory, &error))?;
            may_trust(&directory, &found, user).map(|()| directory)
        }
    }
}

fn not_made(directory: &Path, error: &io::Error) -> String {
    format!(
        "{}: {error}; is the BPF file system mounted (mount -t bpf bpf {FILE_SYSTEM}), and may leat write there? Whom it runs as, if that isn't root, needs a \
         directory of its own: chmod 711 {FILE_SYSTEM} && install -d -m 700 -o USER {}",
        directory.display(),
        PARENTS[0]
    )
}

/// Whether what is in a directory can only be its user's.
fn may_trust(directory: &Path, found: &Metadata, user: u32) -> Result<(), String> {
    let (path, owner, mode) = (directory.display(), found.uid(), found.mode() & 0o7777);
    if !found.is_dir() {
        return Err(format!("{path} is no directory, and leat pins its maps in it: remove it (rm {path})"));
    }
    if owner != user {
        return Err(format!(
            "{path} belongs to user {owner}, as whom leat has run before, and not to user {user}: run it as that one, or remove what is left (rm -r {path})"
        ));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!(
            "others may write in {path} (its mode is {mode:o}), and what they put there would count as leat's: remove what is left (rm -r {path}), or if \
             nobody has, take it from them (chmod go-w {path})"
        ));
    }
    Ok(())
}

/// Whether nobody else can put another directory in the place of one that is a user's.
fn may_trust_parent(parent: &Path, user: u32) -> Result<(), String> {
    let path = parent.display();
    let found = fs::symlink_metadata(parent).map_err(|error| not_made(parent, &error))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_dir() || owner != user && owner != 0 {
        return Err(format!(
            "{path} belongs to user {owner}, and what leat has pinned below it isn't safe from that one: remove it (rm -r {path})"
        ));
    }
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return Err(format!(
            "others may write in {path} (its mode is {mode:o}), and put something in the place of what leat has pinned: chmod 711 {path}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory for a test, which is gone afterwards.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("leat-pins-{name}-{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).expect("it can be made");
            Place(path)
        }

        fn set_mode(&self, path: &str, mode: u32) {
            fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(mode)).expect("it's ours");
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it's ours");
        }
    }

    #[test]
    fn what_another_user_has_left_is_told_with_its_owner_also_to_root() {
        let place = Place::new("owner");
        let own = users::own_id();
        let directory = find_or_make(&[&place.0; 2], "leat-1-x", own).expect("it can be made");
        assert_eq!(find_or_make(&[&place.0; 2], "leat-1-x", own), Ok(directory.clone()));
        assert_eq!(fs::metadata(&directory).expect("it's there").mode() & 0o7777, 0o700);
        let found = fs::symlink_metadata(&directory).expect("it's there");
        let others = if own == 0 { [1, 2] } else { [0, own + 1] };
        for other in others {
            let error = may_trust(&directory, &found, other).expect_err("it's another's");
            assert!(error.contains(&format!("belongs to user {own}, ")), "{error}");
            assert!(error.ends_with(&format!("(rm -r {})", directory.display())), "{error}");
        }
    }

    #[test]
    fn nothing_is_used_that_others_may_have_written_or_may_replace() {
        let place = Place::new("mode");
        let own = users::own_id();
        let find = || find_or_make(&[&place.0; 2], "leat-1-x", own);
        find().expect("it can be made");
        for mode in [0o770, 0o702, 0o1777] {
            place.set_mode("leat-1-x", mode);
            let error = find().expect_err("others may write there");
            assert!(error.contains(&format!("(its mode is {mode:o})")) && error.contains("chmod go-w"), "{error}");
        }
        place.set_mode("leat-1-x", 0o755);
        find().expect("others only read");
        place.set_mode("", 0o777);
        assert!(find().expect_err("it could be replaced").contains("chmod 711"));
        place.set_mode("", 0o1777);
        find().expect("it can't be replaced");
        fs::remove_dir(place.0.join("leat-1-x")).expect("it's empty");
        fs::create_dir(place.0.join("elsewhere")).expect("it can be made");
        symlink(place.0.join("elsewhere"), place.0.join("leat-1-x")).expect("it can be made");
        assert!(find().expect_err("it's a link").contains("is no directory"));
    }

    #[test]
    fn a_directory_that_was_made_for_the_user_comes_first_and_what_is_there_stays() {
        let place = Place::new("own");
        let (own, user) = (place.0.join("leat"), users::own_id());
        let parents = [own.as_path(), place.0.as_path()];
        let before = find_or_make(&parents, "leat-1-x", user).expect("it can be made");
        assert_eq!(before, place.0.join("leat-1-x"), "there is no other");
        fs::create_dir(&own).expect("it can be made");
        assert_eq!(find_or_make(&parents, "leat-1-x", user), Ok(before), "what runs goes on");
        assert_eq!(find_or_make(&parents, "leat-1-y", user), Ok(own.join("leat-1-y")));
    }
}
