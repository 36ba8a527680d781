//! What paths name, and what they can't be made to name.

use std::mem::MaybeUninit;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use leat_logic::serve::coding::{Coding, CodingOrder, CodingSet};
use leat_logic::serve::etag::ETag;
use leat_logic::serve::policy::SymlinkPolicy;
use leat_logic::serve::resource::{Cause, Found};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::fixture::{Directory, Fixture, file, memory, resource};
use crate::storage::open::{Patience, Root, walk};
use crate::storage::watch_tree::Names;
use crate::storage::{directory, limits};

#[test]
fn a_small_file_is_in_memory_under_its_content_s_tag() {
    let mut fixture = Fixture::new();
    fixture.write_settled("a/b.html", "<p>hello");
    let loaded = fixture.load("/a/b.html");
    assert_eq!(memory(&loaded.found), b"<p>hello");
    let description = &resource(&loaded.found).description;
    assert_eq!(description.etag, Some(ETag::of(b"<p>hello")));
    assert_eq!(description.content_type, "text/html; charset=utf-8");
    assert_eq!(description.modified, Some(loaded.version.unwrap().modified));
    let fields = resource(&loaded.found).fields_whole();
    assert!(fields.ends_with(b"Content-Type: text/html; charset=utf-8\r\nContent-Length: 8\r\n"), "{fields:?}");
}

#[test]
fn a_large_file_is_open_and_an_empty_one_is_nothing_special() {
    let mut fixture = Fixture::new();
    let content = vec![7; 100_000];
    fixture.write_settled("large", &content);
    fixture.write("empty", "");
    let found = fixture.find("/large");
    assert_eq!(file(&found).version().len_bytes, 100_000);
    assert_eq!(resource(&found).description.etag, Some(ETag::of(&content)));
    assert_eq!(memory(&fixture.find("/empty")), b"");
}

#[test]
fn directories_have_an_index_a_right_address_and_nothing_else() {
    let mut fixture = Fixture::new();
    fixture.write("d/index.html", "index");
    fixture.write("bare/file", "");
    std::fs::create_dir(fixture.root.join("odd")).unwrap();
    std::fs::create_dir(fixture.root.join("odd/index.html")).unwrap();
    assert_eq!(memory(&fixture.find("/d/")), b"index");
    assert!(matches!(fixture.find("/d"), Found::Redirect(to) if to == "/d/"));
    assert!(matches!(fixture.find("/bare/"), Found::Forbidden));
    assert!(matches!(fixture.find("/odd/"), Found::Forbidden));
    assert!(matches!(fixture.find("/"), Found::Forbidden));
    for missing in ["/none", "/none/", "/none/x", "/d/index.html/", "/d/index.html/x"] {
        assert!(matches!(fixture.find(missing), Found::NotFound), "{missing}");
    }
}

#[test]
fn a_root_that_is_missing_is_the_server_s_fault() {
    let mut fixture = Fixture::new();
    fixture.policy.root = fixture.directory.0.join("missing");
    assert!(matches!(fixture.find("/"), Found::Unavailable(Cause::Failed(_))));
}

#[test]
fn no_path_leaves_the_root_not_even_one_that_got_past_the_checks() {
    let fixture = Fixture::new();
    std::fs::write(fixture.directory.0.join("secret"), "secret").unwrap();
    fixture.write("d/file", "");
    symlink("../../secret", fixture.root.join("d/up")).unwrap();
    symlink("/etc/passwd", fixture.root.join("absolute")).unwrap();
    symlink("/proc/self/root/etc/passwd", fixture.root.join("magic")).unwrap();
    let root = Root::open(&fixture.root).unwrap();
    let shapes: &[&[u8]] =
        &[b"../secret", b"d/../../secret", b"/etc/passwd", b"d/up", b"absolute", b"magic", b"..", b"d/../.."];
    for path in shapes {
        for policy in [SymlinkPolicy::Beneath, SymlinkPolicy::Deny] {
            let named = root.name(path, policy, Patience::Wait);
            assert!(named.is_err(), "{} under {policy:?} gave {named:?}", path.escape_ascii());
        }
        let directory =
            rustix::fs::openat(CWD, &fixture.root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let walked =
            walk(std::os::fd::AsFd::as_fd(&directory), path, OFlags::PATH, SymlinkPolicy::Beneath, Patience::Wait);
        let walked = walked.map(|opened| FileType::from_raw_mode(rustix::fs::fstat(&opened).unwrap().st_mode));
        // A slash at the start is nothing to a walk, and a link at the end is opened as what it is: then it's refused.
        assert!(matches!(walked, Err(_) | Ok(FileType::Symlink)), "{} walked to {walked:?}", path.escape_ascii());
    }
}

#[test]
fn a_walk_without_openat2_finds_what_is_there() {
    let fixture = Fixture::new();
    fixture.write("d/e/file", "");
    symlink("d", fixture.root.join("link")).unwrap();
    let root = rustix::fs::openat(CWD, &fixture.root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let walk_to =
        |path: &[u8], policy| walk(std::os::fd::AsFd::as_fd(&root), path, OFlags::PATH, policy, Patience::Wait);
    assert!(walk_to(b"d/e/file", SymlinkPolicy::Beneath).is_ok());
    assert!(walk_to(b".", SymlinkPolicy::Beneath).is_ok());
    assert_eq!(walk_to(b"link/e/file", SymlinkPolicy::Beneath).unwrap_err(), Errno::LOOP);
    assert!(walk_to(b"link/e/file", SymlinkPolicy::Follow).is_ok());
    assert_eq!(walk_to(b"d/e/none", SymlinkPolicy::Deny).unwrap_err(), Errno::NOENT);
}

#[test]
fn symbolic_links_do_what_the_site_lets_them() {
    let mut fixture = Fixture::new();
    let outside = Directory::new();
    std::fs::write(outside.0.join("file"), "outside").unwrap();
    fixture.write("real/file", "inside");
    symlink("real", fixture.root.join("inner")).unwrap();
    symlink("real/file", fixture.root.join("inner-file")).unwrap();
    symlink(&outside.0, fixture.root.join("outer")).unwrap();
    symlink("dangling", fixture.root.join("dangling")).unwrap();
    let mut ask = |policy, path: &str| {
        fixture.policy.symlinks = policy;
        fixture.find(path)
    };
    for path in ["/inner/file", "/inner-file"] {
        assert_eq!(memory(&ask(SymlinkPolicy::Beneath, path)), b"inside");
        assert_eq!(memory(&ask(SymlinkPolicy::Follow, path)), b"inside");
        assert!(matches!(ask(SymlinkPolicy::Deny, path), Found::Forbidden), "{path}");
    }
    assert!(matches!(ask(SymlinkPolicy::Beneath, "/outer/file"), Found::Forbidden));
    assert!(matches!(ask(SymlinkPolicy::Deny, "/outer/file"), Found::Forbidden));
    assert_eq!(memory(&ask(SymlinkPolicy::Follow, "/outer/file")), b"outside");
    assert!(matches!(ask(SymlinkPolicy::Follow, "/dangling"), Found::Forbidden));
}

#[test]
fn what_is_neither_file_nor_directory_is_refused_unopened() {
    let mut fixture = Fixture::new();
    let fifo = fixture.root.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(fixture.root.join("socket")).unwrap();
    assert!(matches!(fixture.find("/fifo"), Found::Forbidden));
    assert!(matches!(fixture.find("/socket"), Found::Forbidden));
    assert!(matches!(fixture.find("/fifo/"), Found::NotFound));
    // Nobody has it open for reading, nor had: a writer that doesn't wait finds no reader.
    let writer = rustix::fs::openat(CWD, &fifo, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    assert_eq!(writer.unwrap_err(), Errno::NXIO);
}

#[test]
fn a_sibling_is_served_to_those_who_take_it_unless_it_is_outdated() {
    let mut fixture = Fixture::new();
    fixture.policy.precompressed = vec![Coding::Brotli, Coding::Gzip];
    let plain = fixture.write("app.js", "plain");
    fixture.write("app.js.br", "small");
    fixture.write("app.js.gz", "less small");
    fixture.write("other.js", "alone");
    let both = CodingOrder::NONE.with(Coding::Gzip).with(Coding::Brotli);
    let loaded = fixture.load_coded("/app.js", both);
    assert_eq!(memory(&loaded.found), b"less small");
    let description = &resource(&loaded.found).description;
    let siblings = CodingSet::default().with(Coding::Gzip).with(Coding::Brotli);
    assert_eq!((description.coding, description.siblings), (Some(Coding::Gzip), siblings));
    assert_eq!(description.content_type, "text/javascript; charset=utf-8");
    assert_eq!(description.etag, Some(ETag::of(b"less small")));
    let plain_loaded = fixture.load("/app.js");
    assert_eq!(memory(&plain_loaded.found), b"plain");
    assert_eq!(resource(&plain_loaded.found).description.siblings, siblings);
    assert!(resource(&fixture.load_coded("/other.js", both).found).description.siblings.is_empty());
    let later = SystemTime::now() + Duration::from_secs(60);
    std::fs::File::open(&plain).unwrap().set_modified(later).unwrap();
    let outdated = fixture.load_coded("/app.js", both);
    assert_eq!(memory(&outdated.found), b"plain");
    assert_eq!(resource(&outdated.found).description.modified, None, "a time in the future isn't sent");
}

const CHILD: &str = "LEAT_TEST_UNPRIVILEGED_CHILD";
const NOBODY: u32 = 65_534;

/// There is nothing that root can't read: for root, the test is a process of somebody else.
#[test]
fn a_sibling_that_cant_be_read_is_as_good_as_none() {
    if rustix::process::geteuid().is_root() && std::env::var_os(CHILD).is_none() {
        let name = "storage::tests::paths::a_sibling_that_cant_be_read_is_as_good_as_none";
        // By this name, the program's directory needn't be open to others.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", name, "--test-threads=1"]).env(CHILD, "1").uid(NOBODY).gid(NOBODY);
        assert!(command.current_dir("/").status().unwrap().success());
        return;
    }
    let mut fixture = Fixture::new();
    fixture.policy.precompressed = vec![Coding::Brotli, Coding::Gzip];
    let set_mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let (plain, gzip) = (fixture.write("app.js", "plain"), fixture.write("app.js.gz", "small"));
    set_mode(&gzip, 0);
    let both = CodingOrder::NONE.with(Coding::Gzip).with(Coding::Brotli);
    let mut expect = |content: &[u8], coding: Option<Coding>| {
        let loaded = fixture.load_coded("/app.js", both);
        assert_eq!(memory(&loaded.found), content);
        let description = &resource(&loaded.found).description;
        let siblings = coding.map_or_else(CodingSet::default, |coding| CodingSet::default().with(coding));
        assert_eq!((description.coding, description.siblings), (coding, siblings));
    };
    expect(b"plain", None);
    let brotli = plain.with_extension("js.br");
    std::fs::write(&brotli, "smaller").unwrap();
    expect(b"smaller", Some(Coding::Brotli));
    set_mode(&brotli, 0);
    expect(b"plain", None);
    set_mode(&gzip, 0o600);
    std::fs::remove_file(&brotli).unwrap();
    expect(b"small", Some(Coding::Gzip));
    set_mode(&plain, 0);
    set_mode(&gzip, 0);
    assert!(matches!(fixture.load_coded("/app.js", both).found, Found::Forbidden));
}

#[test]
fn a_listing_shows_what_would_be_served() {
    let mut fixture = Fixture::new();
    fixture.policy.listing = true;
    fixture.write("d/file name.txt", "x");
    fixture.write("d/.hidden", "x");
    fixture.write("d/sub/file", "x");
    symlink("/etc/passwd", fixture.root.join("d/outer")).unwrap();
    symlink("sub", fixture.root.join("d/inner")).unwrap();
    rustix::fs::mknodat(CWD, fixture.root.join("d/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let page = String::from_utf8(memory(&fixture.find("/d/")).to_vec()).unwrap();
    for shown in ["./file%20name.txt", "./sub/", "./inner/"] {
        assert!(page.contains(&format!("href=\"{shown}\"")), "{shown} is missing");
    }
    for hidden in ["./.hidden", "./outer", "./fifo"] {
        assert!(!page.contains(hidden), "{hidden} is shown");
    }
}

fn sibling_codings(fixture: &mut Fixture, path: &str) -> CodingSet {
    fixture.names(path).codings
}

#[test]
fn what_takes_the_place_of_a_file_is_refused_unopened() {
    let mut fixture = Fixture::new();
    for path in ["d/made", "d/moved", "d/linked"] {
        fixture.write_settled(path, path);
    }
    // The first load opens the root, the next has the names read.
    assert_eq!(memory(&fixture.find("/d/made")), b"d/made");
    assert_eq!(memory(&fixture.find("/d/made")), b"d/made");
    assert_eq!(fixture.names("/d/made"), Names { codings: CodingSet::default(), are_plain: true });
    for path in ["d/made", "d/moved", "d/linked"] {
        assert_eq!(memory(&fixture.find(&format!("/{path}"))), path.as_bytes());
    }
    assert!(matches!(fixture.find("/d"), Found::Redirect(_)), "a directory is as plain as a file");

    let fifo = |name: &Path| rustix::fs::mknodat(CWD, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (outside, directory) = (fixture.directory.0.join("fifo"), fixture.root.join("d"));
    let place = |name| directory.join(name);
    std::fs::remove_file(place("made")).unwrap();
    fifo(&place("made"));
    fifo(&outside);
    std::fs::rename(&outside, place("moved")).unwrap();
    std::fs::remove_file(place("linked")).unwrap();
    std::fs::hard_link(place("moved"), place("linked")).unwrap();
    for name in ["made", "moved", "linked"] {
        let opened = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&opened, place(name), WatchFlags::OPEN).unwrap();
        assert!(matches!(fixture.find(&format!("/d/{name}")), Found::Forbidden), "{name}");
        let notice =
            inotify::Reader::new(&opened, &mut [MaybeUninit::uninit(); 512]).next().map(|event| event.events());
        assert_eq!(notice, Err(Errno::AGAIN), "{name} was opened");
    }
}

#[test]
fn siblings_are_looked_for_where_the_directory_has_some_in_their_coding() {
    let mut fixture = Fixture::new();
    fixture.policy.precompressed = vec![Coding::Brotli, Coding::Gzip];
    fixture.write("app.js", "plain");
    fixture.write("d/app.js", "plain");
    fixture.write("d/other.js.gz", "of another file");
    let both = CodingOrder::NONE.with(Coding::Gzip).with(Coding::Brotli);
    // The first load opens the root, and has each directory on its way watched; the next has the names read.
    for path in ["/d/app.js", "/d/app.js", "/app.js"] {
        assert_eq!(memory(&fixture.load_coded(path, both).found), b"plain");
    }
    assert_eq!(sibling_codings(&mut fixture, "/app.js"), CodingSet::default());
    let gzip = CodingSet::default().with(Coding::Gzip);
    assert_eq!(sibling_codings(&mut fixture, "/d/app.js"), gzip);
    assert_eq!(memory(&fixture.load_coded("/d/app.js", both).found), b"plain");

    // A sibling that comes is found at once, whether or not anybody has asked for notices meanwhile.
    fixture.write("app.js.br", "small");
    assert_eq!(memory(&fixture.load_coded("/app.js", both).found), b"small");
    let moved = fixture.write("elsewhere", "smaller");
    std::fs::rename(moved, fixture.root.join("d/app.js.br")).unwrap();
    assert_eq!(memory(&fixture.load_coded("/d/app.js", both).found), b"smaller");
    assert_eq!(sibling_codings(&mut fixture, "/d/app.js"), gzip.with(Coding::Brotli));

    // Another directory under the name is another one.
    std::fs::rename(fixture.root.join("d"), fixture.root.join("e")).unwrap();
    fixture.write("d/app.js", "new");
    fixture.write("d/app.js.gz", "small and new");
    assert_eq!(memory(&fixture.load_coded("/d/app.js", both).found), b"small and new");
}

#[test]
fn of_directories_with_too_many_names_nothing_is_known() {
    let fixture = Fixture::new();
    fixture.write("file", "x");
    let root = Root::open(&fixture.root).unwrap();
    assert_eq!(directory::names(&root, b""), Names { codings: CodingSet::default(), are_plain: true });
    for number in 0..limits::NAMES_LISTED_MAX {
        fixture.write(&number.to_string(), "");
    }
    assert_eq!(directory::names(&root, b""), Names::UNKNOWN);
    assert_eq!(directory::names(&root, b"file"), Names::UNKNOWN);
    assert_eq!(directory::names(&root, b"missing"), Names::UNKNOWN);
}
