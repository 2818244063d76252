//! What can go wrong with a call.

use std::time::Duration;

use serde::Deserialize;
use sluice_domain::problem::FieldError;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url:?} is not a server URL: {message}")]
    InvalidUrl { url: String, message: String },
    /// The server answered, and refused.
    #[error("{0}")]
    Api(ApiError),
    /// There was no (whole) answer.
    #[error("{}", transport_text(.0))]
    Transport(#[source] reqwest::Error),
    #[error("unexpected answer of {url}: {source}")]
    Decode {
        url: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// What arrived is not what was promised.
    #[error("{0}")]
    Corrupt(String),
}

/// The error's own text followed by its causes: reqwest keeps the interesting part in the cause.
fn transport_text(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

/// A refusal, from `application/problem+json` or from MLflow's `{error_code, message}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    /// E.g. `not_found`; empty when the answer was not Sluice's.
    pub code: String,
    pub detail: String,
    pub fields: Vec<FieldError>,
    pub retry_after: Option<Duration>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.detail)?;
        for field in self.fields.iter().filter(|field| field.message != self.detail) {
            write!(f, "; {}: {}", field.field, field.message)?;
        }
        if self.code.is_empty() { write!(f, " (HTTP {})", self.status) } else { write!(f, " (HTTP {} {})", self.status, self.code) }
    }
}

impl ApiError {
    pub(crate) fn parse(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Body {
            code: Option<String>,
            error_code: Option<String>,
            detail: Option<String>,
            title: Option<String>,
            message: Option<String>,
            errors: Vec<FieldError>,
        }
        let parsed: Body = serde_json::from_slice(body).unwrap_or_default();
        let detail = parsed.detail.or(parsed.message).or(parsed.title).unwrap_or_else(|| {
            let text: String = String::from_utf8_lossy(body).chars().take(300).collect();
            if text.trim().is_empty() { "no details given".to_owned() } else { text }
        });
        Self { status, code: parsed.code.or(parsed.error_code).unwrap_or_default(), detail, fields: parsed.errors, retry_after }
    }
}

impl Error {
    /// The HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        if let Self::Api(error) = self { Some(error.status) } else { None }
    }

    /// The code of a refusal, e.g. `stale_attempt`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        if let Self::Api(error) = self { Some(&error.code) } else { None }
    }

    /// Whether the same call may well succeed in a moment: no connection, 429, 502, 503, 504.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => matches!(error.status, 429 | 502 | 503 | 504),
            Self::Transport(error) => !error.is_builder(),
            Self::InvalidUrl { .. } | Self::Decode { .. } | Self::Io { .. } | Self::Corrupt(_) => false,
        }
    }

    /// How long the server asked to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Api(error) = self { error.retry_after } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_errors_are_read() {
        let native = br#"{"title":"Bad Request","status":400,"code":"invalid_parameter","detail":"bad name","errors":[{"field":"name","message":"too long"}]}"#;
        let error = ApiError::parse(400, None, native);
        assert_eq!((error.code.as_str(), error.fields.len()), ("invalid_parameter", 1));
        assert_eq!(error.to_string(), "bad name; name: too long (HTTP 400 invalid_parameter)");
        let mlflow = ApiError::parse(404, None, br#"{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no run"}"#);
        assert_eq!((mlflow.code.as_str(), mlflow.detail.as_str()), ("RESOURCE_DOES_NOT_EXIST", "no run"));
        assert_eq!(ApiError::parse(502, None, b"<html>").to_string(), "<html> (HTTP 502)");
        assert!(Error::Api(ApiError::parse(503, None, b"")).is_passing());
        assert!(!Error::Api(mlflow).is_passing());
    }
}
