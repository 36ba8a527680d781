//! Where a worker leaves the commands that came over HTTP: a thread has them answered, one after the other, so that no worker waits.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use super::http::{Asked, Told, tell};
use super::server::{Failure, Question, put};
use crate::log;

/// Commands that wait at once; further ones are refused. More connections than that the admin address doesn't have.
const WAITING_MAX: usize = 16;

type Reply = Box<dyn FnOnce(Told) + Send>;

/// See the module. One that is made by default refuses everything.
#[derive(Clone, Debug, Default)]
pub struct Desk(Option<SyncSender<(Asked, Waiting)>>);

/// Who waits for an answer.
struct Waiting(Reply);

impl std::fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Waiting")
    }
}

impl Desk {
    /// A desk whose thread has questions answered by `ask`, which returns false when nobody answers any more.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn open(ask: impl Fn(Question) -> bool + Send + 'static) -> io::Result<Desk> {
        let (sender, left) = mpsc::sync_channel::<(Asked, Waiting)>(WAITING_MAX);
        thread::Builder::new().name("ctl http".into()).spawn(move || {
            for (asked, Waiting(reply)) in left {
                let answer = put(&asked.command, &ask);
                if asked.is_change && answer.is_ok() {
                    // At the socket it's known who may have been; here it's whoever has the token.
                    log::info(format_args!("changed over the admin address: {}", asked.command.to_json()));
                }
                reply(tell(answer, asked.as_json));
            }
        })?;
        Ok(Desk(Some(sender)))
    }

    /// Leaves a command. Its answer goes to `reply`, on another thread or at once; never at all only if the process ends.
    pub(crate) fn leave(&self, asked: Asked, reply: impl FnOnce(Told) + Send + 'static) {
        let as_json = asked.as_json;
        let left = (asked, Waiting(Box::new(reply)));
        let left = match &self.0 {
            Some(sender) => sender.try_send(left),
            None => Err(mpsc::TrySendError::Disconnected(left)),
        };
        let (Waiting(reply), reason) = match left {
            Ok(()) => return,
            Err(mpsc::TrySendError::Full((_, waiting))) => (waiting, "too many are asking at once"),
            Err(mpsc::TrySendError::Disconnected((_, waiting))) => (waiting, "leat is ending"),
        };
        reply(tell(Err(Failure::Unheard(reason.to_owned())), as_json));
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::Command;
    use super::*;
    use serde_json::json;

    fn asked(command: Command) -> Asked {
        Asked { command, is_change: false, as_json: false }
    }

    #[test]
    fn who_leaves_a_command_hears_its_answer_and_never_waits() {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let desk = Desk::open(move |question| {
            let goes_on = may_go_on.recv().is_ok();
            question.answer(Ok(json!({ "text": "well\n" })));
            goes_on
        });
        let desk = desk.expect("a thread");
        let (tell, told) = mpsc::channel();
        let leave = || {
            let tell = tell.clone();
            desk.leave(asked(Command::Status), move |answer| {
                let _ = tell.send(answer.status.code());
            });
        };
        // One of them is being answered.
        (0..=WAITING_MAX).for_each(|_| leave());
        while told.try_recv().is_err() {
            leave();
        }
        drop(go_on);
        assert!(told.iter().take(WAITING_MAX).all(|status| status == 503), "nobody answers any more");
    }
}
