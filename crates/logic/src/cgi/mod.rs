//! CGI (RFC 3875) as decisions: what a program is told of a request, and what its output means. FastCGI says the same things in records.
//! Starting programs, and moving bytes, is for others.

mod reply;
mod variables;

pub use reply::{BadReply, HEAD_BYTES_MAX, ReplyHead, ReplyReader, ReplyStep};
pub use variables::{Place, variables};
