//! Values as CORBA writes them (CDR): in either byte order, each number at a multiple of its size from the message's beginning. Only what a request's
//! head has.

/// Reads values one after the other; `None` where a message ends too early, or says what can't be.
pub(super) struct Reader<'i> {
    message: &'i [u8],
    at: usize,
    is_little: bool,
    is_bad: bool,
}

/// The service contexts of a request.
pub(super) struct Contexts<'i> {
    /// Where the first one is, or would be: behind their number.
    pub(super) at: usize,
    pub(super) count: u32,
    /// What the one that was looked for says.
    pub(super) found: Option<&'i [u8]>,
}

/// Service contexts of one request: more than any has.
const CONTEXTS_MAX: u32 = 1024;
/// Profiles of one reference.
const PROFILES_MAX: u32 = 64;
/// The profile that says where an object is over TCP.
const TAG_INTERNET_IOP: u32 = 0;

impl<'i> Reader<'i> {
    pub(super) fn new(message: &'i [u8], at: usize, is_little: bool) -> Reader<'i> {
        Reader { message, at, is_little, is_bad: false }
    }

    /// Whether more bytes wouldn't make it right.
    pub(super) fn is_bad(&self) -> bool {
        self.is_bad
    }

    fn bad<T>(&mut self) -> Option<T> {
        self.is_bad = true;
        None
    }

    fn take(&mut self, count: usize) -> Option<&'i [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    pub(super) fn octet(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    /// An unsigned long.
    pub(super) fn number(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = *self.take(4)?.first_chunk::<4>()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn short(&mut self) -> Option<u16> {
        self.align(2);
        let bytes = *self.take(2)?.first_chunk::<2>()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    /// A sequence of octets.
    pub(super) fn sequence(&mut self) -> Option<&'i [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// A string, without its NUL.
    pub(super) fn string(&mut self) -> Option<&'i [u8]> {
        match self.sequence()? {
            [text @ .., 0] => Some(text),
            _ => self.bad(),
        }
    }

    /// Service contexts, of which one is looked for.
    pub(super) fn contexts(&mut self, wanted: u32) -> Option<Contexts<'i>> {
        let count = self.number()?;
        if count > CONTEXTS_MAX {
            return self.bad();
        }
        let (at, mut found) = (self.at, None);
        for _ in 0..count {
            let id = self.number()?;
            let said = self.sequence()?;
            found = found.or((id == wanted).then_some(said));
        }
        Some(Contexts { at, count, found })
    }

    pub(super) fn skip_contexts(&mut self) -> Option<()> {
        self.contexts(u32::MAX).map(|_| ())
    }

    /// The object key of a GIOP 1.2 target: itself, or in a profile, or in the chosen profile of a reference.
    pub(super) fn target(&mut self) -> Option<&'i [u8]> {
        match self.short()? {
            0 => self.sequence(),
            1 => {
                let (tag, profile) = (self.number()?, self.sequence()?);
                self.key_of(tag, profile)
            }
            2 => {
                let chosen = self.number()?;
                self.string()?;
                let count = self.number()?;
                if count > PROFILES_MAX || chosen >= count {
                    return self.bad();
                }
                let mut found = None;
                for place in 0..count {
                    let (tag, profile) = (self.number()?, self.sequence()?);
                    found = if place == chosen { Some((tag, profile)) } else { found };
                }
                let (tag, profile) = found?;
                self.key_of(tag, profile)
            }
            _ => self.bad(),
        }
    }

    /// The object key in a profile, which has a byte order and places of its own. Of a profile for another transport all of it stands for it.
    fn key_of(&mut self, tag: u32, profile: &'i [u8]) -> Option<&'i [u8]> {
        if tag != TAG_INTERNET_IOP {
            return Some(profile);
        }
        let Some(&order) = profile.first() else { return self.bad() };
        let mut inner = Reader::new(profile, 1, order & 1 != 0);
        let mut key = || {
            inner.skip(2)?;
            inner.string()?;
            inner.short()?;
            inner.sequence()
        };
        match key() {
            Some(key) => Some(key),
            None => self.bad(),
        }
    }
}
