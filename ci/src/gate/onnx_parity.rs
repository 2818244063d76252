//! Every output at every parity batch satisfies |torch − onnx| ≤ atol + rtol·|torch|.

use serde_json::json;
use sluice_domain::{
    evidence::{OnnxEvidence, ParityCase},
    gate::{CheckResult, GateEvidence},
    state::{Direction, Verdict},
};

use super::{blank, number};

/// What is known about max(|a − b| − rtol·|b|) of one case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Excess {
    /// Measured, or a bound that suffices to decide.
    Known(f64),
    /// Between these: the tolerance asked for was not measured and its neighbours do not decide.
    Between(f64, f64),
}

pub(super) fn check(atol: f64, rtol: f64, evidence: &GateEvidence) -> CheckResult {
    let mut result = blank("onnx_parity", "");
    result.limit = Some(atol);
    result.direction = Some(Direction::Lower);
    let Some(onnx) = &evidence.onnx else {
        result.reason = "no ONNX export was compared".to_owned();
        return result;
    };
    result.details.insert("sha256".to_owned(), json!(onnx.sha256));
    result.details.insert("rtol".to_owned(), json!(rtol));
    let batches = batches(onnx);
    result.details.insert("batches".to_owned(), json!(batches));
    if onnx.parity.is_empty() {
        result.reason = "the export was compared at no batch size".to_owned();
        return result;
    }
    if let Some(case) = onnx.parity.iter().find(|case| case.error.is_some()) {
        result.verdict = Verdict::Fail;
        result.reason = format!("batch {}: {}", case.batch, one_line(case.error.as_deref().unwrap_or_default()));
        return result;
    }
    if let Some((batch, output)) = uncovered(onnx, &batches) {
        result.reason = format!("batch {batch}: output {output} was not compared");
        return result;
    }
    let mut worst: Option<(f64, &ParityCase)> = None;
    for case in &onnx.parity {
        let Some(difference) = case.max_abs_diff.filter(|d| d.is_finite()) else {
            result.reason = format!("batch {}: output {}: the difference is not a finite number", case.batch, case.output);
            return result;
        };
        match excess(case, difference, atol, rtol) {
            Excess::Known(found) => {
                if worst.is_none_or(|(so_far, _)| found > so_far) {
                    worst = Some((found, case));
                }
            }
            Excess::Between(low, high) => {
                result.reason = format!(
                    "batch {}: output {}: rtol {} was not measured and lies between {} and {} of the limit {}",
                    case.batch,
                    case.output,
                    number(rtol),
                    number(low),
                    number(high),
                    number(atol)
                );
                return result;
            }
        }
    }
    let Some((found, case)) = worst else { return result };
    result.value = Some(found);
    result.details.insert("max_abs_diff".to_owned(), json!(case.max_abs_diff));
    result.details.insert("batch".to_owned(), json!(case.batch));
    result.details.insert("output".to_owned(), json!(case.output));
    let place = format!("batch {}: output {}", case.batch, case.output);
    let what = format!("|torch − onnx| exceeds {}·|torch| by", number(rtol));
    if found > atol {
        result.verdict = Verdict::Fail;
        result.reason = format!("{place}: {what} {}, above the limit {}", number(found), number(atol));
    } else {
        result.verdict = Verdict::Pass;
        result.reason = format!(
            "largest |torch − onnx| − {}·|torch| at {} batch sizes is {}, within the limit {}",
            number(rtol),
            batches.len(),
            number(found),
            number(atol)
        );
    }
    result
}

fn one_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("could not be run").trim();
    line.chars().take(300).collect()
}

fn batches(onnx: &OnnxEvidence) -> Vec<u32> {
    let mut batches: Vec<u32> = onnx.parity.iter().map(|case| case.batch).collect();
    batches.sort_unstable();
    batches.dedup();
    batches
}

/// A batch at which an output of the model was left out.
fn uncovered<'a>(onnx: &'a OnnxEvidence, batches: &[u32]) -> Option<(u32, &'a str)> {
    let compared = |batch: u32, output: &str| onnx.parity.iter().any(|case| case.batch == batch && case.output == output);
    onnx.outputs.iter().find_map(|output| {
        let batch = batches.iter().find(|batch| !compared(**batch, &output.name))?;
        Some((*batch, output.name.as_str()))
    })
}

/// The excess at `rtol`. As a maximum of linear functions that fall with rtol it is convex and falling: chords between
/// measured points bound it from above, the next measured point to the right from below.
fn excess(case: &ParityCase, max_abs_diff: f64, atol: f64, rtol: f64) -> Excess {
    let mut measured: Vec<(f64, f64)> = case.excess.iter().copied().filter(|(at, found)| at.is_finite() && found.is_finite()).collect();
    measured.push((0.0, max_abs_diff));
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, found)) = measured.iter().find(|(at, _)| (at - rtol).abs() <= 1e-12 * rtol.max(1e-300)) {
        return Excess::Known(*found);
    }
    let left = measured.iter().rev().find(|(at, _)| *at <= rtol).copied();
    let right = measured.iter().find(|(at, _)| *at > rtol).copied();
    let (high, low) = match (left, right) {
        (Some((l, at_l)), Some((r, at_r))) => (at_l + (at_r - at_l) * (rtol - l) / (r - l), at_r),
        (Some((_, at_l)), None) => (at_l, f64::NEG_INFINITY),
        _ => return Excess::Between(f64::NEG_INFINITY, f64::INFINITY),
    };
    if high <= atol {
        Excess::Known(high)
    } else if low > atol {
        Excess::Known(low)
    } else {
        Excess::Between(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(max_abs_diff: f64, excess: &[(f64, f64)]) -> ParityCase {
        ParityCase {
            batch: 1,
            output: "y".to_owned(),
            max_abs_diff: Some(max_abs_diff),
            max_rel_diff: None,
            excess: excess.to_vec(),
            error: None,
        }
    }

    #[test]
    fn tolerances_that_were_not_measured_are_bounded() {
        let c = case(10.0, &[(0.1, 4.0), (0.2, 2.0)]);
        assert_eq!(excess(&c, 10.0, 1.0, 0.1), Excess::Known(4.0));
        assert_eq!(excess(&c, 10.0, 7.5, 0.05), Excess::Known(7.0));
        assert_eq!(excess(&c, 10.0, 1.0, 0.15), Excess::Known(2.0));
        assert_eq!(excess(&c, 10.0, 2.5, 0.15), Excess::Between(2.0, 3.0));
        assert_eq!(excess(&c, 10.0, 3.0, 0.5), Excess::Known(2.0));
        assert!(matches!(excess(&c, 10.0, 1.0, 0.5), Excess::Between(_, 2.0)));
    }
}
