//! Servers that do nothing but move bytes: the floor that any server on the same kernel facility stands on.
//!
//! Each answers every request with the same reply, looking at a request only for the empty line that ends its head.
//! None of them is a web server: no path, method, limit or time-out is looked at. What each costs in system calls is
//! stated in its file.

mod epoll;
mod io_uring;
mod reply;
mod sendfile;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::sys::socket;
use reply::FixedReply;

/// Which facility moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Facility {
    /// epoll_wait, recv, send.
    Epoll,
    /// Multishot accept and receive with provided buffers, one enter for a batch.
    #[value(name = "io_uring")]
    IoUring,
    /// epoll_wait, recv, send of the head, sendfile of the body.
    Sendfile,
}

/// `leat-bench nothing`
#[derive(Args, Debug)]
pub(crate) struct NothingOptions {
    /// Which facility to use.
    facility: Facility,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// Length of the reply's body, when no file is given.
    #[arg(long, default_value_t = 612)]
    body_bytes: usize,
    /// A file whose content is the reply's body; sendfile needs one.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Close after each reply, and say so in its head.
    #[arg(long)]
    close: bool,
}

/// Serves until ended by a signal.
///
/// # Errors
/// The address is taken, the file can't be read, or the facility is refused.
pub(crate) fn run(options: &NothingOptions) -> io::Result<()> {
    crate::sys::process::allow_descriptors(20_000)?;
    let listener = listen(options.facility, options.listen)?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(options.facility, &listener, options)
}

fn listen(facility: Facility, address: SocketAddr) -> io::Result<TcpListener> {
    let listener = socket::listen(address, facility != Facility::IoUring)?;
    socket::set_no_delay(&listener)?;
    Ok(listener)
}

fn serve(facility: Facility, listener: &TcpListener, options: &NothingOptions) -> io::Result<()> {
    match facility {
        Facility::Epoll => epoll::serve(listener, FixedReply::new(options.body()?, options.close)),
        Facility::IoUring => io_uring::serve(listener, FixedReply::new(options.body()?, options.close)),
        Facility::Sendfile => {
            let path = options.file.as_deref().ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "sendfile has no file to send: add --file FILE")
            })?;
            sendfile::serve(listener, &std::fs::File::open(path)?)
        }
    }
}

impl NothingOptions {
    fn body(&self) -> io::Result<Vec<u8>> {
        match &self.file {
            Some(path) => std::fs::read(path),
            None => Ok(vec![b'x'; self.body_bytes]),
        }
    }
}

/// For tests: a server on a thread that ends with the process.
#[cfg(test)]
pub(crate) fn in_background(facility: Facility, file: &std::path::Path, close: bool) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = listen(facility, address).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let options = NothingOptions { facility, listen: address, body_bytes: 0, file: Some(file.to_owned()), close };
    std::thread::spawn(move || serve(facility, &listener, &options));
    address
}
