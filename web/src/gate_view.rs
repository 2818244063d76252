//! A gate record as the version page draws it: figures with their limits, intervals and samples on one scale.

use serde_json::Value;
use sluice_domain::{
    evidence::{BenchmarkEvidence, OnnxEvidence},
    gate::CheckResult,
    state::{Direction, Verdict},
};

use crate::show;

/// Width of the drawings, in their own units.
pub const WIDTH: f64 = 420.0;
const MARGIN: f64 = 12.0;

/// One check, ready to print.
#[derive(Debug, Clone)]
pub struct CheckView {
    pub verdict: Verdict,
    pub name: String,
    pub value: String,
    pub limit: String,
    pub interval: String,
    pub reason: String,
    pub scale: Option<Scale>,
    /// Further numbers, by name; samples and nested values are drawn or left to the evidence.
    pub details: Vec<(String, String)>,
}

/// An estimate with its interval and limit on one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    pub lower: i32,
    pub upper: i32,
    pub point: i32,
    pub limit: i32,
    pub limit_text: String,
    /// The limit's label stands left of the line when there is no room at its right.
    pub limit_at_end: bool,
    /// What the drawing says, for those who do not see it.
    pub label: String,
    /// One dot per process: (candidate, champion).
    pub samples: Option<Samples>,
}

/// Samples of both sides on their own axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    pub candidate: Vec<i32>,
    pub champion: Vec<i32>,
    pub label: String,
}

impl From<&CheckResult> for CheckView {
    fn from(check: &CheckResult) -> Self {
        let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| figure(value, &check.unit));
        let sign = match (check.kind.as_str(), check.direction) {
            (_, Some(Direction::Higher)) => "≥ ",
            (_, Some(Direction::Lower)) => "≤ ",
            _ => "",
        };
        Self {
            verdict: check.verdict,
            name: check.name.clone(),
            value: figure(check.value),
            limit: check.limit.map_or_else(|| "–".to_owned(), |limit| format!("{sign}{}", figure_text(limit, &check.unit))),
            interval: check.interval.map_or_else(String::new, |(lower, upper)| {
                format!("{} … {}", figure_text(lower, &check.unit), figure_text(upper, &check.unit))
            }),
            reason: check.reason.clone(),
            scale: scale(check),
            details: check.details.iter().filter_map(|(name, value)| Some((name.replace('_', " "), scalar(value)?))).collect(),
        }
    }
}

fn figure_text(value: f64, unit: &str) -> String {
    figure(value, unit)
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "" => show::num(&value),
        "ratio" => format!("×{}", show::num(&value)),
        unit => format!("{} {unit}", show::num(&value)),
    }
}

/// A detail as text; lists and objects are not printed here.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => number.as_f64().map(|number| show::num(&number)),
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Null => Some("–".to_owned()),
        Value::Array(items) if items.len() <= 12 && items.iter().all(|item| item.is_u64() || item.is_string()) => {
            Some(items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    }
}

/// Maps values to positions so that all of `values` fit.
fn positions(values: &[f64]) -> Option<impl Fn(f64) -> i32 + use<>> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return None;
    }
    let span = if high > low { high - low } else { 1.0 };
    Some(move |value: f64| (MARGIN + (value - low) / span * (WIDTH - 2.0 * MARGIN)).round() as i32)
}

fn scale(check: &CheckResult) -> Option<Scale> {
    let (lower, upper) = check.interval?;
    let (point, limit) = (check.value?, check.limit?);
    let at = positions(&[lower, upper, point, limit])?;
    let text = |value| figure(value, &check.unit);
    Some(Scale {
        lower: at(lower),
        upper: at(upper),
        point: at(point),
        limit: at(limit),
        limit_text: format!("limit {}", text(limit)),
        limit_at_end: f64::from(at(limit)) > WIDTH * 0.7,
        label: format!("estimate {}, interval {} to {}, limit {}", text(point), text(lower), text(upper), text(limit)),
        samples: samples(check),
    })
}

fn samples(check: &CheckResult) -> Option<Samples> {
    let list = |name: &str| -> Option<Vec<f64>> { check.details.get(name)?.as_array()?.iter().map(Value::as_f64).collect() };
    let (candidate, champion) = (list("candidate")?, list("champion")?);
    let all: Vec<f64> = candidate.iter().chain(&champion).copied().collect();
    let at = positions(&all)?;
    let say = |values: &[f64]| values.iter().map(show::num).collect::<Vec<_>>().join(", ");
    Some(Samples {
        label: format!("candidate: {}; champion: {}", say(&candidate), say(&champion)),
        candidate: candidate.iter().map(|value| at(*value)).collect(),
        champion: champion.iter().map(|value| at(*value)).collect(),
    })
}

/// The middle value of the finite ones.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// One metric of the benchmark, summed up.
#[derive(Debug, Clone)]
pub struct BenchmarkRow {
    pub metric: String,
    pub better: &'static str,
    pub candidate: String,
    pub candidate_processes: usize,
    pub champion: String,
    pub champion_processes: usize,
}

/// The benchmark as a table: the median over processes of each process's median.
pub fn benchmark_rows(benchmark: &BenchmarkEvidence) -> Vec<BenchmarkRow> {
    benchmark
        .metrics
        .iter()
        .map(|(metric, measured)| {
            let side = |samples: &[sluice_domain::evidence::ProcessSample]| {
                let per_process = samples.iter().filter_map(|sample| median(sample.values.iter().flatten().copied()));
                median(per_process).map_or_else(|| "–".to_owned(), |value| show::num(&value))
            };
            BenchmarkRow {
                metric: metric.clone(),
                better: if measured.direction == Direction::Higher { "higher is better" } else { "lower is better" },
                candidate: side(&measured.candidate),
                candidate_processes: measured.candidate.len(),
                champion: side(&measured.champion),
                champion_processes: measured.champion.len(),
            }
        })
        .collect()
}

/// Median latency of an ONNX file by batch size.
pub fn latency_rows(onnx: &OnnxEvidence) -> Vec<(u32, String, usize)> {
    onnx.latency
        .iter()
        .map(|case| {
            let middle = median(case.samples_ms.iter().copied());
            (case.batch, middle.map_or_else(|| "–".to_owned(), |value| format!("{} ms", show::num(&value))), case.samples_ms.len())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn check() -> CheckResult {
        CheckResult {
            name: "non_inferiority accuracy".to_owned(),
            kind: "non_inferiority".to_owned(),
            verdict: Verdict::Fail,
            value: Some(-0.012),
            limit: Some(-0.005),
            unit: String::new(),
            interval: Some((-0.019, -0.006)),
            direction: Some(Direction::Higher),
            reason: "worse".to_owned(),
            details: BTreeMap::from([
                ("candidate".to_owned(), json!([0.90, 0.91])),
                ("champion".to_owned(), json!([0.92, 0.93])),
                ("p_value".to_owned(), json!(0.01)),
            ]),
        }
    }

    #[test]
    fn a_comparison_is_drawn_on_one_axis() {
        let view = CheckView::from(&check());
        assert_eq!((view.value.as_str(), view.limit.as_str(), view.interval.as_str()), ("−0.012", "≥ −0.005", "−0.019 … −0.006"));
        let scale = view.scale.unwrap();
        assert!(scale.lower < scale.point && scale.point < scale.upper && scale.upper < scale.limit);
        let samples = scale.samples.unwrap();
        assert!(samples.candidate.iter().max() < samples.champion.iter().min());
        assert_eq!(view.details, [("p value".to_owned(), "0.01".to_owned())]);
    }

    #[test]
    fn a_missing_value_is_a_dash() {
        let view = CheckView::from(&CheckResult { value: None, interval: None, ..check() });
        assert_eq!(view.value, "–");
        assert!(view.scale.is_none());
    }

    #[test]
    fn not_finite_numbers_are_not_drawn() {
        assert!(CheckView::from(&CheckResult { interval: Some((f64::NAN, f64::INFINITY)), ..check() }).scale.is_none());
    }
}
