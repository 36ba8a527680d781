//! Plays a caller of `http::Connection`: hands in bytes in given pieces, answers each request, and writes down what came of it.

use std::cell::RefCell;

use leat_logic::http::{
    AfterReply, BodyLength, Connection, EndOfInput, KnownSections, Limits, Persistence, Progress, Request, TargetForm,
    Version,
};
use leat_logic::time::Instant;

/// How requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// When the body has ended.
    AfterBody,
    /// As soon as the head is there.
    Early,
    /// The same, with 100 (Continue) before, if it is awaited.
    Continue,
}

/// What came of the pieces, one line for each event.
pub(crate) fn trace(pieces: &[&[u8]], limits: &Limits, manner: Manner) -> Vec<String> {
    drive(pieces, limits, manner, false)
}

/// The same, with a connection that is exported and imported before everything that happens to it.
#[allow(dead_code, reason = "not every crate that shares this file moves connections")]
pub(crate) fn trace_moved(pieces: &[&[u8]], limits: &Limits, manner: Manner) -> Vec<String> {
    drive(pieces, limits, manner, true)
}

fn drive(pieces: &[&[u8]], limits: &Limits, manner: Manner, is_moved: bool) -> Vec<String> {
    let mut driver = Driver {
        is_moved,
        connection: Connection::new(NOW),
        limits: limits.clone(),
        manner,
        unread: Vec::new(),
        body: Vec::new(),
        lines: Vec::new(),
        is_over: false,
    };
    for piece in pieces {
        driver.unread.extend_from_slice(piece);
        driver.advance();
    }
    driver.end();
    driver.lines
}

const NOW: Instant = Instant { ns: 1 };

thread_local! {
    /// What all connections before have taught: it must change nothing.
    static KNOWN: RefCell<KnownSections> = RefCell::new(KnownSections::new());
}

struct Driver {
    is_moved: bool,
    connection: Connection,
    limits: Limits,
    manner: Manner,
    unread: Vec<u8>,
    body: Vec<u8>,
    lines: Vec<String>,
    is_over: bool,
}

impl Driver {
    fn advance(&mut self) {
        while !self.is_over {
            let input = std::mem::take(&mut self.unread);
            self.move_elsewhere();
            let (consumed, progress) = if self.is_moved {
                self.connection.handle_input(NOW, &input, &self.limits)
            } else {
                KNOWN.with_borrow_mut(|known| self.connection.handle_input_knowing(known, NOW, &input, &self.limits))
            };
            assert!(consumed <= input.len(), "consumed more than there was");
            let goes_on = match progress {
                Progress::NeedInput => false,
                Progress::Request(request) => {
                    self.lines.push(describe(&request));
                    let has_body = request.body != BodyLength::None;
                    if has_body && self.manner == Manner::Continue && request.expect_continue {
                        self.connection.handle_continue_sent();
                    }
                    if !has_body || self.manner != Manner::AfterBody {
                        self.answer();
                    }
                    true
                }
                Progress::Body(content) => {
                    assert!(!content.is_empty(), "an empty run of content");
                    self.body.extend_from_slice(content);
                    true
                }
                Progress::BodyEnd => {
                    self.flush_body();
                    // Idle already: the request was answered before its body had ended.
                    if !self.connection.is_idle() {
                        self.answer();
                    }
                    true
                }
                Progress::Reject(rejection) => {
                    self.flush_body();
                    self.lines.push(format!("reject {} {}", rejection.status.code(), rejection.reason.label()));
                    assert_eq!(self.connection.reply(NOW, &self.limits, false), Persistence::Close);
                    assert!(matches!(self.connection.handle_reply_sent(NOW), AfterReply::Close { .. }));
                    self.is_over = true;
                    false
                }
                Progress::Ended => {
                    self.is_over = true;
                    false
                }
            };
            self.unread = input[consumed..].to_vec();
            if !goes_on {
                break;
            }
        }
    }

    fn move_elsewhere(&mut self) {
        if self.is_moved {
            let state = self.connection.export(NOW);
            self.connection = Connection::import(NOW, &state).expect("what is exported can be imported");
            assert_eq!(self.connection.export(NOW), state);
        }
    }

    fn flush_body(&mut self) {
        if !self.body.is_empty() {
            self.lines.push(format!("body {}", escape(&std::mem::take(&mut self.body))));
        }
    }

    fn answer(&mut self) {
        self.move_elsewhere();
        let persistence = match self.connection.reply(NOW, &self.limits, false) {
            Persistence::Persistent => "persistent",
            Persistence::KeepAlive => "keep-alive",
            Persistence::Close => "close",
        };
        let after = match self.connection.handle_reply_sent(NOW) {
            AfterReply::NextRequest => "next",
            AfterReply::DrainBody => "drain",
            AfterReply::Close { linger } => {
                self.is_over = true;
                if linger { "linger" } else { "close" }
            }
        };
        self.lines.push(format!("reply {persistence} {after}"));
    }

    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.flush_body();
        self.move_elsewhere();
        self.lines.push(match self.connection.handle_end_of_input() {
            EndOfInput::AnswerFirst => "end answer_first".to_string(),
            EndOfInput::Close => "end close".to_string(),
            EndOfInput::Abort => "end abort".to_string(),
        });
    }
}

fn describe(request: &Request<'_>) -> String {
    let form = match request.target.form {
        TargetForm::Origin => "",
        TargetForm::Absolute => " absolute",
        TargetForm::Asterisk => " asterisk",
    };
    let version = if request.version == Version::Http10 { "1.0" } else { "1.1" };
    let mut line = format!("request {} {}", escape(request.method_name), escape(request.target.path));
    if let Some(query) = request.target.query {
        line += &format!(" query={}", escape(query));
    }
    line += &format!("{form} {version}");
    if let Some(host) = request.host {
        line += &format!(" host={}", escape(host));
    }
    if let Some(port) = request.port {
        line += &format!(" port={port}");
    }
    match request.body {
        BodyLength::None => {}
        BodyLength::Length(length) => line += &format!(" body={length}"),
        BodyLength::Chunked => line += " body=chunked",
    }
    if request.expect_continue {
        line += " expect";
    }
    let conditions = &request.conditions;
    for (name, value) in [
        ("if_match", conditions.if_match),
        ("if_none_match", conditions.if_none_match),
        ("if_modified_since", conditions.if_modified_since),
        ("if_unmodified_since", conditions.if_unmodified_since),
        ("if_range", conditions.if_range),
        ("range", conditions.range),
        ("accept_encoding", request.accept_encoding),
        ("user_agent", request.user_agent),
        ("referer", request.referer),
    ] {
        if let Some(value) = value {
            line += &format!(" {name}={}", escape(value));
        }
    }
    line + &format!(" fields={}", request.headers.iter().count())
}

/// Bytes in the notation of golden files; long ones by their length.
pub(crate) fn escape(bytes: &[u8]) -> String {
    if bytes.len() > 200 {
        return format!("<{} bytes>", bytes.len());
    }
    bytes.escape_ascii().to_string()
}
