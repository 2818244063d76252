//! Fields that several parts of the file share.

use std::collections::BTreeMap;

use sluice_domain::names::{check_relative_path, check_slug};

use crate::reader::{Report, Spot};

/// Longest shell command, in bytes.
pub(super) const MAX_COMMAND: usize = 64 * 1024;
const MAX_ENV_VALUE: usize = 32 * 1024;
const DEFAULT_TIMEOUT_SECS: u64 = 3600;
const MAX_TIMEOUT_SECS: u64 = 30 * 24 * 3600;

/// Variables by which Sluice tells a job where its run is; a file that could set them would log elsewhere.
const RESERVED_ENV: &[&str] = &["MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_ID"];

/// Environment variables: name → text.
pub(super) fn environment(spot: &Spot<'_>, report: &mut Report<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (name, value) in spot.entries(report, 0, 200).unwrap_or_default() {
        if let Err(message) = check_env_name(name) {
            report.push(value.key_at, &value.path, message);
        } else if let Some(text) = value.scalar(report, MAX_ENV_VALUE) {
            env.insert(name.to_owned(), text);
        }
    }
    env
}

fn check_env_name(name: &str) -> Result<(), String> {
    let plain = name.len() <= 255
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !plain {
        return Err(format!("environment variable name {name:?} must be 1 to 255 characters of A-Z a-z 0-9 _ and not start with a digit"));
    }
    if RESERVED_ENV.contains(&name) || name.starts_with("SLUICE_") {
        return Err(format!("environment variable {name} is set by Sluice and cannot be changed"));
    }
    Ok(())
}

/// `none`, or a whole number with `s`, `m` or `h`. The answer for `none` is `None`.
pub(super) fn timeout(spot: Option<Spot<'_>>, report: &mut Report<'_>) -> Option<u64> {
    let Some(spot) = spot else { return Some(DEFAULT_TIMEOUT_SECS) };
    let text = spot.scalar(report, 32)?;
    if text == "none" {
        return None;
    }
    let secs = parse_duration(&text);
    if secs.is_none() {
        spot.fail(report, format!("is {text:?}; it must be none, or a whole number followed by s, m or h, from 1s to 720h"));
    }
    secs
}

fn parse_duration(text: &str) -> Option<u64> {
    let unit = match text.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let secs = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=MAX_TIMEOUT_SECS).contains(&secs).then_some(secs)
}

/// Output name → relative path. A name stays known when its path is wrong, so that one mistake is one error.
pub(super) fn outputs(spot: &Spot<'_>, report: &mut Report<'_>) -> BTreeMap<String, String> {
    let mut outputs = BTreeMap::new();
    for (name, value) in spot.entries(report, 0, 50).unwrap_or_default() {
        if let Err(message) = check_slug(name, 60, "output name") {
            report.push(value.key_at, &value.path, message);
            continue;
        }
        let path = value.checked(report, check_relative_path).unwrap_or_default();
        outputs.insert(name.to_owned(), path);
    }
    outputs
}

/// A name that is shown and searched: experiments and metrics.
pub(super) fn check_label(name: &str, max: usize, what: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > max || name.trim() != name || name.chars().any(char::is_control) {
        Err(format!("{what} {name:?} must be 1 to {max} bytes, without control characters or blanks at the ends"))
    } else {
        Ok(())
    }
}

/// Name of a registered model, as the registry takes it.
pub(super) fn check_model_name(name: &str) -> Result<(), String> {
    check_label(name, 255, "model name")?;
    if name.contains(['/', ':', '.', '%', '"', '\'', '\\']) {
        return Err(format!("model name {name:?} must not contain / : . % \\ or quotes"));
    }
    Ok(())
}

/// An alias, as the registry takes it.
pub(super) fn check_alias(alias: &str) -> Result<(), String> {
    let plain = !alias.is_empty() && alias.len() <= 255 && alias.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let lower = alias.to_ascii_lowercase();
    let version = lower.strip_prefix('v').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    if !plain || lower == "latest" || version {
        return Err(format!(
            "alias {alias:?} must be 1 to 255 characters of a-z A-Z 0-9 _ -, and neither latest nor v followed by a number"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, wanted) in [("20m", Some(1200)), ("1h", Some(3600)), ("45s", Some(45)), ("720h", Some(2_592_000))] {
            assert_eq!(parse_duration(text), wanted, "{text}");
        }
        for bad in ["", "m", "20", "0s", "-1s", "1.5h", "721h", "99999999999999999999h", "1d", "+1s", "１s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn aliases_follow_the_registry() {
        assert!(check_alias("champion").is_ok());
        for bad in ["", "latest", "Latest", "v1", "V22", "a b", "a:b"] {
            assert!(check_alias(bad).is_err(), "{bad}");
        }
        assert!(check_alias("v1-candidate").is_ok());
    }
}
