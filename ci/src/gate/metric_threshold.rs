//! The candidate run's latest value of a metric is within bounds.

use sluice_domain::{
    gate::{CheckResult, GateEvidence},
    state::{Direction, Verdict},
};

use super::{blank, number};

pub(super) fn check(metric: &str, min: Option<f64>, max: Option<f64>, evidence: &GateEvidence) -> CheckResult {
    let mut result = blank("metric_threshold", metric);
    result.limit = min.or(max);
    result.direction = match (min, max) {
        (Some(_), None) => Some(Direction::Higher),
        (None, Some(_)) => Some(Direction::Lower),
        _ => None,
    };
    let value = match evidence.candidate_metrics.get(metric) {
        None => {
            result.reason = format!("{metric} was not logged by the candidate's run");
            return result;
        }
        Some(value) => value.filter(|v| v.is_finite()),
    };
    let Some(value) = value else {
        result.reason = format!("{metric} is not a finite number");
        return result;
    };
    result.value = Some(value);
    (result.verdict, result.limit, result.reason) = match (min, max) {
        (Some(min), _) if value < min => (Verdict::Fail, Some(min), outside(metric, value, "below", min)),
        (_, Some(max)) if value > max => (Verdict::Fail, Some(max), outside(metric, value, "above", max)),
        (Some(min), Some(max)) => {
            (Verdict::Pass, Some(min), format!("{metric} {} is from {} to {}", number(value), number(min), number(max)))
        }
        (Some(min), None) => (Verdict::Pass, Some(min), format!("{metric} {} is at least {}", number(value), number(min))),
        (None, Some(max)) => (Verdict::Pass, Some(max), format!("{metric} {} is at most {}", number(value), number(max))),
        (None, None) => (Verdict::Error, None, format!("the check of {metric} has no limit")),
    };
    result
}

/// Both numbers in full when rounding would make them look the same.
fn outside(metric: &str, value: f64, side: &str, limit: f64) -> String {
    let (short_value, short_limit) = (number(value), number(limit));
    if short_value == short_limit {
        format!("{metric} {value} is {side} the limit {limit}")
    } else {
        format!("{metric} {short_value} is {side} the limit {short_limit}")
    }
}
