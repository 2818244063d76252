//! Git: bare repositories read with libgit2, and the smart-HTTP service over the stock git binary.
//!
//! libgit2 has no server side of the pack protocol, so [`service`] spawns `git upload-pack` and
//! `git receive-pack`. Functions of [`repository`] block: call them from a blocking thread.

pub mod pkt;
pub mod repository;
pub mod service;

/// Result of a git operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a git operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libgit2 refused.
    #[error("git: {0}")]
    Git(#[from] git2::Error),
    /// The git program could not be run or its pipes broke.
    #[error("running git: {0}")]
    Io(#[from] std::io::Error),
    /// A file at a commit is larger than what is read from commits.
    #[error("{path} is {bytes} bytes; at most {limit} are read")]
    TooLarge { path: String, bytes: u64, limit: u64 },
}
