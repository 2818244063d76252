//! The file that a benchmark command leaves at `$SLUICE_BENCH_RESULT`, read strictly: a number that is not there must
//! never pass for one that is.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values of each declared metric. Those that are not finite are `None`.
pub type Values = BTreeMap<String, Vec<Option<f64>>>;

/// Most values that one process may report for one metric.
const MAX_VALUES: usize = 100_000;

/// Reads one result. `metrics` are the declared ones; others are ignored.
///
/// # Errors
/// A sentence that names the metric.
pub fn read<'a>(text: &str, metrics: impl IntoIterator<Item = &'a String>) -> Result<Values, String> {
    let value: Value =
        serde_json::from_str(&without_special_numbers(text)).map_err(|error| format!("$SLUICE_BENCH_RESULT is not JSON: {error}"))?;
    let Value::Object(object) = value else {
        return Err("$SLUICE_BENCH_RESULT must hold one JSON object of metrics".to_owned());
    };
    let mut values = Values::new();
    for metric in metrics {
        let given = object.get(metric).ok_or_else(|| {
            let present: Vec<&str> = object.keys().map(String::as_str).take(20).collect();
            format!(
                "metric {metric} is missing; the result has: {}",
                if present.is_empty() { "nothing".to_owned() } else { present.join(", ") }
            )
        })?;
        values.insert(metric.clone(), numbers(metric, given)?);
    }
    Ok(values)
}

fn numbers(metric: &str, given: &Value) -> Result<Vec<Option<f64>>, String> {
    let one = |value: &Value| match value {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64().filter(|number| number.is_finite())),
        other => Err(format!("metric {metric} must be a number or a list of numbers, not {}", kind(other))),
    };
    match given {
        Value::Array(items) if items.is_empty() => Err(format!("metric {metric} is an empty list")),
        Value::Array(items) if items.len() > MAX_VALUES => {
            Err(format!("metric {metric} has {} values, at most {MAX_VALUES} are kept", items.len()))
        }
        Value::Array(items) => items.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Python writes `NaN` and `Infinity`, which JSON does not know: they become `null`. Text in quotes stays as it is.
fn without_special_numbers(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(next) = rest.chars().next() {
        if quoted && next == '\\' {
            let length = rest.chars().take(2).map(char::len_utf8).sum();
            clean.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        if next == '"' {
            quoted = !quoted;
        }
        let special = (!quoted).then(|| ["NaN", "-Infinity", "Infinity"].iter().find(|name| rest.starts_with(**name))).flatten();
        let (replacement, length) = special.map_or((&rest[..next.len_utf8()], next.len_utf8()), |name| ("null", name.len()));
        clean.push_str(replacement);
        rest = &rest[length..];
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Values, String> {
        read(text, &["accuracy".to_owned(), "latency_ms".to_owned()])
    }

    #[test]
    fn numbers_and_lists_are_read() {
        let values = check(r#"{"accuracy": 0.5, "latency_ms": [1, 2.5], "other": "x"}"#).unwrap();
        assert_eq!(values["accuracy"], [Some(0.5)]);
        assert_eq!(values["latency_ms"], [Some(1.0), Some(2.5)]);
        assert_eq!(values.len(), 2);
    }

    #[test]
    fn values_that_are_not_finite_stay_as_gaps() {
        let values = check(r#"{"accuracy": NaN, "latency_ms": [1, -Infinity, Infinity, null], "note": "NaN \" Infinity"}"#).unwrap();
        assert_eq!(values["accuracy"], [None]);
        assert_eq!(values["latency_ms"], [Some(1.0), None, None, None]);
        assert_eq!(without_special_numbers(r#"{"a":"NaN\"NaN"}"#), r#"{"a":"NaN\"NaN"}"#);
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (text, expected) in [
            ("", "is not JSON"),
            ("[1]", "one JSON object"),
            (r#"{"accuracy": 1}"#, "metric latency_ms is missing; the result has: accuracy"),
            ("{}", "metric accuracy is missing; the result has: nothing"),
            (r#"{"accuracy": "1", "latency_ms": 1}"#, "metric accuracy must be a number or a list of numbers, not a text"),
            (r#"{"accuracy": 1, "latency_ms": []}"#, "metric latency_ms is an empty list"),
            (r#"{"accuracy": 1, "latency_ms": [[1]]}"#, "not a list"),
            (r#"{"accuracy": true, "latency_ms": 1}"#, "not a boolean"),
            (r#"{"accuracy": 1e999, "latency_ms": 1}"#, "is not JSON"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
