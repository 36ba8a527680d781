//! What is in memory and what has to be brought there; tags of files too large to be hashed first.

use leat_logic::serve::coding::{CodingOrder, CodingSet};
use leat_logic::serve::etag::ETag;
use leat_logic::serve::version::Known;
use rustix::fs::Advice;

use super::fixture::{Fixture, file, resource};
use crate::storage::pool::Lane;
use crate::storage::residency::is_resident;
use crate::storage::{Outcome, Storage, StorageEvent, Ticket};

const LEN: u64 = 1 << 20;

/// A fixture whose file `large` isn't in memory; none where the file system keeps everything there.
fn evicted() -> Option<(Fixture, super::fixture::File)> {
    let mut fixture = Fixture::new();
    let path = fixture.write_settled("large", (0..LEN).map(|at| (at >> 8) as u8).collect::<Vec<_>>());
    let found = fixture.find("/large");
    let open = file(&found);
    std::fs::File::open(path).unwrap().sync_all().unwrap();
    rustix::fs::fadvise(&open, 0, None, Advice::DontNeed).unwrap();
    if is_resident(&open, 0, LEN) {
        assert!(std::env::var_os("CI").is_none(), "the test directory's file system doesn't let go of its pages");
        eprintln!("skipped: the test directory's file system keeps everything in memory; set TMPDIR to a disk");
        return None;
    }
    Some((fixture, open))
}

#[test]
fn what_is_on_disk_is_brought_into_memory_by_the_pool() {
    let Some((mut fixture, open)) = evicted() else { return };
    assert!(matches!(fixture.storage.make_resident(Ticket(5), &open, 0, 10 * LEN), Outcome::Pending));
    let result = fixture.wait_for(|event| match event {
        StorageEvent::Resident { ticket: Ticket(5), result } => Some(*result),
        _ => None,
    });
    assert_eq!(result, Ok(()));
    assert!(is_resident(&open, 0, LEN));
    assert!(matches!(fixture.storage.make_resident(Ticket(6), &open, LEN / 2, LEN), Outcome::Ready(Ok(()))));
    assert!(matches!(fixture.storage.make_resident(Ticket(7), &open, 5 * LEN, LEN), Outcome::Ready(Ok(()))));
}

#[test]
fn one_page_that_is_missing_shows() {
    let Some((_fixture, open)) = evicted() else { return };
    let mut byte = [0];
    rustix::io::pread(&open, &mut byte, 0).unwrap();
    assert!(!is_resident(&open, 0, LEN));
    assert!(is_resident(&open, 0, 1));
}

#[test]
fn a_copy_is_read_by_the_pool_or_at_once() {
    let Some((mut fixture, open)) = evicted() else { return };
    let expected: Vec<u8> = (LEN - 300..LEN).map(|at| (at >> 8) as u8).collect();
    let read = match fixture.storage.read(Ticket(8), &open, LEN - 300, 1_000) {
        Outcome::Ready(result) => result,
        Outcome::Pending => fixture.wait_for(|event| match event {
            StorageEvent::Read { ticket: Ticket(8), result } => Some(result.clone()),
            _ => None,
        }),
    };
    assert_eq!(read.unwrap(), expected);
    let Outcome::Ready(again) = fixture.storage.read(Ticket(9), &open, LEN - 300, 1_000) else {
        panic!("not in memory")
    };
    assert_eq!(again.unwrap(), expected);
}

#[test]
fn a_file_too_large_to_hash_first_has_its_tag_later() {
    let mut fixture = Fixture::new();
    let content = vec![3; 5 << 20];
    fixture.write_settled("huge", &content);
    let first = fixture.load("/huge");
    assert_eq!(resource(&first.found).description.etag, None);
    // The background lane works in order: a job after the hash tells when it's done.
    let (done, is_done) = std::sync::mpsc::channel();
    fixture.pool.submit(Lane::Background, Box::new(move || done.send(()).unwrap())).unwrap();
    is_done.recv().unwrap();
    let known = Known { version: first.version.unwrap(), tagged: false, siblings: CodingSet::default() };
    let again = fixture.request("/huge", CodingOrder::NONE).unwrap().unless(Some(known));
    let second = fixture.ask(again).expect("there is news: the tag");
    assert_eq!(resource(&second.found).description.etag, Some(ETag::of(&content)));
    let known = Known { tagged: true, ..known };
    let again = fixture.request("/huge", CodingOrder::NONE).unwrap().unless(Some(known));
    assert!(fixture.ask(again).is_none());
}
