//! Failures of use cases, free of any transport.

use sluice_domain::problem::{ErrorCode, FieldError};

/// Result of a use case.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a use case failed. `message`s are for the caller; sources are for the log only.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request says something that cannot be done; `fields` names where.
    #[error("{message}")]
    Invalid { message: String, fields: Vec<FieldError> },
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    AlreadyExists(String),
    /// The state of the thing does not allow it (now).
    #[error("{0}")]
    Conflict(String),
    /// The attempt's lease is over: another attempt may be running.
    #[error("{0}")]
    StaleAttempt(String),
    #[error("{0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{what} is larger than the limit of {limit_bytes} bytes")]
    TooLarge { what: String, limit_bytes: u64 },
    #[error("{0}")]
    NotImplemented(String),
    /// A passing fault: the caller should try again.
    #[error("temporarily unavailable")]
    Unavailable(#[source] anyhow::Error),
    #[error("internal error")]
    Internal(#[source] anyhow::Error),
}

impl Error {
    /// A request with one bad field. The message is for the whole request and should name the field.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Invalid { fields: vec![FieldError { field: field.to_owned(), message: message.clone() }], message }
    }

    /// The row of the error registry.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::InvalidParameter,
            Self::NotFound(_) => ErrorCode::NotFound,
            Self::AlreadyExists(_) => ErrorCode::AlreadyExists,
            Self::Conflict(_) => ErrorCode::Conflict,
            Self::StaleAttempt(_) => ErrorCode::StaleAttempt,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::Forbidden(_) => ErrorCode::Forbidden,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::NotImplemented(_) => ErrorCode::NotImplemented,
            Self::Unavailable(_) => ErrorCode::Unavailable,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<sluice_store::Error> for Error {
    fn from(error: sluice_store::Error) -> Self {
        use sluice_store::Error as Store;
        match error {
            Store::NotFound { kind, key } => Self::NotFound(format!("{kind} {key} not found")),
            Store::Unavailable(_) | Store::Conflict(_) => Self::Unavailable(error.into()),
            other => Self::Internal(other.into()),
        }
    }
}
