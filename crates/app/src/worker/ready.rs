//! Replies that are wanted again within the second that their Date names: kept whole, so that nothing is written or copied for the next request,
//! and the same memory is sent to everybody. What may be answered so is `reply`'s to say.

use std::sync::Arc;

use bytes::Bytes;
use leat_logic::serve::resource::Resource;

/// Resources kept in mind at a time. Each is small.
const REPLIES_MAX: usize = 64;

/// See the module. Empty at first in every second.
pub(super) struct ReadyReplies<F> {
    /// By [`place_of`].
    replies: [Option<Ready<F>>; REPLIES_MAX],
}

struct Ready<F> {
    /// Held, so that no other can come to be where it is.
    resource: Arc<Resource<F>>,
    /// Nothing as long as it was wanted only once: most are.
    bytes: Bytes,
}

fn place_of<F>(resource: &Arc<Resource<F>>) -> usize {
    const BITS: u32 = REPLIES_MAX.trailing_zeros();
    let address = Arc::as_ptr(resource).addr() as u64;
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BITS)) as usize
}

impl<F> ReadyReplies<F> {
    pub(super) fn new() -> ReadyReplies<F> {
        ReadyReplies { replies: [const { None }; REPLIES_MAX] }
    }

    /// The reply with all of a resource, if it was wanted before; `make` makes it, once.
    #[inline]
    pub(super) fn get(&mut self, resource: &Arc<Resource<F>>, make: impl FnOnce() -> Bytes) -> Option<Bytes> {
        let place = &mut self.replies[place_of(resource)];
        match place {
            Some(ready) if Arc::ptr_eq(&ready.resource, resource) => {
                if ready.bytes.is_empty() {
                    ready.bytes = make();
                }
                Some(ready.bytes.clone())
            }
            _ => {
                *place = Some(Ready { resource: resource.clone(), bytes: Bytes::new() });
                None
            }
        }
    }

    /// What was made says what isn't so any more.
    pub(super) fn clear(&mut self) {
        self.replies.fill_with(|| None);
    }
}

#[cfg(test)]
mod tests {
    use leat_logic::serve::coding::CodingSet;
    use leat_logic::serve::resource::{Content, Description};

    use super::*;

    fn resource() -> Arc<Resource<()>> {
        let description = Description {
            len_bytes: 7,
            etag: None,
            modified: None,
            content_type: Bytes::new(),
            coding: None,
            siblings: CodingSet::default(),
        };
        Arc::new(Resource::new(description, Content::Memory(Bytes::from_static(b"content")), b""))
    }

    #[test]
    fn a_reply_is_made_when_it_is_wanted_again_and_only_then() {
        let (one, mut ready) = (resource(), ReadyReplies::new());
        let mut made = 0;
        let mut get = |ready: &mut ReadyReplies<()>| {
            ready.get(&one, || {
                made += 1;
                Bytes::from_static(b"reply")
            })
        };
        assert_eq!(get(&mut ready), None);
        assert_eq!(get(&mut ready).as_deref(), Some(&b"reply"[..]));
        assert_eq!(get(&mut ready).as_deref(), Some(&b"reply"[..]));
        ready.clear();
        assert_eq!(get(&mut ready), None);
        assert_eq!(made, 1);
    }

    #[test]
    fn nobody_gets_the_reply_of_another_resource() {
        let mut ready = ReadyReplies::new();
        let all: Vec<_> = std::iter::repeat_with(resource).take(2_000).collect();
        for round in 0..3 {
            for (number, one) in all.iter().enumerate() {
                let made = ready.get(one, || Bytes::from(number.to_string()));
                if let Some(made) = made {
                    assert_eq!(made, number.to_string(), "in round {round}");
                }
            }
        }
    }
}
