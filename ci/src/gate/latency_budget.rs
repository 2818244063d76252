//! A quantile of ONNX Runtime's latency at a batch size is within a budget.

use serde_json::json;
use sluice_domain::{
    gate::{CheckResult, GateEvidence},
    state::{Direction, Verdict},
};
use sluice_stats::describe::{quantile as quantile_of, samples_for_quantile};

use super::{blank, number};

pub(super) fn check(batch: u32, quantile: f64, max_ms: f64, evidence: &GateEvidence) -> CheckResult {
    let label = format!("p{}", (quantile * 1000.0).round() / 10.0);
    let mut result = blank("latency_budget", &format!("{label} at batch {batch}"));
    result.limit = Some(max_ms);
    result.unit = "ms".to_owned();
    result.direction = Some(Direction::Lower);
    match measure(batch, quantile, evidence, &mut result) {
        Ok(value) => {
            result.value = Some(value);
            let fits = value <= max_ms;
            result.verdict = if fits { Verdict::Pass } else { Verdict::Fail };
            let word = if fits { "within" } else { "above" };
            result.reason = format!("{label} latency at batch {batch} is {} ms, {word} the limit {} ms", number(value), number(max_ms));
        }
        Err(problem) => result.reason = format!("{label} latency at batch {batch}: {problem}"),
    }
    result
}

fn measure(batch: u32, quantile: f64, evidence: &GateEvidence, result: &mut CheckResult) -> Result<f64, String> {
    let onnx = evidence.onnx.as_ref().ok_or("no ONNX export was measured")?;
    let case = onnx.latency.iter().find(|case| case.batch == batch).ok_or("this batch size was not measured")?;
    result.details.insert("samples".to_owned(), json!(case.samples_ms.len()));
    result.details.insert("runtime".to_owned(), json!(onnx.runtime));
    result.details.insert("provider".to_owned(), json!(onnx.provider));
    result.details.insert("sha256".to_owned(), json!(onnx.sha256));
    if case.samples_ms.iter().any(|ms| !ms.is_finite() || *ms < 0.0) {
        return Err("a sample is not a time".to_owned());
    }
    let needed = samples_for_quantile(quantile);
    if case.samples_ms.len() < needed {
        return Err(format!("{} samples were taken; at least {needed} are needed for this quantile", case.samples_ms.len()));
    }
    quantile_of(&case.samples_ms, quantile).map_err(|error| error.to_string())
}
