//! CGI: a program for each request, found by the handler's path or, in a directory of programs, by the segment after it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use leat_host::program::{Order, Programs, Standard};
use leat_host::reactor::{Reactor, Token};
use leat_logic::http::Status;

use super::super::programs::Purpose;
use super::super::stream::Owner;
use super::super::{Host, Worker};
use super::Handler;
use super::pool::Pool;
use super::program_run::Talk;
use crate::config;

/// Lines in the log of programs that can't be started.
const START_ERRORS_A_SECOND: u32 = 10;

/// Where programs find other programs.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Which program a path names.
struct Script {
    file: PathBuf,
    /// Bytes of the path that name it.
    named: usize,
}

/// In a directory, the segment after the handler's own part of the path is the program's name.
fn find(program: &Path, path: &[u8], named: usize, is_directory: bool) -> Option<Script> {
    if !is_directory {
        return Some(Script { file: program.to_owned(), named });
    }
    let rest = path[named..].strip_prefix(b"/")?;
    let name = rest.split(|&byte| byte == b'/').next().filter(|name| !name.is_empty())?;
    // Paths have neither `.` nor `..` segments by now; a hidden file is no program.
    let is_hidden = name.starts_with(b".");
    (!is_hidden).then(|| Script { file: program.join(OsStr::from_bytes(name)), named: named + 1 + name.len() })
}

impl<H: Host> Worker<H> {
    /// Starts a program for the request; `Ok(false)` if as many run as may.
    pub(super) fn find_cgi(
        &mut self,
        token: Token,
        handler: &Rc<Handler>,
        config: &config::Cgi,
        pool: &Pool,
    ) -> Result<bool, Status> {
        if !pool.begin() {
            return Ok(false);
        }
        self.start_cgi(token, handler, config).inspect_err(|_| pool.end())
    }

    fn start_cgi(&mut self, token: Token, handler: &Rc<Handler>, config: &config::Cgi) -> Result<bool, Status> {
        let run = self.program_run(token).ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let (named, has_body) = (run.named, run.body != super::program_run::Body::Ended);
        let exchange = self.connections[token].exchange.as_ref().ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let path = exchange.path.clone();
        let is_directory = config.command.program.is_dir();
        let script = find(&config.command.program, &path, named, is_directory).ok_or(Status::NOT_FOUND)?;
        let mut environment: Vec<(OsString, OsString)> = vec![("PATH".into(), PATH.into())];
        let names = (&path[..script.named], &path[script.named..], script.file.as_os_str().as_bytes());
        self.tell_request(token, handler, names, |name, value| {
            environment.push((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())));
        });
        let own =
            config.environment.iter().map(|variable| (variable.name.clone().into(), variable.value.clone().into()));
        environment.extend(own);
        let arguments = &config.command.arguments[..];
        let standard = if has_body { Standard::Conversation } else { Standard::Output };
        let started = self.start_program(handler, &script.file, arguments, environment, standard);
        let (program, socket) = started.map_err(|error| {
            // Of a directory, clients may name what isn't there. One that is there and can't be started is whoever put it there's to hear of.
            if is_directory && !script.file.is_file() {
                return Status::NOT_FOUND;
            }
            self.log_start_failure(handler, &script.file, &error);
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Status::INTERNAL_SERVER_ERROR,
                _ => Status::SERVICE_UNAVAILABLE,
            }
        })?;
        let socket = socket.ok_or(Status::INTERNAL_SERVER_ERROR)?;
        let program = self.add_program(program, handler, Purpose::Cgi(token));
        let stream = self.open_stream(socket, false, Owner::Connection(token));
        self.run_has_begun(token, Talk::Cgi { stream, program });
        if !has_body && let Some(stream) = self.streams.get(stream) {
            stream.finish(&mut self.reactor);
        }
        Ok(true)
    }

    /// Starts a program of a handler.
    ///
    /// # Errors
    /// Why it can't be started.
    pub(super) fn start_program(
        &mut self,
        handler: &Handler,
        file: &Path,
        arguments: &[String],
        environment: Vec<(OsString, OsString)>,
        standard: Standard,
    ) -> io::Result<(leat_host::program::ProgramId, Option<leat_host::reactor::Socket>)> {
        use std::os::fd::AsFd;
        let pool = handler.pool().ok_or(io::ErrorKind::InvalidInput)?;
        self.open_errors(pool)?;
        let directory = file.parent().unwrap_or(Path::new("/"));
        let before = self.host.processor_time();
        let programs = &mut self.programs.host;
        let started = pool.with_errors(|errors, _| {
            let error = errors.write.as_fd();
            programs.start(Order { program: file, arguments, environment, directory, standard, error })
        });
        // Starting one takes as long as a hundred small replies.
        self.meter.measured(self.host.processor_time().saturating_sub(before));
        let (program, ours) = started.ok_or(io::ErrorKind::NotConnected)??;
        let socket = ours.map(|ours| self.reactor.adopt(ours)).transpose()?;
        self.metrics.program_starts.increment();
        Ok((program, socket))
    }

    /// A few times a second: clients may ask for it as often as they like.
    pub(super) fn log_start_failure(&mut self, handler: &Handler, file: &Path, error: &io::Error) {
        if self.rations.program_starts.take(self.second, START_ERRORS_A_SECOND) {
            crate::log::warning(format_args!("{}: {} can't be started: {error}", handler.name, file.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_programs_is_searched_by_one_segment() {
        let found = |path: &[u8], is_directory| {
            find(Path::new("/srv/cgi"), path, 4, is_directory).map(|script| (script.file, script.named))
        };
        assert_eq!(found(b"/cgi/a/b", false), Some(("/srv/cgi".into(), 4)));
        assert_eq!(found(b"/cgi/a.pl/b", true), Some(("/srv/cgi/a.pl".into(), 9)));
        assert_eq!(found(b"/cgi/a", true), Some(("/srv/cgi/a".into(), 6)));
        for nothing in [&b"/cgi"[..], b"/cgi/", b"/cgi/.hidden"] {
            assert_eq!(found(nothing, true), None);
        }
    }
}
