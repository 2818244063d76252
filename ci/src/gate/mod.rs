//! Evidence → verdict. One module per check; a check never passes on absence.

mod latency_budget;
mod metric_threshold;
mod non_inferiority;
mod onnx_parity;
#[cfg(test)]
mod tests;

use serde_json::json;
use sluice_domain::{
    gate::{CheckResult, CheckSpec, GateEvidence, GateOutcome, GatePolicy},
    state::Verdict,
};
use sluice_stats::multiplicity::holm;

/// Judges evidence by a policy. The same arguments give the same answer.
///
/// The gate's verdict is the worst of its checks: fail, error, inconclusive, no baseline, pass. Without a champion
/// it is at best `no_baseline`, until somebody has approved.
#[must_use]
pub fn evaluate(policy: &GatePolicy, evidence: &GateEvidence) -> GateOutcome {
    let mut checks: Vec<CheckResult> = policy.checks.iter().map(|spec| check(spec, evidence)).collect();
    adjust_for_many(&mut checks);
    let (verdict, reason) = conclude(&checks, evidence);
    GateOutcome { verdict, checks, reason }
}

fn check(spec: &CheckSpec, evidence: &GateEvidence) -> CheckResult {
    match spec {
        CheckSpec::MetricThreshold { metric, min, max } => metric_threshold::check(metric, *min, *max, evidence),
        CheckSpec::NonInferiority { metric, test, margin } => non_inferiority::check(metric, *test, *margin, evidence),
        CheckSpec::LatencyBudget { batch, quantile, max_ms } => latency_budget::check(*batch, *quantile, *max_ms, evidence),
        CheckSpec::OnnxParity { atol, rtol } => onnx_parity::check(*atol, *rtol, evidence),
    }
}

/// A check that says nothing yet. Verdict `error` until something better is found out.
fn blank(kind: &str, subject: &str) -> CheckResult {
    CheckResult {
        name: if subject.is_empty() { kind.to_owned() } else { format!("{kind} {subject}") },
        kind: kind.to_owned(),
        verdict: Verdict::Error,
        value: None,
        limit: None,
        unit: String::new(),
        interval: None,
        direction: None,
        reason: String::new(),
        details: std::collections::BTreeMap::new(),
    }
}

/// p-values of the comparisons in one gate, adjusted so that they may be read together.
fn adjust_for_many(checks: &mut [CheckResult]) {
    let found: Vec<(usize, f64)> =
        checks.iter().enumerate().filter_map(|(i, check)| Some((i, check.details.get("p_value")?.as_f64()?))).collect();
    let p: Vec<f64> = found.iter().map(|(_, p)| *p).collect();
    for ((i, _), adjusted) in found.iter().zip(holm(&p)) {
        checks[*i].details.insert("p_value_holm".to_owned(), json!(adjusted));
    }
}

fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fail => 4,
        Verdict::Error => 3,
        Verdict::Inconclusive => 2,
        Verdict::NoBaseline => 1,
        Verdict::Pass => 0,
    }
}

fn conclude(checks: &[CheckResult], evidence: &GateEvidence) -> (Verdict, String) {
    let Some(worst) = checks.iter().map(|check| rank(check.verdict)).max() else {
        return (Verdict::Error, "the policy has no checks".to_owned());
    };
    let deciding: Vec<&CheckResult> = checks.iter().filter(|check| rank(check.verdict) == worst).collect();
    let first = deciding[0];
    if worst > rank(Verdict::NoBaseline) {
        let more = match deciding.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        return (first.verdict, format!("{}{more}", first.reason));
    }
    let passed = checks.iter().filter(|check| check.verdict == Verdict::Pass).count();
    let passes = format!("{passed} of {} checks pass", checks.len());
    if evidence.champion_version.is_some() {
        return (first.verdict, passes);
    }
    if evidence.approved_by.is_empty() {
        return (Verdict::NoBaseline, format!("no champion to compare with: the first one needs an approval ({passes})"));
    }
    (Verdict::Pass, format!("no champion to compare with, approved by {} ({passes})", evidence.approved_by.join(", ")))
}

/// A number for people: enough digits to see the difference, no more.
fn number(x: f64) -> String {
    let size = x.abs();
    let text = if x == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e6).contains(&size) {
        let decimals = if size >= 1000.0 {
            1
        } else if size >= 100.0 {
            2
        } else {
            4
        };
        let fixed = format!("{x:.decimals$}");
        fixed.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        let exact = format!("{x:.2e}");
        exact.replace(".00e", "e").replace("0e", "e")
    };
    minus_sign(&text)
}

/// [`number`] without cutting zeros, for values that are read side by side.
fn aligned(x: f64) -> String {
    if x != 0.0 && !(1e-3..1e6).contains(&x.abs()) { number(x) } else { minus_sign(&format!("{x:.4}")) }
}

/// A typographic minus in front; exponents keep theirs so that they can be copied.
fn minus_sign(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.to_owned(), |rest| format!("−{rest}"))
}
