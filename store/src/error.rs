//! Database failures, sorted by what a caller can do about them.

/// Result of a store function.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store function failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The row does not exist.
    #[error("{kind} {key} not found")]
    NotFound { kind: &'static str, key: String },
    /// A unique constraint refused the row.
    #[error("unique constraint {constraint} violated")]
    Unique { constraint: String },
    /// A foreign key refused the row.
    #[error("foreign key {constraint} violated")]
    ForeignKey { constraint: String },
    /// A check or an append-only trigger refused the row.
    #[error("check {constraint} violated")]
    Check { constraint: String },
    /// Deadlock or serialisation failure: the transaction may be tried again.
    #[error("transaction conflict")]
    Conflict(#[source] sqlx::Error),
    /// The database cannot be reached or is starting, stopping or recovering.
    #[error("database unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// A stored value does not have the form that Sluice writes.
    #[error("stored {what} is malformed: {message}")]
    Malformed { what: &'static str, message: String },
    /// Anything else.
    #[error("database error")]
    Database(#[source] sqlx::Error),
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(db) => {
                let constraint = db.constraint().unwrap_or_default().to_owned();
                match db.code().as_deref().unwrap_or_default() {
                    "23505" => Self::Unique { constraint },
                    "23503" => Self::ForeignKey { constraint },
                    "23514" | "23001" => Self::Check { constraint },
                    "40001" | "40P01" => Self::Conflict(error),
                    // 57P0x: shutdown, crash recovery, starting up; 53300: too many connections
                    "57P01" | "57P02" | "57P03" | "53300" => Self::Unavailable(error),
                    code if code.starts_with("08") => Self::Unavailable(error),
                    _ => Self::Database(error),
                }
            }
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Tls(_) => {
                Self::Unavailable(error)
            }
            _ => Self::Database(error),
        }
    }
}

impl Error {
    /// The constraint that refused a row, if one did.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Unique { constraint } | Self::ForeignKey { constraint } | Self::Check { constraint } => Some(constraint),
            _ => None,
        }
    }
}
