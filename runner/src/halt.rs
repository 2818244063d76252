//! Why a job does not go on.

use sluice_domain::state::Cause;

use crate::stop::StopReason;

/// Result of a part of a job.
pub type JobResultOf<T> = Result<T, Halt>;

/// The end of a job before its work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    Failed(Failure),
    Stopped(StopReason),
}

/// A failure as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    pub exit_code: Option<i32>,
    /// One line for people.
    pub message: String,
}

impl Halt {
    /// The commit, its files or its programs are at fault: trying again changes nothing.
    pub fn user(message: impl Into<String>) -> Self {
        Self::failed(Cause::User, None, message)
    }

    /// The machine or the network is at fault: another attempt may do.
    pub fn infra(message: impl Into<String>) -> Self {
        Self::failed(Cause::Infra, None, message)
    }

    /// A failure with an exit code.
    pub fn failed(cause: Cause, exit_code: Option<i32>, message: impl Into<String>) -> Self {
        Self::Failed(Failure { cause, exit_code, message: one_line(&message.into()) })
    }

    /// What went wrong with a call to the server.
    pub fn from_call(what: &str, error: &sluice_client::Error) -> Self {
        match error.status() {
            Some(409) if error.code() == Some("stale_attempt") => Self::Stopped(StopReason::Stale),
            // The server understood and says no: what was sent is at fault.
            Some(400 | 413 | 422) => Self::user(format!("{what}: {error}")),
            _ => Self::infra(format!("{what}: {error}")),
        }
    }
}

/// An I/O error with what was being done.
pub fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Halt {
    move |error| Halt::infra(format!("{what}: {error}"))
}

/// The text on one line, cut to what fits a table.
pub fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    let text = text.replace(char::is_control, " ").split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() > MAX_CHARS { text.chars().take(MAX_CHARS).chain(['…']).collect() } else { text }
}
