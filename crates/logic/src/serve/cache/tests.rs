//! The cache against a plain model, and each way in which an entry goes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::resource::{Cause, Description, Resource};
use super::*;
use crate::time::UnixTime;

type TestCache = Cache<u32>;

const SECOND_NS: u64 = 1_000_000_000;

fn at(seconds: u64) -> Instant {
    Instant { ns: seconds * SECOND_NS }
}

fn request(path: &str) -> LoadRequest {
    request_of(path, &Arc::new(FilePolicy::new("/srv")))
}

fn request_of(path: &str, policy: &Arc<FilePolicy>) -> LoadRequest {
    LoadRequest::new::<u32>(policy, path.as_bytes(), CodingOrder::NONE).unwrap()
}

fn resource(content: Content<u32>, len_bytes: u64) -> Found<u32> {
    let description = Description {
        len_bytes,
        etag: None,
        modified: Some(UnixTime::default()),
        content_type: Bytes::from_static(b"text/plain"),
        coding: None,
        siblings: CodingSet::default(),
    };
    Found::Resource(Arc::new(Resource::new(description, content, b"")))
}

/// What a client gets that takes `order` where there are `siblings`.
fn coded(siblings: CodingSet, order: CodingOrder) -> Loaded<u32> {
    let Found::Resource(plain) = memory(10) else { panic!("a resource") };
    let description = Description { coding: order.choose(siblings), siblings, ..plain.description.clone() };
    let resource = Resource::new(description, plain.content.clone(), b"");
    loaded(Found::Resource(Arc::new(resource)), None)
}

/// All sixteen orders.
fn orders() -> Vec<CodingOrder> {
    let mut orders = vec![CodingOrder::NONE];
    let mut at = 0;
    while let Some(&order) = orders.get(at) {
        at += 1;
        for longer in Coding::ALL.map(|coding| order.with(coding)) {
            if !orders.contains(&longer) {
                orders.push(longer);
            }
        }
    }
    orders
}

fn loaded(found: Found<u32>, watch: Option<(u64, u16)>) -> Loaded<u32> {
    let watch = watch.map(|(directory, directory_bytes)| Watch { directory: WatchId(directory), directory_bytes });
    Loaded { found, version: Some(Version::default()), keep: Keep::For { fresh_ns: SECOND_NS, watch } }
}

fn memory(len: usize) -> Found<u32> {
    resource(Content::Memory(vec![0; len].into()), len as u64)
}

fn cache() -> TestCache {
    Cache::new(CacheLimits::default(), 42)
}

fn has(cache: &mut TestCache, path: &str) -> bool {
    !matches!(cache.lookup(0, CodingOrder::NONE, path.as_bytes(), at(0)), Lookup::Absent)
}

fn name(directory: u64, name: &'static str) -> Change {
    Change::Name { directory: WatchId(directory), name: Bytes::from_static(name.as_bytes()) }
}

#[test]
fn site_and_path_tell_entries_apart() {
    let mut cache = cache();
    cache.insert(1, &request("/a"), &loaded(memory(1), None), at(0));
    assert!(matches!(cache.lookup(1, CodingOrder::NONE, b"/a", at(0)), Lookup::Fresh(_)));
    assert!(matches!(cache.lookup(2, CodingOrder::NONE, b"/a", at(0)), Lookup::Absent));
    assert!(matches!(cache.lookup(1, CodingOrder::NONE, b"/", at(0)), Lookup::Absent));
}

#[test]
fn a_path_is_kept_once_for_each_coding_that_is_sent_however_many_orders_ask() {
    let policy = Arc::new(FilePolicy::new("/srv"));
    let sets = (0..8).map(|bits| {
        let chosen = Coding::ALL.into_iter().filter(|&coding| bits & 1 << (coding as u8 - 1) != 0);
        (bits, chosen.fold(CodingSet::default(), CodingSet::with))
    });
    assert_eq!(orders().len(), 16);
    for (bits, siblings) in sets {
        let mut cache = cache();
        for order in orders().into_iter().chain(orders()) {
            if let Lookup::Absent = cache.lookup(0, order, b"/a", at(0)) {
                let request = LoadRequest::new::<u32>(&policy, b"/a", order).unwrap();
                cache.insert(0, &request, &coded(siblings, order), at(0));
            }
            let Lookup::Fresh(Found::Resource(resource)) = cache.lookup(0, order, b"/a", at(0)) else {
                panic!("it's kept")
            };
            assert_eq!(resource.description.coding, order.choose(siblings), "{order:?} of {siblings:?}");
        }
        assert_eq!(cache.len(), 1 + u8::count_ones(bits) as usize, "{siblings:?}");
    }
}

#[test]
fn what_knew_of_other_siblings_goes_when_that_is_noticed() {
    let mut cache = cache();
    let (none, gzip) = (CodingOrder::NONE, CodingOrder::NONE.with(Coding::Gzip));
    let policy = Arc::new(FilePolicy::new("/srv"));
    cache.insert(0, &request("/a"), &coded(CodingSet::default(), none), at(0));
    assert!(matches!(cache.lookup(0, gzip, b"/a", at(0)), Lookup::Fresh(_)));
    let siblings = CodingSet::default().with(Coding::Gzip);
    cache.insert(0, &LoadRequest::new::<u32>(&policy, b"/a", gzip).unwrap(), &coded(siblings, gzip), at(0));
    assert_eq!(cache.len(), 1);
    assert!(matches!(cache.lookup(0, none, b"/a", at(0)), Lookup::Absent));
    assert!(matches!(cache.lookup(0, gzip, b"/a", at(0)), Lookup::Fresh(_)));
}

#[test]
fn an_answer_is_fresh_for_its_time_and_again_when_renewed() {
    let mut cache = cache();
    cache.insert(0, &request("/a"), &loaded(memory(1), None), at(10));
    assert!(matches!(cache.lookup(0, CodingOrder::NONE, b"/a", Instant { ns: 11 * SECOND_NS - 1 }), Lookup::Fresh(_)));
    let Lookup::Stale(_, Some(known)) = cache.lookup(0, CodingOrder::NONE, b"/a", at(11)) else {
        panic!("fresh for too long")
    };
    assert_eq!(known, Known { version: Version::default(), tagged: false, siblings: CodingSet::default() });
    cache.renew(0, CodingOrder::NONE, b"/a", at(11));
    assert!(matches!(cache.lookup(0, CodingOrder::NONE, b"/a", Instant { ns: 12 * SECOND_NS - 1 }), Lookup::Fresh(_)));
}

#[test]
fn what_is_not_to_be_kept_takes_the_old_answer_along() {
    let mut cache = cache();
    cache.insert(0, &request("/a"), &loaded(memory(1), Some((1, 1))), at(0));
    cache.insert(0, &request("/a"), &Loaded { keep: Keep::No, ..loaded(memory(2), None) }, at(0));
    assert!(cache.is_empty());
    cache.insert(0, &request("/a"), &loaded(Found::Unavailable(Cause::QueueFull), None), at(0));
    assert!(cache.is_empty());
}

#[test]
fn a_change_of_one_name_drops_it_and_what_it_is_a_sibling_of() {
    let mut cache = cache();
    for path in ["/d/a.js", "/d/b.js", "/d/a.js.br", "/d/missing"] {
        cache.insert(0, &request(path), &loaded(memory(1), Some((7, 3))), at(0));
    }
    cache.insert(0, &request("/e/a.js"), &loaded(memory(1), Some((8, 3))), at(0));
    cache.apply(&name(7, "unrelated"));
    assert_eq!(cache.len(), 5);
    cache.apply(&name(7, "a.js.br"));
    assert!(!has(&mut cache, "/d/a.js") && !has(&mut cache, "/d/a.js.br"));
    assert!(has(&mut cache, "/d/b.js") && has(&mut cache, "/d/missing") && has(&mut cache, "/e/a.js"));
    cache.apply(&name(7, "missing"));
    assert!(!has(&mut cache, "/d/missing"));
    cache.apply(&name(8, "a.js"));
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_name_that_is_missing_far_up_depends_on_the_first_name_that_is_not_there() {
    let mut cache = cache();
    cache.insert(0, &request("/d/new/deep/file"), &loaded(Found::NotFound, Some((7, 3))), at(0));
    cache.apply(&name(7, "file"));
    assert_eq!(cache.len(), 1);
    cache.apply(&name(7, "new"));
    assert!(cache.is_empty());
}

#[test]
fn an_index_depends_on_index_names_and_a_listing_on_all() {
    let policy = Arc::new(FilePolicy { listing: true, ..FilePolicy::new("/srv") });
    let mut cache = cache();
    let fill = |cache: &mut TestCache| {
        cache.insert(0, &request_of("/d/", &policy), &loaded(memory(1), Some((7, 3))), at(0));
    };
    fill(&mut cache);
    cache.apply(&name(7, "access.log"));
    assert!(has(&mut cache, "/d/"));
    cache.apply(&name(7, "index.html.gz"));
    assert!(!has(&mut cache, "/d/"));
    fill(&mut cache);
    cache.apply(&name(7, "index.html"));
    assert!(!has(&mut cache, "/d/"));
    cache.insert(0, &request_of("/d/", &policy), &Loaded { version: None, ..loaded(memory(1), Some((7, 3))) }, at(0));
    cache.apply(&name(7, "access.log"));
    assert!(!has(&mut cache, "/d/"));
}

#[test]
fn a_directory_goes_with_all_that_was_in_it_and_nothing_else() {
    let mut cache = cache();
    for (path, directory) in [("/d/1", 7), ("/d/2", 7), ("/d/3", 7), ("/e/1", 8)] {
        cache.insert(0, &request(path), &loaded(memory(1), Some((directory, 3))), at(0));
    }
    cache.apply(&name(7, "2"));
    cache.apply(&Change::Directory(WatchId(7)));
    cache.apply(&Change::Directory(WatchId(99)));
    assert_eq!(cache.len(), 1);
    cache.apply(&Change::Everything);
    assert!(cache.is_empty() && cache.bytes() == 0);
}

#[test]
fn each_kind_has_its_own_bound() {
    let limits = CacheLimits { bytes_max: 20_000, memory_entries_max: 5, open_files_max: 2, absent_entries_max: 3 };
    let mut cache = Cache::new(limits, 42);
    for number in 0..20_u32 {
        cache.insert(0, &request(&format!("/m{number}")), &loaded(memory(100), None), at(0));
        cache.insert(
            0,
            &request(&format!("/f{number}")),
            &loaded(resource(Content::File(number), 1 << 30), None),
            at(0),
        );
        cache.insert(0, &request(&format!("/n{number}")), &loaded(Found::NotFound, None), at(0));
        assert!(cache.bytes() <= 20_000 && cache.open_files() <= 2 && cache.len() <= 10);
    }
    assert_eq!(cache.len(), 10);
    for is_kept in [false, true] {
        cache.insert(0, &request("/large"), &loaded(memory(19_000), None), at(0));
        assert_eq!(has(&mut cache, "/large"), is_kept, "others have to go for it");
        assert!(cache.bytes() <= 20_000);
    }
    cache.insert(0, &request("/too-large"), &loaded(memory(20_000), None), at(0));
    assert!(!has(&mut cache, "/too-large"));
    assert_eq!(cache.release_files(1), 1);
    assert_eq!(cache.release_files(5), 1);
    assert_eq!(cache.open_files(), 0);
}

#[test]
fn a_file_in_use_outlives_a_scan() {
    let limits = CacheLimits { memory_entries_max: 100, ..CacheLimits::default() };
    let mut cache = Cache::new(limits, 42);
    cache.insert(0, &request("/used"), &loaded(memory(1), None), at(0));
    for number in 0..10_000 {
        assert!(has(&mut cache, "/used"), "gone after {number}");
        cache.insert(0, &request(&format!("/{number}")), &loaded(memory(1), None), at(0));
    }
}

#[test]
fn a_site_s_entries_go_alone() {
    let mut cache = cache();
    cache.insert(1, &request("/a"), &loaded(memory(1), Some((7, 1))), at(0));
    cache.insert(2, &request("/a"), &loaded(memory(1), Some((7, 1))), at(0));
    cache.clear_site(1);
    assert!(matches!(cache.lookup(1, CodingOrder::NONE, b"/a", at(0)), Lookup::Absent));
    cache.apply(&name(7, "a"));
    assert!(cache.is_empty());
}

/// Everything against a plain map, with all operations mixed, from a seed.
#[test]
fn it_agrees_with_a_model_whatever_is_done() {
    let limits = CacheLimits { bytes_max: 30_000, memory_entries_max: 20, open_files_max: 8, absent_entries_max: 8 };
    let mut cache = Cache::new(limits, 7);
    let mut model: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for step in 0..50_000_u32 {
        let (directory, file) = (draw(4), draw(16));
        let path = format!("/{directory}/{file}");
        match draw(10) {
            0..=4 => {
                let found = match draw(3) {
                    0 => memory(draw(3_000) as usize),
                    1 => resource(Content::File(step), 1),
                    _ => Found::NotFound,
                };
                cache.insert(0, &request(&path), &loaded(found, Some((directory, 3))), at(u64::from(step)));
                model.insert(path, (directory, step));
            }
            5 => {
                cache.apply(&Change::Name { directory: WatchId(directory), name: file.to_string().into() });
                model.remove(&path);
            }
            6 if draw(20) == 0 => {
                cache.apply(&Change::Directory(WatchId(directory)));
                model.retain(|_, (other, _)| *other != directory);
            }
            7 if draw(4) == 0 => drop(cache.release_files(2)),
            _ => {
                let found = cache.lookup(0, CodingOrder::NONE, path.as_bytes(), at(u64::from(step)));
                // What is there is never what should have been dropped, nor older than the last that was put in.
                match (found, model.get(&path)) {
                    (Lookup::Absent, _) => {}
                    (Lookup::Fresh(_), Some((_, inserted))) => assert!(step <= *inserted),
                    (Lookup::Stale(..), Some((_, inserted))) => assert!(step > *inserted),
                    (_, None) => panic!("{path} should be gone at step {step}"),
                }
            }
        }
        assert!(cache.bytes() <= 30_000 && cache.len() <= 36 && cache.open_files() <= 8);
        assert_eq!(cache.by_name.len(), cache.len());
    }
    for directory in 0..4 {
        cache.apply(&Change::Directory(WatchId(directory)));
    }
    assert!(cache.is_empty() && cache.bytes() == 0 && cache.by_directory.is_empty() && cache.by_name.is_empty());
}
