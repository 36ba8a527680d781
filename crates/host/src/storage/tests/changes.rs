//! Files that change: while they're looked at, while they're kept, while they're sent.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::sync::Arc;

use leat_logic::serve::coding::{CodingOrder, CodingSet};
use leat_logic::serve::etag::ETag;
use leat_logic::serve::policy::SymlinkPolicy;
use leat_logic::serve::resource::{Change, Keep};
use leat_logic::serve::version::Known;
use leat_logic::time::Instant;
use rustix::io::Errno;

use super::fixture::{Fixture, file, memory, resource, settle};
use crate::storage::open::{Patience, Root};
use crate::storage::{OpenFile, Outcome, PoolLimits, Storage, StorageEvent, Ticket};

fn fixture_with_large_file() -> (Fixture, std::path::PathBuf, Arc<OpenFile>) {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("large", vec![1; 100_000]);
    let found = fixture.find("/large");
    let open = file(&found);
    assert!(open.is_unchanged());
    (fixture, path, open)
}

#[test]
fn a_file_that_grows_is_changed() {
    let (_fixture, path, open) = fixture_with_large_file();
    OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
    assert!(!open.is_unchanged());
}

#[test]
fn a_file_that_shrinks_is_changed() {
    let (_fixture, path, open) = fixture_with_large_file();
    OpenOptions::new().write(true).open(path).unwrap().set_len(99_999).unwrap();
    assert!(!open.is_unchanged());
}

#[test]
fn a_file_that_is_written_to_is_changed_even_if_its_time_is_set_back() {
    let (_fixture, path, open) = fixture_with_large_file();
    let writer = OpenOptions::new().write(true).open(path).unwrap();
    let modified = writer.metadata().unwrap().modified().unwrap();
    writer.write_all_at(b"2", 50_000).unwrap();
    writer.set_modified(modified).unwrap();
    assert!(!open.is_unchanged());
}

#[test]
fn a_file_that_is_deleted_or_replaced_is_not_changed() {
    let (fixture, path, open) = fixture_with_large_file();
    let new = fixture.write("new", "other");
    std::fs::rename(new, &path).unwrap();
    assert!(open.is_unchanged());
    let (_fixture, path, open) = fixture_with_large_file();
    std::fs::remove_file(path).unwrap();
    assert!(open.is_unchanged());
}

#[test]
fn a_name_that_leads_elsewhere_by_the_time_it_is_opened_is_looked_up_again() {
    let fixture = Fixture::new();
    let path = fixture.write_settled("file", "one");
    let root = Root::open(&fixture.root).unwrap();
    let named = root.name(b"file", SymlinkPolicy::Beneath, Patience::Wait).unwrap();
    let new = fixture.write("new", "two");
    std::fs::rename(new, path).unwrap();
    assert_eq!(root.read(b"file", named, SymlinkPolicy::Beneath, Patience::Wait).unwrap_err(), Errno::STALE);
}

#[test]
fn a_young_small_file_is_kept_for_a_moment_only() {
    let mut fixture = Fixture::new();
    fixture.write_settled("small", "old");
    // A first look opens the root, so that the second is quick enough to find the file young.
    fixture.load("/small");
    let young = loop {
        fixture.write("small", "new");
        let small = fixture.load("/small");
        if small.version.is_none() {
            break small;
        }
    };
    let Keep::For { fresh_ns, .. } = young.keep else { panic!("{:?}", young.keep) };
    assert!(fresh_ns < 100_000_000);
    assert_eq!(memory(&young.found), b"new");
}

#[test]
fn a_young_large_file_is_waited_for_and_gets_its_tag() {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("large", vec![1; 100_000]);
    File::open(&path).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let large = fixture.load("/large");
    assert!(large.version.is_some());
    assert_eq!(resource(&large.found).description.etag, Some(ETag::of(&[1; 100_000])));
}

#[test]
fn a_write_to_a_kept_file_is_noticed() {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("a/b/file", "old");
    fixture.write_settled("a/b/other", "other");
    fixture.keep("/a/b/file");
    fixture.keep("/a/b/other");
    std::fs::write(&path, "new").unwrap();
    fixture.wait_until_dropped("/a/b/file");
    assert!(fixture.is_kept("/a/b/other"));
    settle(&path);
    assert_eq!(memory(&fixture.load("/a/b/file").found), b"new");
}

#[test]
fn coming_going_and_replacement_are_noticed() {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("d/file", "old");
    fixture.keep("/d/missing");
    fixture.keep("/d/new/deep");
    fixture.keep("/d/");
    fixture.keep("/d/file");
    fixture.write("d/missing", "");
    fixture.wait_until_dropped("/d/missing");
    fixture.write("d/new/deep", "");
    fixture.wait_until_dropped("/d/new/deep");
    fixture.write("d/index.html", "");
    fixture.wait_until_dropped("/d/");
    let new = fixture.write("elsewhere/file", "new");
    std::fs::rename(new, &path).unwrap();
    fixture.wait_until_dropped("/d/file");
    settle(&path);
    fixture.keep("/d/file");
    std::fs::remove_file(path).unwrap();
    fixture.wait_until_dropped("/d/file");
}

#[test]
fn a_directory_that_is_renamed_takes_all_below_along() {
    let mut fixture = Fixture::new();
    fixture.write_settled("a/b/c/file", "old");
    fixture.keep("/a/b/c/file");
    fixture.keep("/a");
    std::fs::rename(fixture.root.join("a"), fixture.root.join("z")).unwrap();
    fixture.wait_until_dropped("/a/b/c/file");
    fixture.wait_until_dropped("/a");
    let path = fixture.write_settled("a/b/c/file", "new");
    fixture.settle_notices();
    fixture.keep("/a/b/c/file");
    // What the old directory becomes no longer matters; what the new one does, does.
    std::fs::write(fixture.root.join("z/b/c/file"), "older").unwrap();
    fixture.settle_notices();
    assert!(fixture.is_kept("/a/b/c/file"));
    std::fs::write(path, "newer").unwrap();
    fixture.wait_until_dropped("/a/b/c/file");
}

#[test]
fn a_root_that_is_swapped_is_noticed_at_the_next_tick() {
    let mut fixture = Fixture::new();
    for release in ["one", "two"] {
        let path = fixture.directory.0.join(release);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), release).unwrap();
        settle(&path.join("file"));
    }
    let current = fixture.directory.0.join("current");
    symlink("one", &current).unwrap();
    fixture.policy.root.clone_from(&current);
    fixture.keep("/file");
    fixture.storage.handle_timeout(Instant { ns: 0 });
    let next = fixture.directory.0.join("next");
    symlink("two", &next).unwrap();
    std::fs::rename(next, current).unwrap();
    // The first look may have come before the swap.
    let mut tick = 0;
    while fixture.is_kept("/file") {
        tick += 1;
        fixture.storage.handle_timeout(Instant { ns: tick * 1_000_000_000 });
        fixture.settle_notices();
    }
    assert_eq!(memory(&fixture.load("/file").found), b"two");
}

#[test]
fn a_file_behind_a_link_is_looked_at_again_as_it_cannot_be_watched() {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("real/file", "old");
    symlink("real", fixture.root.join("link")).unwrap();
    symlink("real/file", fixture.root.join("link-file")).unwrap();
    for name in ["/link/file", "/link-file"] {
        let loaded = fixture.load(name);
        assert!(matches!(loaded.keep, Keep::For { watch: None, .. }), "{name}: {:?}", loaded.keep);
        let known = Known { version: loaded.version.unwrap(), tagged: true, siblings: CodingSet::default() };
        let again = fixture.request(name, CodingOrder::NONE).unwrap().unless(Some(known));
        assert!(fixture.ask(again.clone()).is_none(), "{name} is unchanged");
    }
    let loaded = fixture.load("/link/file");
    let known = Known { version: loaded.version.unwrap(), tagged: true, siblings: CodingSet::default() };
    std::fs::write(&path, "changed").unwrap();
    let again = fixture.request("/link/file", CodingOrder::NONE).unwrap().unless(Some(known));
    assert_eq!(memory(&fixture.ask(again).unwrap().found), b"changed");
}

#[test]
fn an_answer_that_a_change_may_have_overtaken_is_not_kept() {
    let mut fixture = Fixture::with(PoolLimits { threads_max: 1, ..PoolLimits::default() }, 100);
    fixture.policy.listing = true;
    fixture.write_settled("d/file", "x");
    fixture.keep("/d/file");
    let gate = super::pool::Gate::close(&fixture.pool);
    // Listings are the pool's, which is busy.
    for (ticket, path) in [(1_001, "/d/"), (1_002, "/")] {
        let request = fixture.request(path, CodingOrder::NONE).unwrap();
        assert!(matches!(fixture.storage.load(Ticket(ticket), None, request), Outcome::Pending));
    }
    fixture.write("d/new", "x");
    fixture.wait_for(|event| {
        matches!(event, StorageEvent::Changed(Change::Name { name, .. }) if name == "new").then_some(())
    });
    gate.open();
    let mut keep_of = |of| {
        fixture.wait_for(|event| match event {
            StorageEvent::Loaded { ticket, loaded: Some(loaded) } if *ticket == Ticket(of) => Some(loaded.keep),
            _ => None,
        })
    };
    assert_eq!(keep_of(1_001), Keep::No);
    assert!(matches!(keep_of(1_002), Keep::For { watch: Some(_), .. }));
}

#[test]
fn watches_are_bounded_and_the_oldest_is_given_up_with_what_it_covered() {
    let mut fixture = Fixture::with(PoolLimits::default(), 3);
    for name in ["a", "b", "c"] {
        fixture.write_settled(&format!("{name}/file"), name);
    }
    fixture.keep("/a/file");
    fixture.keep("/b/file");
    fixture.settle_notices();
    assert!(fixture.is_kept("/a/file"));
    fixture.keep("/c/file");
    fixture.wait_until_dropped("/a/file");
    assert!(fixture.is_kept("/b/file") && fixture.is_kept("/c/file"));
}

#[test]
fn lost_notices_drop_everything() {
    let mut fixture = Fixture::new();
    fixture.write_settled("kept", "x");
    fixture.write("noise", "x");
    fixture.keep("/kept");
    let limit: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let (one, other) = (fixture.root.join("one"), fixture.root.join("other"));
    std::fs::rename(fixture.root.join("noise"), &one).unwrap();
    for _ in 0..limit / 4 + 10 {
        std::fs::rename(&one, &other).unwrap();
        std::fs::rename(&other, &one).unwrap();
    }
    fixture.wait_until_dropped("/kept");
    fixture.keep("/kept");
    std::fs::write(fixture.root.join("kept"), "y").unwrap();
    fixture.wait_until_dropped("/kept");
}
