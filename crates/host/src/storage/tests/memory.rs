//! What is in memory and what has to be brought there; tags of files too large to be hashed first.

use leat_logic::serve::coding::{CodingOrder, CodingSet};
use leat_logic::serve::etag::ETag;
use leat_logic::serve::version::Known;
use rustix::fs::Advice;

use super::fixture::{Fixture, file, resource};
use crate::storage::pool::Lane;
use crate::storage::residency::is_resident;
use crate::storage::{Outcome, Payer, Storage, StorageEvent, Ticket, disk_bytes};

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
    assert!(matches!(fixture.storage.make_resident(Ticket(5), None, &open, 0, 10 * LEN), Outcome::Pending));
    let result = fixture.wait_for(|event| match event {
        StorageEvent::Resident { ticket: Ticket(5), result } => Some(*result),
        _ => None,
    });
    assert_eq!(result, Ok(()));
    assert!(is_resident(&open, 0, LEN));
    assert!(matches!(fixture.storage.make_resident(Ticket(6), None, &open, LEN / 2, LEN), Outcome::Ready(Ok(()))));
    assert!(matches!(fixture.storage.make_resident(Ticket(7), None, &open, 5 * LEN, LEN), Outcome::Ready(Ok(()))));
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
    let read = match fixture.storage.read(Ticket(8), None, &open, LEN - 300, 1_000) {
        Outcome::Ready(result) => result,
        Outcome::Pending => fixture.wait_for(|event| match event {
            StorageEvent::Read { ticket: Ticket(8), result } => Some(result.clone()),
            _ => None,
        }),
    };
    assert_eq!(read.unwrap(), expected);
    let Outcome::Ready(again) = fixture.storage.read(Ticket(9), None, &open, LEN - 300, 1_000) else {
        panic!("not in memory")
    };
    assert_eq!(again.unwrap(), expected);
}

const PAYER: Payer = Payer(3);

/// A file below the root that isn't in memory; whether it isn't.
fn write_evicted(fixture: &Fixture, name: &str, len: usize) -> bool {
    let path = fixture.write_settled(name, vec![5; len]);
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let before = disk_bytes();
    // All of it: what is being read isn't let go of.
    std::fs::read(&path).unwrap();
    let is_evicted = disk_bytes() > before;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    if !is_evicted {
        assert!(std::env::var_os("CI").is_none(), "the test directory's file system has nothing read from a disk");
        eprintln!("skipped: the test directory's file system keeps everything in memory; set TMPDIR to a disk");
    }
    is_evicted
}

/// What was read for `PAYER` by the pool until `take` finds what it's looking for, and by this thread since `before`.
fn read_until<T>(
    fixture: &mut Fixture,
    before: u64,
    mut take: impl FnMut(&StorageEvent<super::fixture::File>) -> Option<T>,
) -> (T, u64) {
    let found = fixture.wait_for(|event| match event {
        StorageEvent::FromDisk { payer, .. } => {
            assert_eq!(*payer, PAYER);
            None
        }
        event => take(event),
    });
    (found, take_told(fixture) + disk_bytes() - before)
}

/// What the pool has told so far that it had read.
fn take_told(fixture: &mut Fixture) -> u64 {
    let told = |event: &StorageEvent<_>| if let StorageEvent::FromDisk { bytes, .. } = event { *bytes } else { 0 };
    let bytes = fixture.events.iter().map(told).sum();
    fixture.events.retain(|event| !matches!(event, StorageEvent::FromDisk { .. }));
    bytes
}

/// Loads a file for `PAYER`; what was read for that, and whether it has a tag.
fn load_paid(fixture: &mut Fixture, path: &str) -> (u64, bool) {
    let request = fixture.request(path, CodingOrder::NONE).unwrap();
    let before = disk_bytes();
    let (loaded, read) = match fixture.storage.load(Ticket(1), Some(PAYER), request) {
        Outcome::Ready(loaded) => (loaded, disk_bytes() - before),
        Outcome::Pending => read_until(fixture, before, |event| match event {
            StorageEvent::Loaded { loaded, .. } => Some(loaded.clone()),
            _ => None,
        }),
    };
    (read, resource(&loaded.unwrap().found).description.etag.is_some())
}

#[test]
fn what_a_load_has_the_disk_read_is_told() {
    let mut fixture = Fixture::new();
    let (small, hashed) = (60_000, 1 << 20);
    if !write_evicted(&fixture, "small", small) || !write_evicted(&fixture, "hashed", hashed) {
        return;
    }
    for (path, len) in [("/small", small as u64), ("/hashed", hashed as u64)] {
        let (read, _) = load_paid(&mut fixture, path);
        // The kernel may read names and the like as well.
        assert!((len..len + LEN).contains(&read), "{read} bytes for {len}");
        assert_eq!(load_paid(&mut fixture, path).0, 0, "it's in memory");
    }
}

#[test]
fn what_is_brought_into_memory_is_told_once() {
    let Some((mut fixture, open)) = evicted() else { return };
    let mut bring = |offset, len| {
        let before = disk_bytes();
        match fixture.storage.make_resident(Ticket(1), Some(PAYER), &open, offset, len) {
            Outcome::Ready(_) => disk_bytes() - before,
            Outcome::Pending => {
                let is_answer = |event: &_| matches!(event, StorageEvent::Resident { .. }).then_some(());
                read_until(&mut fixture, before, is_answer).1
            }
        }
    };
    let pieces = [bring(0, LEN / 2), bring(LEN / 2, LEN / 2), bring(0, LEN)];
    assert!(pieces[0] >= LEN / 2 && pieces[2] == 0, "{pieces:?}");
    // The second piece may have been read with the first.
    assert!((LEN..LEN + LEN / 4).contains(&(pieces[0] + pieces[1])), "{pieces:?}");
}

#[test]
fn a_large_file_that_is_paid_for_is_hashed_once_it_is_in_memory() {
    let mut fixture = Fixture::new();
    if !write_evicted(&fixture, "huge", 5 << 20) {
        return;
    }
    let load = |fixture: &mut Fixture| {
        let (read, is_tagged) = load_paid(fixture, "/huge");
        // The background lane works in order.
        let (done, is_done) = std::sync::mpsc::channel();
        fixture.pool.submit(Lane::Background, Box::new(move || done.send(()).unwrap())).unwrap();
        is_done.recv().unwrap();
        fixture.poll();
        (read + take_told(fixture), is_tagged)
    };
    let before = [load(&mut fixture), load(&mut fixture)];
    assert!(before.iter().all(|&(read, is_tagged)| read < LEN && !is_tagged), "nobody waits for it: {before:?}");
    std::fs::read(fixture.root.join("huge")).unwrap();
    assert_eq!([load(&mut fixture), load(&mut fixture)], [(0, false), (0, true)]);
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
