//! FastCGI 1.0 as a web server speaks it to a responder: records to send for a request, records received for its reply. One request at a time
//! on a connection, which is kept. Where the bytes come from and go to is for others.

mod conversation;
mod record;

pub use conversation::{BadRecord, Conversation, Step};
pub use record::{Encoder, RECORD_OVERHEAD_BYTES_MAX};
