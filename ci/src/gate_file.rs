//! The gate file → policy.

use sluice_domain::gate::{CheckSpec, GatePolicy, NonInferiorityTest};

use crate::{
    file_error::FileError,
    keys,
    reader::{Report, Spot},
    yaml::{self, Value},
};

/// Most checks that one gate may have.
pub const MAX_CHECKS: usize = 50;

/// Reads a gate file. `file` is its path, for messages.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text.
pub fn policy(file: &str, source: &str) -> Result<GatePolicy, Vec<FileError>> {
    let mut report = Report::new(file, source);
    let root = match yaml::parse(source) {
        Ok(root) => root,
        Err(error) => {
            report.push(error.at, "", error.message);
            return Err(report.errors);
        }
    };
    let checks = read_root(&Spot::root(&root), &mut report);
    let mut errors = report.errors;
    errors.sort_by_key(|error| (error.line, error.column));
    match checks {
        Some(checks) if errors.is_empty() => Ok(GatePolicy { checks }),
        _ => Err(errors),
    }
}

fn read_root(root: &Spot<'_>, report: &mut Report<'_>) -> Option<Vec<CheckSpec>> {
    let object = root.object(report, keys::GATE)?;
    let items = object.require(report, "checks")?.list(report, 1, MAX_CHECKS)?;
    Some(items.iter().filter_map(|item| read_check(item, report)).collect())
}

fn read_check(item: &Spot<'_>, report: &mut Report<'_>) -> Option<CheckSpec> {
    if let Value::Map(entries) = &item.node.value
        && entries.len() != 1
    {
        item.fail(report, format!("has {} keys; it must have exactly one, the kind of check: {}", entries.len(), keys::CHECK.join(", ")));
        return None;
    }
    let object = item.object(report, keys::CHECK)?;
    let (kind, spot) = keys::CHECK.iter().find_map(|kind| Some((*kind, object.get(kind)?)))?;
    match kind {
        "metric_threshold" => metric_threshold(&spot, report),
        "non_inferiority" => non_inferiority(&spot, report),
        "latency_budget" => latency_budget(&spot, report),
        _ => onnx_parity(&spot, report),
    }
}

fn metric_name(text: &str) -> Result<(), String> {
    if text.len() > 250 || text.trim() != text || text.chars().any(char::is_control) {
        return Err(format!("metric name {text:?} must be 1 to 250 bytes, without control characters or blanks at the ends"));
    }
    Ok(())
}

fn metric_threshold(spot: &Spot<'_>, report: &mut Report<'_>) -> Option<CheckSpec> {
    let object = spot.object(report, keys::METRIC_THRESHOLD)?;
    let metric = object.require(report, "metric").and_then(|m| m.checked(report, metric_name));
    let (min_spot, max_spot) = (object.get("min"), object.get("max"));
    let min = min_spot.as_ref().map(|spot| spot.number(report));
    let max = max_spot.as_ref().map(|spot| spot.number(report));
    if min.is_none() && max.is_none() {
        report.push(spot.key_at, &spot.path, "must have min, max or both");
        return None;
    }
    if let (Some(Some(min)), Some(Some(max)), Some(max_spot)) = (min, max, &max_spot)
        && min > max
    {
        max_spot.fail(report, format!("is {max}, below min {min}"));
    }
    Some(CheckSpec::MetricThreshold { metric: metric?, min: min.flatten(), max: max.flatten() })
}

fn non_inferiority(spot: &Spot<'_>, report: &mut Report<'_>) -> Option<CheckSpec> {
    let object = spot.object(report, keys::NON_INFERIORITY)?;
    let metric = object.require(report, "metric").and_then(|m| m.checked(report, metric_name));
    let test = object.require(report, "test").and_then(|test| {
        let text = test.text(report, 100)?;
        match text.as_str() {
            "welch" => Some(NonInferiorityTest::Welch),
            "ratio_of_medians" => Some(NonInferiorityTest::RatioOfMedians),
            _ => {
                test.fail(report, format!("is {text:?}; it must be one of welch, ratio_of_medians"));
                None
            }
        }
    });
    let margin = object.require(report, "margin").and_then(|margin| match test {
        Some(NonInferiorityTest::RatioOfMedians) => {
            margin.number_where(report, |x| x > 0.0 && x < 1.0, "a fraction above 0 and below 1, e.g. 0.05 for 5 %")
        }
        _ => margin.number_where(report, |x| x > 0.0, "above 0"),
    });
    Some(CheckSpec::NonInferiority { metric: metric?, test: test?, margin: margin? })
}

fn latency_budget(spot: &Spot<'_>, report: &mut Report<'_>) -> Option<CheckSpec> {
    let object = spot.object(report, keys::LATENCY_BUDGET)?;
    let batch = object.require(report, "batch").and_then(|batch| batch.integer(report, 1..=4096));
    let quantile =
        object.require(report, "quantile").and_then(|q| q.number_where(report, |x| (0.5..=0.99).contains(&x), "from 0.5 to 0.99"));
    let max_ms = object.require(report, "max_ms").and_then(|max| max.number_where(report, |x| x > 0.0, "above 0"));
    Some(CheckSpec::LatencyBudget { batch: batch?, quantile: quantile?, max_ms: max_ms? })
}

fn onnx_parity(spot: &Spot<'_>, report: &mut Report<'_>) -> Option<CheckSpec> {
    let object = spot.object(report, keys::ONNX_PARITY)?;
    let atol = object.require(report, "atol").and_then(|x| x.number_where(report, |x| x > 0.0, "above 0"));
    let rtol = object.require(report, "rtol").and_then(|x| x.number_where(report, |x| x > 0.0, "above 0"));
    Some(CheckSpec::OnnxParity { atol: atol?, rtol: rtol? })
}
