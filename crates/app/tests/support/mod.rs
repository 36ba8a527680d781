//! What the end-to-end tests share: a server that ends with its test, a client that writes the bytes it's told to and nothing else,
//! directories that vanish. What a server must do is left to the tests.

pub mod client;
pub mod directory;
pub mod patience;
pub mod server;
pub mod upstream;

pub use client::{Client, Reply, curl};
pub use directory::Directory;
pub use patience::eventually;
pub use server::{Reactor, Server};
pub use upstream::Upstream;

/// Makes two tests of each function, one for each reactor: `epoll::name` and `io_uring::name`.
#[macro_export]
macro_rules! on_both_reactors {
    ($($name:ident),* $(,)?) => {
        mod epoll {
            $(
                #[test]
                fn $name() {
                    super::$name($crate::support::Reactor::Epoll);
                }
            )*
        }
        mod io_uring {
            $(
                #[test]
                fn $name() {
                    super::$name($crate::support::Reactor::IoUring);
                }
            )*
        }
    };
}
