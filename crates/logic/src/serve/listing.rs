//! The page that lists a directory: its names, sizes and times, in an order for people. Which names there are is the storage's.

use std::cmp::Ordering;
use std::fmt::Write;

use bytes::Bytes;

use super::html;
use crate::http::{HttpDate, encode_path};
use crate::time::UnixTime;

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name: any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// Whether it's a directory; a file otherwise.
    pub is_directory: bool,
    /// Size of a file, in bytes.
    pub len_bytes: u64,
    /// When it was last modified.
    pub modified: UnixTime,
}

/// The page for the directory `path` (decoded, with a slash at both ends), `text/html; charset=utf-8`. `is_cut` says that there are more
/// names than these.
#[must_use]
pub fn render(path: &[u8], mut entries: Vec<Entry>, is_cut: bool) -> Bytes {
    entries.sort_unstable_by(for_people);
    let mut page = html::head(&String::from_utf8_lossy(path));
    page.reserve(entries.len() * 256);
    breadcrumbs(path, &mut page);
    // The path above is what everybody sees; a reader that goes by headings needs one.
    page.push_str("<main>\n<h1 class=\"unseen\">Contents of ");
    html::escape(path, &mut page);
    page.push_str("</h1>\n");
    if entries.is_empty() && path == b"/" {
        page.push_str("<p class=\"note\">This directory is empty.</p>\n");
    } else {
        table(path, &entries, &mut page);
    }
    if is_cut {
        let _ = writeln!(page, "<p class=\"note\">There are more names here: only {} are shown.</p>", entries.len());
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page.into()
}

/// Directories first; letters without regard to case; names that differ only so, by their bytes.
fn for_people(one: &Entry, other: &Entry) -> Ordering {
    let folded = |name: &[u8]| name.iter().map(u8::to_ascii_lowercase).collect::<Vec<u8>>();
    other
        .is_directory
        .cmp(&one.is_directory)
        .then_with(|| natural(&folded(&one.name), &folded(&other.name)))
        .then_with(|| one.name.cmp(&other.name))
}

/// Compares names so that `page9` comes before `page10`: runs of digits count as numbers.
fn natural(mut one: &[u8], mut other: &[u8]) -> Ordering {
    loop {
        let (Some(first), Some(second)) = (one.first(), other.first()) else { return one.len().cmp(&other.len()) };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (digits, rest) = number(one);
            let (other_digits, other_rest) = number(other);
            let order = digits.len().cmp(&other_digits.len()).then_with(|| digits.cmp(other_digits));
            if order != Ordering::Equal {
                return order;
            }
            (one, other) = (rest, other_rest);
        } else if first == second {
            (one, other) = (&one[1..], &other[1..]);
        } else {
            return first.cmp(second);
        }
    }
}

/// The number at the start of `name`, without leading zeros, and what follows it.
fn number(name: &[u8]) -> (&[u8], &[u8]) {
    let end = name.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(name.len());
    let zeros = name[..end].iter().take_while(|&&digit| digit == b'0').count();
    (&name[zeros..end], &name[end..])
}

fn breadcrumbs(path: &[u8], page: &mut String) {
    page.push_str("<nav aria-label=\"Path\"><ol>");
    let segments: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()).collect();
    for depth in 0..=segments.len() {
        let name = depth.checked_sub(1).map_or(&b"home"[..], |place| segments[place]);
        page.push_str("<li>");
        if depth == segments.len() {
            page.push_str("<span aria-current=\"page\">");
            html::escape(name, page);
            page.push_str("</span>");
        } else {
            // Relative, so that it holds behind a proxy that serves the site under another path.
            link(&b"../".repeat(segments.len() - depth), name, false, page);
        }
        page.push_str("</li>");
    }
    page.push_str("</ol></nav>\n");
}

fn table(path: &[u8], entries: &[Entry], page: &mut String) {
    page.push_str(
        "<table>\n<thead><tr><th class=\"name\" scope=\"col\">Name</th><th class=\"size\" scope=\"col\">Size</th>",
    );
    page.push_str("<th class=\"time\" scope=\"col\">Modified (UTC)</th></tr></thead>\n<tbody>\n");
    if path != b"/" {
        page.push_str("<tr class=\"directory\"><td class=\"name\"><a href=\"../\">../</a></td><td class=\"size\"></td><td class=\"time\"></td></tr>\n");
    }
    for entry in entries {
        page.push_str(if entry.is_directory {
            "<tr class=\"directory\"><td class=\"name\">"
        } else {
            "<tr><td class=\"name\">"
        });
        let mut target = b"./".to_vec();
        target.extend_from_slice(&entry.name);
        link(&target, &entry.name, entry.is_directory, page);
        page.push_str("</td><td class=\"size\">");
        if !entry.is_directory {
            page.push_str(&size(entry.len_bytes));
        }
        page.push_str("</td><td class=\"time\">");
        time(entry.modified, page);
        page.push_str("</td></tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
}

/// A link to `target`, relative to the page; with a slash after it and its name when it's a directory.
fn link(target: &[u8], name: &[u8], is_directory: bool, page: &mut String) {
    let slash = if is_directory { "/" } else { "" };
    let mut encoded = Vec::with_capacity(target.len() + 8);
    encode_path(target, &mut encoded);
    page.push_str("<a href=\"");
    html::escape(&encoded, page);
    page.push_str(slash);
    page.push_str("\">");
    html::escape(name, page);
    page.push_str(slash);
    page.push_str("</a>");
}

/// `1.4 MB`, in powers of ten, three figures at most.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    // A number that rounds to a thousand goes to the next unit.
    let mut unit = 0;
    let mut scale: u64 = 1_000;
    while unit + 1 < UNITS.len() && bytes >= scale * 1_000 - scale / 2 {
        scale *= 1_000;
        unit += 1;
    }
    let rounded = |parts: u128| (u128::from(bytes) * parts + u128::from(scale) / 2) / u128::from(scale);
    let (tenths, unit) = (rounded(10), UNITS[unit]);
    if tenths < 100 { format!("{}.{} {unit}", tenths / 10, tenths % 10) } else { format!("{} {unit}", rounded(1)) }
}

/// `31 Jan 2026 12:34`
fn time(modified: UnixTime, page: &mut String) {
    let date = HttpDate::from(modified).format();
    // `Sat, 31 Jan 2026 12:34:56 GMT`
    html::escape(&date[5..22], page);
}

#[cfg(test)]
mod tests;
