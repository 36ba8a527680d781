//! Files that change: what is sent is one version, whole, under its own tag, or the connection is cut.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::on_both_reactors;
use crate::support::directory::noise;
use crate::support::{Client, Directory, Reactor, Reply, Server, curl, eventually};

const LARGE: usize = 24 << 20;
const NAME: &str = "large.bin";

/// Starts a download and reads a little of it, changes the file, and reads the rest: it must be a whole version under its own tag, or cut.
fn changed_meanwhile(server: &Server, site: &Directory, change: impl FnOnce(&Directory) -> Option<Vec<u8>>) {
    let old = noise(LARGE, 1);
    site.write(NAME, &old);
    let path = format!("/{NAME}");
    // Ask until the file has a tag, which may be computed behind the scenes, so that the tag can be judged too.
    let old_tag = eventually("the file has a tag", || server.get(&path).field("etag").map(str::to_owned));
    let mut client = server.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let head = client.reply_head().unwrap();
    assert_eq!(head.status, 200);
    let length: usize = head.must("content-length").parse().unwrap();
    let mut body = client.read_content(256 << 10).unwrap();
    let new = change(site);
    // A reset may eat what came before it.
    let rest = client.read_content(length - body.len()).unwrap_or_default();
    body.extend(rest);
    judge(server, &head, &body, length, (&old, &old_tag), new.as_deref());
}

fn judge(server: &Server, head: &Reply, body: &[u8], length: usize, old: (&[u8], &str), new: Option<&[u8]>) {
    if body.len() < length {
        return;
    }
    let tag = head.field("etag");
    if body == old.0 {
        assert!(tag.is_none_or(|tag| tag == old.1), "the old content under {tag:?}, not {}", old.1);
        return;
    }
    assert!(
        new.is_some_and(|new| body == new),
        "a whole reply of {length} bytes that is neither the old nor the new content"
    );
    if let Some(tag) = tag {
        let now = server.get(&format!("/{NAME}"));
        assert_eq!(now.field("etag").unwrap_or(tag), tag, "the new content under another tag");
    }
}

/// Writes over a part of a file without touching its length.
fn scribble(site: &Directory, at: usize, bytes: usize, seed: u64) {
    let mut file = fs::File::options().write(true).open(site.at(NAME)).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&noise(bytes, seed)).unwrap();
}

fn a_big_file_arrives_byte_for_byte(reactor: Reactor) {
    let content = noise(50 << 20, 50);
    let site = Directory::with(&[("big.bin", &content)]);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for _ in 0..2 {
        let reply = client.get("/big.bin");
        assert!(reply.status == 200 && reply.body == content);
    }
    assert!(curl(&[&server.url("/big.bin")]) == content);
}

fn sizes_around_every_boundary_arrive_whole(reactor: Reactor) {
    let sizes = [
        0,
        1,
        2,
        4095,
        4096,
        4097,
        16_383,
        16_384,
        16_385,
        65_535,
        65_536,
        65_537,
        131_071,
        131_072,
        131_073,
        262_145,
        1 << 20,
        (1 << 20) + 1,
        (4 << 20) + 1,
    ];
    let site = Directory::new();
    for size in sizes {
        site.write(&format!("{size}.bin"), noise(size, size as u64));
    }
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for size in sizes.iter().chain(&sizes) {
        let reply = client.get(&format!("/{size}.bin"));
        assert!(reply.status == 200 && reply.body == noise(*size, *size as u64), "{size}");
    }
    // Pipelined, too.
    client.send(sizes.map(|size| format!("GET /{size}.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")).concat());
    for size in sizes {
        assert!(client.reply().body == noise(size, size as u64), "{size}");
    }
}

fn a_slow_reader_gets_it_all(reactor: Reactor) {
    let content = noise(8 << 20, 8);
    let site = Directory::with(&[("slow.bin", &content)]);
    let server = Server::of(reactor, site.path());
    let client = server.connect();
    let mut stream = client.stream();
    stream.write_all(b"GET /slow.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    let mut piece = [0; 3_001];
    // Small reads keep the server's socket full nearly all the time; others are served meanwhile.
    loop {
        let count = stream.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        received.extend_from_slice(&piece[..count]);
        if received.len() % (1 << 20) < 3_001 {
            assert_eq!(server.get_with("/slow.bin", "Range: bytes=0-9\r\n").body, content[..10]);
        }
    }
    assert!(received.ends_with(&content));
}

fn rewritten_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        let new = noise(LARGE, 2);
        let mut file = fs::File::options().write(true).open(site.at(NAME)).unwrap();
        file.write_all(&new).unwrap();
        Some(new)
    });
}

fn scribbled_on_near_its_end_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        scribble(site, LARGE - 5000, 100, 3);
        Some(fs::read(site.at(NAME)).unwrap())
    });
}

fn scribbled_on_with_its_old_time_put_back(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        let time = fs::metadata(site.at(NAME)).unwrap().modified().unwrap();
        scribble(site, LARGE / 2, 100_000, 4);
        fs::File::options().write(true).open(site.at(NAME)).unwrap().set_modified(time).unwrap();
        Some(fs::read(site.at(NAME)).unwrap())
    });
}

fn grown_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        fs::File::options().append(true).open(site.at(NAME)).unwrap().write_all(&noise(1000, 5)).unwrap();
        Some(fs::read(site.at(NAME)).unwrap())
    });
}

fn shrunk_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        fs::File::options().write(true).open(site.at(NAME)).unwrap().set_len(LARGE as u64 / 2).unwrap();
        None
    });
    assert_eq!(server.get_with("/large.bin", "Range: bytes=0-9\r\n").body, noise(LARGE, 1)[..10]);
}

fn emptied_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        fs::File::create(site.at(NAME)).unwrap();
        None
    });
    site.write("a.txt", "alpha\n");
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

fn emptied_and_written_anew_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        let new = noise(LARGE, 6);
        site.write(NAME, &new);
        Some(new)
    });
}

fn replaced_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        let new = noise(LARGE, 7);
        site.replace(NAME, &new);
        Some(new)
    });
}

fn deleted_during_a_download(reactor: Reactor) {
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    changed_meanwhile(&server, &site, |site| {
        fs::remove_file(site.at(NAME)).unwrap();
        None
    });
    eventually("the file is gone", || (server.get("/large.bin").status == 404).then_some(()));
}

/// What is left of this reply is short, and may go out only once the client has all that was sent of the file itself.
fn scribbled_on_while_a_slow_client_has_yet_to_get_the_first_of_two_ranges(reactor: Reactor) {
    const FIRST: usize = 8 << 20;
    let site = Directory::new();
    let server = Server::of(reactor, site.path());
    let old = noise(LARGE, 1);
    site.write(NAME, &old);
    let path = format!("/{NAME}");
    eventually("the file has a tag", || server.get(&path).field("etag").map(str::to_owned));
    let mut client = server.connect();
    // What it hasn't read waits at the server, mostly: over loopback its own kernel would have the file's pages, too.
    rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 32 << 10).unwrap();
    let second = 16 << 20;
    let ranges = format!("0-{},{second}-{}", FIRST - 1, second + 1999);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={ranges}\r\n\r\n"));
    let head = client.reply_head().unwrap();
    assert_eq!(head.status, 206);
    let length: usize = head.must("content-length").parse().unwrap();
    let mut body = client.read_content(64 << 10).unwrap();
    // Who keeps the server waiting for more than 100 ms is slow: the time is what is tested.
    std::thread::sleep(Duration::from_millis(150));
    body.extend(client.read_content(FIRST - (160 << 10) - body.len()).unwrap());
    let mut before = 0;
    eventually("the client's kernel takes no more", || {
        let unread = rustix::io::ioctl_fionread(client.stream()).unwrap();
        (unread > 0 && std::mem::replace(&mut before, unread) == unread).then_some(())
    });
    scribble(&site, FIRST - (24 << 10), 10_000, 5);
    body.extend(client.read_content(length - body.len()).unwrap_or_default());
    let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    assert!(body.len() < length || has(&old[FIRST - (32 << 10)..FIRST]), "a whole reply of neither content");
}

fn a_rewritten_small_file_is_sent_at_once(reactor: Reactor) {
    let site = Directory::with(&[("a.txt", b"version 0000"), ("index.html", b"version 0000")]);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let mut stale = Vec::new();
    for round in 1..=200 {
        let content = format!("version {round:04}");
        site.write("a.txt", &content);
        site.replace("index.html", &content);
        for path in ["/a.txt", "/"] {
            for (who, reply) in [("same connection", client.get(path)), ("new connection", server.get(path))] {
                if reply.text() != content {
                    stale.push(format!("round {round}, {path}, {who}: {}", reply.text()));
                }
            }
        }
    }
    assert!(stale.is_empty(), "{} of 800 replies are old: {:?}", stale.len(), &stale[..stale.len().min(8)]);
}

fn new_deleted_and_renamed_files_are_noticed_at_once(reactor: Reactor) {
    let site = Directory::with(&[("sub/keep.txt", b"keep")]);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for round in 0..20 {
        let path = format!("/sub/new-{round}.txt");
        assert_eq!(client.get(&path).status, 404, "round {round}: before it exists");
        site.write(&path[1..], "new");
        assert_eq!(client.get(&path).text(), "new", "round {round}: written");
        let moved = format!("/sub/moved-{round}.txt");
        fs::rename(site.at(&path[1..]), site.at(&moved[1..])).unwrap();
        assert_eq!(client.get(&path).status, 404, "round {round}: renamed away");
        assert_eq!(client.get(&moved).text(), "new", "round {round}: renamed to");
        fs::remove_file(site.at(&moved[1..])).unwrap();
        assert_eq!(client.get(&moved).status, 404, "round {round}: deleted");
    }
}

fn a_renamed_parent_directory_is_noticed_at_once(reactor: Reactor) {
    let site = Directory::with(&[("one/deep/a.txt", b"one"), ("two/deep/a.txt", b"two")]);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for round in 0..10 {
        assert_eq!(client.get("/one/deep/a.txt").text(), "one", "round {round}");
        assert_eq!(client.get("/two/deep/a.txt").text(), "two", "round {round}");
        fs::rename(site.at("one"), site.at("three")).unwrap();
        assert_eq!(client.get("/one/deep/a.txt").status, 404, "round {round}: renamed away");
        fs::rename(site.at("two"), site.at("one")).unwrap();
        assert_eq!(client.get("/one/deep/a.txt").text(), "two", "round {round}: another in its place");
        fs::rename(site.at("one"), site.at("two")).unwrap();
        fs::rename(site.at("three"), site.at("one")).unwrap();
    }
}

fn a_changed_target_of_a_link_is_noticed(reactor: Reactor) {
    // How a site is often deployed: `current` leads to a release.
    let site = Directory::with(&[("releases/1/a.txt", b"one"), ("releases/2/a.txt", b"two")]);
    std::os::unix::fs::symlink("releases/1", site.at("current")).unwrap();
    let server = Server::of(reactor, site.path());
    assert_eq!(server.get("/current/a.txt").text(), "one");
    std::os::unix::fs::symlink("releases/2", site.at("next")).unwrap();
    fs::rename(site.at("next"), site.at("current")).unwrap();
    eventually("the new release is served", || (server.get("/current/a.txt").text() == "two").then_some(()));
}

fn one_tag_is_one_content_while_a_file_is_rewritten(reactor: Reactor) {
    let versions: Vec<Vec<u8>> = (0..8).map(|seed| noise(30_000, seed)).collect();
    let site = Directory::with(&[("moved.bin", &versions[0]), ("written.bin", &versions[0])]);
    let server = Server::of(reactor, site.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in versions.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                site.replace("moved.bin", version);
                fs::File::options().write(true).open(site.at("written.bin")).unwrap().write_all(version).unwrap();
            }
        });
        let outcome = std::panic::catch_unwind(|| {
            let mut contents: HashMap<String, Vec<u8>> = HashMap::new();
            let mut client = server.connect();
            for round in 0..1500 {
                let path = if round % 2 == 0 { "/moved.bin" } else { "/written.bin" };
                let Some(reply) = ask_or_cut(&mut client, path) else {
                    client = server.connect();
                    continue;
                };
                assert_eq!(reply.status, 200);
                if round % 2 == 0 {
                    assert!(
                        versions.contains(&reply.body),
                        "round {round}: no version of a file that is only ever renamed into place"
                    );
                }
                if let Some(tag) = reply.field("etag") {
                    let known = contents.entry(tag.to_owned()).or_insert_with(|| reply.body.clone());
                    assert!(*known == reply.body, "round {round}: two contents under {tag}");
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// `None` if the server cut the connection.
fn ask_or_cut(client: &mut Client, path: &str) -> Option<Reply> {
    client.try_send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).ok()?;
    match client.try_reply() {
        Ok(reply) => Some(reply),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
            None
        }
    }
}

on_both_reactors!(
    a_big_file_arrives_byte_for_byte,
    sizes_around_every_boundary_arrive_whole,
    a_slow_reader_gets_it_all,
    rewritten_during_a_download,
    scribbled_on_near_its_end_during_a_download,
    scribbled_on_with_its_old_time_put_back,
    grown_during_a_download,
    shrunk_during_a_download,
    emptied_during_a_download,
    emptied_and_written_anew_during_a_download,
    replaced_during_a_download,
    deleted_during_a_download,
    scribbled_on_while_a_slow_client_has_yet_to_get_the_first_of_two_ranges,
    a_rewritten_small_file_is_sent_at_once,
    new_deleted_and_renamed_files_are_noticed_at_once,
    a_renamed_parent_directory_is_noticed_at_once,
    a_changed_target_of_a_link_is_noticed,
    one_tag_is_one_content_while_a_file_is_rewritten,
);
