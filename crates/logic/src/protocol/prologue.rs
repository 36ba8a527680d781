//! What a client has said to all its nodes (who it is, which database it means), as a node is told it that comes later: what was refused isn't, and of who the
//! client is, what holds now, before all that may depend on it. Who is told, and when, is the session's.

use super::{PROLOGUE_BYTES_MAX, Replaces};

#[derive(Debug)]
struct Said {
    number: u32,
    text: Vec<u8>,
    replaces: Replaces,
    /// A node has taken it.
    is_taken: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Prologue {
    said: Vec<Said>,
    text: Vec<u8>,
    next: u32,
}

impl Prologue {
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many requests it is.
    pub(super) fn requests(&self) -> usize {
        self.said.len()
    }

    /// All of it as it was said; `None` while a node is yet to answer some of it.
    pub(super) fn export(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        let said = self.said.iter().map(|said| said.is_taken.then(|| (said.replaces as u8, said.text.clone())));
        said.collect()
    }

    /// What was said elsewhere, and taken there. `None` for what nobody exports.
    pub(super) fn import(said: &[(u8, Vec<u8>)]) -> Option<Prologue> {
        let mut prologue = Prologue::default();
        for (number, (code, text)) in (0..).zip(said) {
            let replaces = Replaces::ALL.into_iter().find(|replaces| *replaces as u8 == *code)?;
            prologue.said.push(Said { number, text: text.clone(), replaces, is_taken: true });
            prologue.next = number;
        }
        prologue.renew();
        (prologue.text.len() <= PROLOGUE_BYTES_MAX).then_some(prologue)
    }

    pub(super) fn clear(&mut self) {
        self.said.clear();
        self.text.clear();
    }

    /// Whether a request may be added.
    pub(super) fn has_room_for(&self, text: &[u8], replaces: Replaces) -> bool {
        let same = self.same(text, replaces);
        let goes =
            |(place, said): &(usize, &Said)| Some(*place) == same || said.is_taken && replaces.covers(said.replaces);
        let gone: usize = self.said.iter().enumerate().filter(goes).map(|(_, said)| said.text.len()).sum();
        self.text.len() - gone + text.len() <= PROLOGUE_BYTES_MAX
    }

    /// Adds a request, by whose number its answer is to be told ([`Prologue::heard`]).
    pub(super) fn add(&mut self, text: &[u8], replaces: Replaces) -> u32 {
        if let Some(place) = self.same(text, replaces) {
            self.said.remove(place);
        }
        self.next = self.next.wrapping_add(1);
        self.said.push(Said { number: self.next, text: text.to_vec(), replaces, is_taken: false });
        self.renew();
        self.next
    }

    /// What was said last may be said again, and what nothing depends on that came after it: both needn't be told.
    fn same(&self, text: &[u8], replaces: Replaces) -> Option<usize> {
        let is_same = |(place, said): (usize, &Said)| {
            said.text == text && (replaces == Replaces::Same || place + 1 == self.said.len())
        };
        self.said.iter().enumerate().position(is_same)
    }

    /// A node has answered a request.
    pub(super) fn heard(&mut self, number: u32, is_refused: bool) {
        let Some(place) = self.said.iter().position(|said| said.number == number) else { return };
        let said = Said { is_taken: true, ..self.said.remove(place) };
        if !is_refused {
            let later = self.said.split_off(place);
            let first = self.said.iter().position(|earlier| said.replaces.covers(earlier.replaces));
            self.said.retain(|earlier| !said.replaces.covers(earlier.replaces));
            // What the client has said since then may have been allowed for who it was: it comes after who it is.
            let last = self.said.iter().rposition(|earlier| said.replaces.says_who() && earlier.replaces.says_who());
            let place = last.map(|last| last + 1).or(first).unwrap_or(self.said.len());
            self.said.insert(place, said);
            self.said.extend(later);
        }
        self.renew();
    }

    fn renew(&mut self) {
        self.text = self.said.iter().flat_map(|said| &said.text).copied().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (&str, Replaces) = ("name;", Replaces::Nothing);
    const BASE: (&str, Replaces) = ("base;", Replaces::Same);

    fn login(text: &str) -> (&str, Replaces) {
        (text, Replaces::Login)
    }

    /// What a node is told after all that has been said, of which what ends in `!;` was refused.
    fn told(all: &[(&str, Replaces)]) -> String {
        let mut prologue = Prologue::default();
        for (text, replaces) in all {
            let number = prologue.add(text.as_bytes(), *replaces);
            prologue.heard(number, text.ends_with("!;"));
        }
        assert_eq!(prologue.requests(), String::from_utf8_lossy(prologue.text()).matches(';').count());
        String::from_utf8_lossy(prologue.text()).into_owned()
    }

    #[test]
    fn who_says_anew_who_it_is_is_that_before_all_that_depends_on_it() {
        let hello = |text| (text, Replaces::Greeting);
        assert_eq!(told(&[login("a;"), BASE, NAME, login("b;")]), "b;base;name;");
        assert_eq!(told(&[login("a;"), BASE, login("b;"), login("c;")]), "c;base;");
        assert_eq!(told(&[hello("a;"), BASE, login("b;"), login("c;")]), "a;c;base;");
        assert_eq!(told(&[hello("a;"), BASE, login("b;"), hello("c;")]), "c;base;");
        assert_eq!(told(&[BASE, login("a;")]), "base;a;", "what came before it didn't depend on it");
        assert_eq!(told(&[login("a;"), BASE, login("a;")]), "a;base;");
    }

    #[test]
    fn what_was_refused_is_told_to_nobody() {
        assert_eq!(told(&[login("a;"), BASE, login("b!;")]), "a;base;");
        assert_eq!(told(&[login("a!;"), ("base!;", Replaces::Same), login("b;"), NAME]), "b;name;");
    }

    #[test]
    fn there_is_room_for_as_many_as_one_makes_up_for() {
        let long = |letter: &str| letter.repeat(PROLOGUE_BYTES_MAX / 2 + 1);
        let mut prologue = Prologue::default();
        for letter in ["a", "b", "c"] {
            let said = long(letter);
            assert!(prologue.has_room_for(said.as_bytes(), Replaces::Login), "{letter}");
            let number = prologue.add(said.as_bytes(), Replaces::Login);
            assert!(!prologue.has_room_for(long("x").as_bytes(), Replaces::Login), "nobody has taken it yet");
            prologue.heard(number, false);
        }
        assert_eq!(prologue.text(), long("c").as_bytes());
        assert!(!prologue.has_room_for(long("d").as_bytes(), Replaces::Nothing));
    }
}
