//! Logged models: model files that a run wrote, known before (and without) registration.

use chrono::{DateTime, Utc};
use rand::Rng;

use crate::{id::RunId, tracking::KeyValue};

/// A logged model with what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedModel {
    /// `m-` and 32 hex digits.
    pub id: String,
    pub experiment_id: i32,
    pub name: String,
    pub model_type: String,
    pub source_run_id: Option<RunId>,
    pub status: LoggedModelStatus,
    pub status_message: String,
    pub artifact_uri: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub tags: Vec<KeyValue>,
    pub params: Vec<KeyValue>,
    pub metrics: Vec<LoggedModelMetric>,
}

/// A metric that was logged for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedModelMetric {
    pub key: String,
    pub value: f64,
    pub timestamp_ms: i64,
    pub step: i64,
    pub run_id: RunId,
    /// Empty: of no dataset.
    pub dataset_name: String,
    pub dataset_digest: String,
}

/// Whether a model's files are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoggedModelStatus {
    Pending,
    Ready,
    Failed,
}

impl LoggedModelStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Ready, Self::Failed];

    /// Its text as stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Ready => "READY",
            Self::Failed => "FAILED",
        }
    }

    /// Its text on the wire.
    #[must_use]
    pub const fn as_wire(self) -> &'static str {
        match self {
            Self::Pending => "LOGGED_MODEL_PENDING",
            Self::Ready => "LOGGED_MODEL_READY",
            Self::Failed => "LOGGED_MODEL_UPLOAD_FAILED",
        }
    }
}

/// A fresh id.
pub fn random_id(rng: &mut impl Rng) -> String {
    format!("m-{:032x}", rng.random::<u128>())
}

/// Checks the name of a logged model.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['/', ':', '.', '%', '"', '\'']) || name.chars().any(char::is_control) {
        return Err(format!(
            "Invalid model name ({name:?}) provided. Model name must be a non-empty string and cannot contain the following characters: ('/', ':', '.', '%', '\"', \"'\")"
        ));
    }
    if name.chars().count() > 500 {
        return Err("Model name exceeds the maximum length of 500 characters".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names() {
        let id = random_id(&mut rand::rng());
        assert!(id.len() == 34 && id.starts_with("m-") && id[2..].chars().all(|c| c.is_ascii_hexdigit()), "{id}");
        assert!(check_name("model").is_ok() && check_name("my model_1").is_ok());
        for bad in ["", "a/b", "a:b", "a.b", "a%b", "a'b", "a\"b", "a\nb"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
