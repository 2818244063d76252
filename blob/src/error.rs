//! Failures of the artifact store, sorted by whose fault they are.

use std::io;

/// Why an operation on the artifact store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path breaks a rule; the text names it.
    #[error("{0}")]
    InvalidKey(String),
    #[error("No such artifact: '{0}'")]
    NotFound(String),
    /// A file was expected and a folder is there, or the other way round.
    #[error("{0}")]
    NotAFile(String),
    /// The range starts behind the end of the object.
    #[error("range starts behind the end of the object of {bytes} bytes")]
    RangeNotSatisfiable { bytes: u64 },
    /// The caller's stream ended with an error; nothing was stored.
    #[error("the upload broke off: {0}")]
    Interrupted(String),
    /// The bytes are not the ones that were asked for.
    #[error("artifact '{key}' has the SHA-256 digest {found}, not {expected}")]
    DigestMismatch { key: String, expected: String, found: String },
    /// The disk is full, or the like: may pass.
    #[error("the artifact store cannot take data")]
    Full(#[source] object_store::Error),
    /// Reading or writing a local file that is not an object.
    #[error("local file")]
    Local(#[source] io::Error),
    #[error("artifact store failed")]
    Store(#[source] object_store::Error),
}

impl Error {
    /// Sorts a failure of the object store for `key`.
    pub(crate) fn of(key: &str, error: object_store::Error) -> Self {
        if matches!(error, object_store::Error::NotFound { .. }) {
            return Self::NotFound(key.to_owned());
        }
        match io_kind(&error) {
            Some(io::ErrorKind::NotADirectory) => Self::NotAFile(format!("a parent of '{key}' is a file, not a folder")),
            Some(io::ErrorKind::IsADirectory) => Self::NotAFile(format!("'{key}' is a folder")),
            Some(io::ErrorKind::InvalidFilename) => Self::InvalidKey(format!("Invalid path {key:?}: a part is too long")),
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Self::Full(error),
            _ => Self::Store(error),
        }
    }
}

/// The kind of the I/O error at the bottom of a chain, if there is one.
fn io_kind(error: &object_store::Error) -> Option<io::ErrorKind> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}
