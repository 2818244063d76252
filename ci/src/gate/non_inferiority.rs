//! The candidate is not worse than the champion by more than a margin. A process is one replicate.

use serde_json::json;
use sluice_domain::{
    evidence::{BenchmarkEvidence, ProcessSample},
    gate::{CheckResult, GateEvidence, NonInferiorityTest},
    state::Verdict,
};
use sluice_stats::{
    bootstrap::RESAMPLES,
    describe::{hodges_lehmann_ratio, mean, median},
    mann_whitney::{Method, mann_whitney},
    non_inferiority::{Comparison, Decision, by_ratio_of_medians, by_welch},
};

use super::{aligned, blank, number};

pub(super) fn check(metric: &str, test: NonInferiorityTest, margin: f64, evidence: &GateEvidence) -> CheckResult {
    let mut result = blank("non_inferiority", metric);
    match judge(metric, test, margin, evidence, &mut result) {
        Ok((verdict, reason)) => (result.verdict, result.reason) = (verdict, reason),
        Err(problem) => result.reason = format!("{metric}: {problem}"),
    }
    result
}

fn judge(
    metric: &str,
    test: NonInferiorityTest,
    margin: f64,
    evidence: &GateEvidence,
    result: &mut CheckResult,
) -> Result<(Verdict, String), String> {
    let benchmark = evidence.benchmark.as_ref().ok_or("no benchmark was measured")?;
    let measured = benchmark.metrics.get(metric).ok_or("the benchmark did not report it")?;
    result.direction = Some(measured.direction);
    check_same_champion(benchmark, evidence)?;
    let candidate = replicates("candidate", &measured.candidate, test)?;
    result.details.insert("candidate".to_owned(), json!(candidate));
    if evidence.champion_version.is_none() {
        return Ok((Verdict::NoBaseline, format!("{metric}: no champion to compare with")));
    }
    let champion = replicates("champion", &measured.champion, test)?;
    result.details.insert("champion".to_owned(), json!(champion));
    result.details.insert("environment".to_owned(), json!(benchmark.environment));

    let comparison = match test {
        NonInferiorityTest::Welch => {
            let (comparison, welch) = by_welch(&candidate, &champion, measured.direction, margin).map_err(named)?;
            let means = (mean(&candidate).map_err(named)?, mean(&champion).map_err(named)?);
            for (name, value) in [
                ("candidate_mean", json!(means.0)),
                ("champion_mean", json!(means.1)),
                ("standard_error", json!(welch.se)),
                ("degrees_of_freedom", json!(welch.df)),
                ("p_value", json!(welch.p_two_sided)),
                ("degenerate", json!(welch.degenerate)),
            ] {
                result.details.insert(name.to_owned(), value);
            }
            comparison
        }
        NonInferiorityTest::RatioOfMedians => {
            let (comparison, _) =
                by_ratio_of_medians(&candidate, &champion, measured.direction, margin, evidence.bootstrap_seed).map_err(named)?;
            let ranks = mann_whitney(&candidate, &champion, Method::Auto).map_err(named)?;
            for (name, value) in [
                ("candidate_median", json!(median(&candidate).map_err(named)?)),
                ("champion_median", json!(median(&champion).map_err(named)?)),
                ("hodges_lehmann_ratio", json!(hodges_lehmann_ratio(&candidate, &champion).map_err(named)?)),
                ("mann_whitney_u", json!(ranks.u)),
                ("p_value", json!(ranks.p_two_sided)),
                ("bootstrap_resamples", json!(RESAMPLES)),
                ("bootstrap_seed", json!(evidence.bootstrap_seed)),
            ] {
                result.details.insert(name.to_owned(), value);
            }
            result.unit = "ratio".to_owned();
            comparison
        }
    };
    result.value = Some(comparison.estimate);
    result.limit = Some(comparison.limit);
    result.interval = Some((comparison.lower, comparison.upper));
    let verdict = match comparison.decision {
        Decision::Pass => Verdict::Pass,
        Decision::Fail => Verdict::Fail,
        Decision::Inconclusive => Verdict::Inconclusive,
    };
    Ok((verdict, sentence(metric, test, &comparison, candidate.len().min(champion.len()))))
}

fn named(error: sluice_stats::Error) -> String {
    error.to_string().replace("the first sample", "the candidate").replace("the second sample", "the champion")
}

/// The samples are of the version that holds the alias now; otherwise they say nothing about it.
fn check_same_champion(benchmark: &BenchmarkEvidence, evidence: &GateEvidence) -> Result<(), String> {
    let show = |version: Option<i32>| version.map_or("no champion".to_owned(), |v| format!("version {v}"));
    if benchmark.champion_version == evidence.champion_version {
        return Ok(());
    }
    Err(format!(
        "champion changed: the benchmark measured {}, now it is {}; run the pipeline again",
        show(benchmark.champion_version),
        show(evidence.champion_version)
    ))
}

/// One number per process: the mean of its values for means, their median for medians.
fn replicates(side: &str, processes: &[ProcessSample], test: NonInferiorityTest) -> Result<Vec<f64>, String> {
    if processes.len() < 2 {
        return Err(format!("the {side} has {} processes; at least 2 are needed", processes.len()));
    }
    processes
        .iter()
        .map(|process| {
            let values: Option<Vec<f64>> = process.values.iter().map(|v| v.filter(|v| v.is_finite())).collect();
            let values =
                values.ok_or_else(|| format!("the {side}'s process {} reported a value that is not a finite number", process.order))?;
            let one = match test {
                NonInferiorityTest::Welch => mean(&values),
                NonInferiorityTest::RatioOfMedians => median(&values),
            };
            one.map_err(|_| format!("the {side}'s process {} reported no value", process.order))
        })
        .collect()
}

fn sentence(metric: &str, test: NonInferiorityTest, comparison: &Comparison, processes: usize) -> String {
    let what = match test {
        NonInferiorityTest::Welch => "candidate − champion",
        NonInferiorityTest::RatioOfMedians => "candidate / champion",
    };
    let bounds = format!("one-sided 95 % bounds {} … {}", aligned(comparison.lower), aligned(comparison.upper));
    let more = match comparison.decision {
        Decision::Inconclusive => format!("; {processes} repeats cannot tell"),
        _ => String::new(),
    };
    let limit = match test {
        NonInferiorityTest::Welch => format!("margin {}", aligned(comparison.limit)),
        NonInferiorityTest::RatioOfMedians => format!("limit {}", number(comparison.limit)),
    };
    format!("{metric}: {what} = {} ({bounds}), {limit}{more}", aligned(comparison.estimate))
}
