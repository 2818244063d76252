//! Registered models, their versions and aliases, and the rules for their names.

use chrono::{DateTime, Utc};

use crate::{id::RunId, key::normal_path, tracking::KeyValue};

/// Tag that makes a registered model a prompt.
pub const PROMPT_TAG: &str = "mlflow.prompt.is_prompt";
/// Most characters of a tag's value.
pub const MAX_TAG_VALUE_CHARS: usize = 100_000;
/// Most characters of a description.
pub const MAX_DESCRIPTION_CHARS: usize = 5000;

/// A registered model with everything that calls on it answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredModel {
    pub name: String,
    pub description: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub tags: Vec<KeyValue>,
    /// By alias.
    pub aliases: Vec<(String, i32)>,
    /// The highest live version of each stage.
    pub latest_versions: Vec<ModelVersion>,
}

/// A version of a registered model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelVersion {
    pub name: String,
    pub version: i32,
    /// As the client gave it.
    pub source: String,
    /// Where the files are: the source with `models:/…` resolved.
    pub storage_uri: String,
    pub run_id: Option<RunId>,
    pub logged_model_id: Option<String>,
    pub run_link: String,
    pub description: String,
    pub user_id: String,
    pub stage: Stage,
    pub status: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub tags: Vec<KeyValue>,
    pub aliases: Vec<String>,
}

/// Stage of a version: MLflow's older way of saying what aliases say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    None,
    Staging,
    Production,
    Archived,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 4] = [Self::None, Self::Staging, Self::Production, Self::Archived];

    /// Its text, as stored and sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Staging => "Staging",
            Self::Production => "Production",
            Self::Archived => "Archived",
        }
    }
}

impl std::str::FromStr for Stage {
    type Err = String;

    /// Any case.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|stage| stage.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("Invalid Model Version stage: {text}. Value must be one of None, Staging, Production, Archived."))
    }
}

/// Checks the name of a registered model.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_model_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("Registered model name cannot be empty.".to_owned());
    }
    if name.chars().count() > 256 {
        return Err("Registered model name exceeds the maximum length of 256 characters.".to_owned());
    }
    if name.contains(['/', ':']) || name.chars().any(char::is_control) || normal_path(name) != name || matches!(name, "." | "..") {
        return Err(format!(
            "Invalid registered model name: '{name}'. Names cannot contain '/', ':' or control characters, nor be '.' or '..'."
        ));
    }
    Ok(())
}

/// Checks an alias.
///
/// # Errors
/// A sentence that states the rule.
pub fn check_alias(alias: &str) -> Result<(), String> {
    if alias.is_empty() {
        return Err("Registered model alias name cannot be empty.".to_owned());
    }
    if alias.chars().count() > 255 {
        return Err("Registered model alias name exceeds the maximum length of 255 characters.".to_owned());
    }
    if !alias.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-')) {
        return Err(format!("Invalid alias name: '{alias}'. Names may only contain alphanumerics, underscores (_), and dashes (-)."));
    }
    if alias.eq_ignore_ascii_case("latest") {
        return Err("'latest' alias name (case insensitive) is reserved.".to_owned());
    }
    let digits = alias.strip_prefix(['v', 'V']).unwrap_or_default();
    if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("Version alias name '{alias}' is reserved."));
    }
    Ok(())
}

/// What the source of a new version says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `models:/m-…`: a logged model.
    LoggedModel(String),
    /// `models:/NAME/VERSION`: another version.
    Version { name: String, version: i32 },
    /// `runs:/RUN/PATH`.
    Run { run_id: String, path: String },
    /// Files that this server keeps: `mlflow-artifacts:/…`, or an HTTP URL of its artifact proxy.
    Proxied { uri: String },
    /// A path on somebody's machine or `file:`.
    Local,
    /// A store that clients reach themselves, such as `s3://…`.
    Elsewhere,
}

/// Sorts a source. `None`: it is malformed or climbs (`..`, also percent-encoded), or has a NUL.
#[must_use]
pub fn parse_source(source: &str) -> Option<Source> {
    const PROXY: &str = "/mlflow-artifacts/artifacts/";
    let mut decoded = source.to_owned();
    while decoded.to_ascii_lowercase().contains("%2e") {
        decoded = decoded.replace("%2e", ".").replace("%2E", ".");
    }
    let lower = source.to_ascii_lowercase();
    if decoded.split(['/', '\\']).any(|part| part == "..") || source.contains('\0') || lower.contains("%00") || lower.contains("%252e") {
        return None;
    }
    let Some((scheme, rest)) = source.split_once(':') else {
        return Some(Source::Local);
    };
    let path = rest.trim_start_matches('/');
    match scheme.to_ascii_lowercase().as_str() {
        "models" => match path.split_once('/') {
            None if path.starts_with("m-") => Some(Source::LoggedModel(path.to_owned())),
            Some((name, version)) => Some(Source::Version { name: name.to_owned(), version: version.parse().ok()? }),
            None => None,
        },
        "runs" => {
            let (run_id, path) = path.split_once('/').unwrap_or((path, ""));
            Some(Source::Run { run_id: run_id.to_owned(), path: path.to_owned() })
        }
        "mlflow-artifacts" => Some(Source::Proxied { uri: source.to_owned() }),
        "http" | "https" => {
            let (_, key) = source.split_once(PROXY)?;
            Some(Source::Proxied { uri: format!("mlflow-artifacts:/{key}") })
        }
        "file" => Some(Source::Local),
        scheme if scheme.len() == 1 => Some(Source::Local),
        _ => Some(Source::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases() {
        for good in ["digits", "a b", "x.y-z_1", "模型"] {
            assert!(check_model_name(good).is_ok(), "{good}");
        }
        for bad in ["", "  ", "a/b", "a:b", "..", ".", "a\nb", &"x".repeat(257)] {
            assert!(check_model_name(bad).is_err(), "{bad:?}");
        }
        for good in ["champion", "best_1", "v1x", "v", "élan"] {
            assert!(check_alias(good).is_ok(), "{good}");
        }
        for bad in ["", "latest", "LaTest", "v1", "V12", "a b", "a/b", "a.b", &"x".repeat(256)] {
            assert!(check_alias(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sources_are_sorted() {
        let proxied = |uri: &str| Some(Source::Proxied { uri: uri.to_owned() });
        for (source, expected) in [
            ("models:/m-0123", Some(Source::LoggedModel("m-0123".to_owned()))),
            ("models:/digits/3", Some(Source::Version { name: "digits".to_owned(), version: 3 })),
            ("runs:/abc/model", Some(Source::Run { run_id: "abc".to_owned(), path: "model".to_owned() })),
            ("mlflow-artifacts:/0/abc/artifacts/model", proxied("mlflow-artifacts:/0/abc/artifacts/model")),
            ("http://localhost:5000/api/2.0/mlflow-artifacts/artifacts/0/a", proxied("mlflow-artifacts:/0/a")),
            ("s3://bucket/model", Some(Source::Elsewhere)),
            ("model", Some(Source::Local)),
            ("/etc/passwd", Some(Source::Local)),
            ("./model", Some(Source::Local)),
            ("file:///etc/passwd", Some(Source::Local)),
            ("C:\\model", Some(Source::Local)),
            ("models:/digits/x", None),
            ("models:/digits", None),
            ("https://example.org/model", None),
            ("mlflow-artifacts:/0/../1", None),
            ("s3://bucket/%2E%2e/x", None),
            ("s3://bucket/%252e%252e/x", None),
            ("s3://bucket/%00", None),
        ] {
            assert_eq!(parse_source(source), expected, "{source}");
        }
    }
}
