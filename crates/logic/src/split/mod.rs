//! Request splitting (Rawal, Karne and Wijesinha, "Mini Web Server Clusters for HTTP Request Splitting"): whether a connection server answers a
//! request itself or has a data server answer it under its own address.
//!
//! Says yes or no, and why. Which data server it is, is `dispatch`'s to say; who holds the connection meanwhile, `handoff`'s.
//!
//! | file | decides |
//! |---|---|
//! | `rules` | what may be delegated at all |
//! | `balance` | how much of that is, so that all servers are equally busy |
//! | `explain` | the same in words |

mod balance;
mod explain;
mod rules;

#[cfg(test)]
mod simulation;

pub use balance::{Asked, Balance, DELEGATING, Loads, Price};
pub use explain::Explanation;
pub use rules::{Delegation, Near, Rules};

/// Why a request is delegated, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// `delegation = "full"`.
    #[error("everything that may be delegated is")]
    Full,
    /// A data server is near to the client, and `near = "always"`.
    #[error("a data server is near to the client, and `near` is \"always\"")]
    Near,
    /// The data servers have less to do.
    #[error("the data servers have less to do than this server")]
    Relieves,
    /// The path isn't one of `paths`.
    #[error("its path isn't one of `paths`")]
    Path,
    /// The reply is smaller than `size_min`.
    #[error("its reply is smaller than `size_min`")]
    Small,
    /// Not its turn under `fraction`.
    #[error("only a fraction of the requests is delegated, and it isn't this one's turn")]
    Fraction,
    /// Fewer requests under way than `load_min`.
    #[error("this server has less to do than `load_min`")]
    Idle,
    /// The data servers have as much to do.
    #[error("the data servers have as much to do as this server")]
    Balanced,
    /// Giving it away would take more of the processor than serving it, and none of it is idle.
    #[error("the processor is busy here, and delegating takes more of it than serving")]
    Dearer,
    /// Giving it away would take more of the processor than serving it, and it isn't this server's link that requests wait for.
    #[error("delegating takes more of the processor than serving, and requests don't wait for this server's link")]
    Useless,
    /// No data server can be given it.
    #[error("no data server serves it, or none of those that do is up")]
    Nobody,
    /// A data server was asked already, and it came back.
    #[error("no data server has taken it")]
    Refused,
}

impl Reason {
    /// Whether it's one for delegating.
    #[must_use]
    pub fn delegates(self) -> bool {
        matches!(self, Reason::Full | Reason::Near | Reason::Relieves)
    }
}
