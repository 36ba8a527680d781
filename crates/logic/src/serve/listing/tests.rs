//! What a listing shows, and what in a name could break it.

use super::*;

fn file(name: &[u8], len_bytes: u64) -> Entry {
    Entry {
        name: name.to_vec(),
        is_directory: false,
        len_bytes,
        modified: UnixTime { seconds: 951_827_696, nanoseconds: 0 },
    }
}

fn directory(name: &[u8]) -> Entry {
    Entry { is_directory: true, ..file(name, 4_096) }
}

fn page(path: &[u8], entries: Vec<Entry>) -> String {
    String::from_utf8(render(path, entries, false).to_vec()).unwrap()
}

#[test]
fn directories_come_first_and_numbers_count() {
    let names: &[&[u8]] = &[b"page10", b"Page9", b"page009", b"a", b"B", b"page"];
    let mut entries: Vec<Entry> = names.iter().map(|name| file(name, 1)).collect();
    entries.push(directory(b"z"));
    entries.sort_unstable_by(for_people);
    let sorted: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(sorted, [&b"z"[..], b"a", b"B", b"page", b"Page9", b"page009", b"page10"]);
}

#[test]
fn names_are_escaped_where_they_are_seen_and_encoded_where_they_are_followed() {
    let page = page(
        b"/<b>/",
        vec![file(b"\"><img src=x onerror=alert(1)>", 1), file(b"javascript:alert(1)", 1), file(b"\xff%2e'&", 1)],
    );
    assert!(!page.contains("<b>") && !page.contains("<img"));
    assert!(page.contains("<title>/&lt;b&gt;/</title>"));
    assert!(page.contains(
        "href=\"./%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E\">&quot;&gt;&lt;img src=x onerror=alert(1)&gt;</a>"
    ));
    // A name with a colon must not become a scheme.
    assert!(page.contains("href=\"./javascript:alert(1)\""));
    assert!(page.contains("href=\"./%FF%252e&#39;&amp;\">\u{fffd}%2e&#39;&amp;</a>"));
}

#[test]
fn breadcrumbs_lead_up_and_say_where_one_is() {
    let page = page(b"/a b/c/", vec![directory(b"d")]);
    assert!(page.contains("<li><a href=\"../../\">home</a></li><li><a href=\"../\">a b</a></li><li><span aria-current=\"page\">c</span></li>"));
    assert!(page.contains("<a href=\"../\">../</a>"));
    assert!(
        page.contains("<a href=\"./d/\">d/</a></td><td class=\"size\"></td><td class=\"time\">29 Feb 2000 12:34</td>")
    );
}

#[test]
fn an_empty_root_and_a_cut_directory_say_so() {
    assert!(page(b"/", Vec::new()).contains("This directory is empty."));
    let cut = render(b"/", vec![file(b"a", 1)], true);
    assert!(str::from_utf8(&cut).unwrap().contains("only 1 are shown"));
}

#[test]
fn sizes_have_three_figures() {
    for (bytes, shown) in [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (1_049, "1.0 kB"),
        (1_050, "1.1 kB"),
        (9_949, "9.9 kB"),
        (12_345, "12 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (u64::MAX, "18 EB"),
    ] {
        assert_eq!(size(bytes), shown, "{bytes}");
    }
}
