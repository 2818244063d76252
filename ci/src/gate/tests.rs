use std::collections::BTreeMap;

use sluice_domain::{
    evidence::{BenchmarkEvidence, BenchmarkMetric, LatencyCase, OnnxEvidence, ParityCase, ProcessSample, TensorInfo},
    gate::NonInferiorityTest,
    state::Direction,
};

use super::*;

fn processes(values: &[f64]) -> Vec<ProcessSample> {
    let sample = |(i, v): (usize, &f64)| ProcessSample { order: i as u32, seed: i as u32, values: vec![Some(*v)] };
    values.iter().enumerate().map(sample).collect()
}

fn benchmark(candidate: &[f64], champion: &[f64], champion_version: Option<i32>) -> BenchmarkEvidence {
    let metric = BenchmarkMetric { direction: Direction::Higher, candidate: processes(candidate), champion: processes(champion) };
    let latency =
        BenchmarkMetric { direction: Direction::Lower, candidate: processes(&[2.6, 2.7, 2.5]), champion: processes(&[2.0, 2.1, 1.9]) };
    BenchmarkEvidence {
        metrics: BTreeMap::from([("accuracy".to_owned(), metric), ("latency_ms".to_owned(), latency)]),
        champion_version,
        environment: BTreeMap::new(),
    }
}

fn onnx() -> OnnxEvidence {
    let case = |batch| ParityCase {
        batch,
        output: "logits".to_owned(),
        max_abs_diff: Some(4e-6),
        max_rel_diff: Some(1e-5),
        excess: vec![(1e-3, 2e-6), (1e-2, -1e-6)],
        error: None,
    };
    let tensor =
        |name: &str| TensorInfo { name: name.to_owned(), dtype: "float32".to_owned(), shape: vec!["batch".to_owned(), "10".to_owned()] };
    OnnxEvidence {
        sha256: "ab".repeat(32),
        bytes: 1,
        opset: 20,
        uri: String::new(),
        inputs: vec![tensor("x")],
        outputs: vec![tensor("logits")],
        parity: [1, 3, 8, 17].map(case).to_vec(),
        latency: vec![LatencyCase { batch: 1, samples_ms: (1..=100).map(|i| f64::from(i) / 10.0).collect() }],
        runtime: "1.23".to_owned(),
        provider: "CPUExecutionProvider".to_owned(),
    }
}

const BETTER: &[f64] = &[0.97, 0.98, 0.97, 0.975, 0.98];
const WORSE: &[f64] = &[0.945, 0.95, 0.94, 0.945, 0.95];

fn evidence(candidate: &[f64]) -> GateEvidence {
    GateEvidence {
        candidate_metrics: BTreeMap::from([("acc".to_owned(), Some(0.9312)), ("nan".to_owned(), None)]),
        champion_version: Some(3),
        benchmark: Some(benchmark(candidate, BETTER, Some(3))),
        onnx: Some(onnx()),
        approved_by: Vec::new(),
        bootstrap_seed: 1,
    }
}

fn threshold(metric: &str, min: Option<f64>, max: Option<f64>) -> CheckSpec {
    CheckSpec::MetricThreshold { metric: metric.to_owned(), min, max }
}

fn welch() -> CheckSpec {
    CheckSpec::NonInferiority { metric: "accuracy".to_owned(), test: NonInferiorityTest::Welch, margin: 0.01 }
}

fn parity() -> CheckSpec {
    CheckSpec::OnnxParity { atol: 1e-4, rtol: 1e-3 }
}

fn budget(quantile: f64, max_ms: f64) -> CheckSpec {
    CheckSpec::LatencyBudget { batch: 1, quantile, max_ms }
}

fn judge(checks: Vec<CheckSpec>, evidence: &GateEvidence) -> GateOutcome {
    evaluate(&GatePolicy { checks }, evidence)
}

fn one(check: CheckSpec, evidence: &GateEvidence) -> (Verdict, String) {
    let outcome = judge(vec![check], evidence);
    assert_eq!(outcome.verdict, outcome.checks[0].verdict);
    assert!(!outcome.reason.is_empty() && !outcome.reason.contains('\n'));
    (outcome.verdict, outcome.checks[0].reason.clone())
}

#[test]
fn thresholds() {
    let e = evidence(BETTER);
    assert_eq!(one(threshold("acc", Some(0.95), None), &e), (Verdict::Fail, "acc 0.9312 is below the limit 0.95".to_owned()));
    assert_eq!(one(threshold("acc", None, Some(0.9)), &e), (Verdict::Fail, "acc 0.9312 is above the limit 0.9".to_owned()));
    assert_eq!(one(threshold("acc", Some(0.9), Some(0.95)), &e).0, Verdict::Pass);
    assert_eq!(one(threshold("acc", Some(0.9312), None), &e).0, Verdict::Pass);
    assert_eq!(one(threshold("acc", Some(0.931_200_01), None), &e).1, "acc 0.9312 is below the limit 0.93120001");
    assert_eq!(one(threshold("nan", Some(0.9), None), &e), (Verdict::Error, "nan is not a finite number".to_owned()));
    assert_eq!(one(threshold("nope", Some(0.9), None), &e).0, Verdict::Error);
    let mut infinite = e;
    infinite.candidate_metrics.insert("inf".to_owned(), Some(f64::INFINITY));
    assert_eq!(one(threshold("inf", Some(0.9), None), &infinite).0, Verdict::Error);
}

#[test]
fn worse_candidates_fail_and_say_by_how_much() {
    let (verdict, reason) = one(welch(), &evidence(WORSE));
    assert_eq!(verdict, Verdict::Fail);
    assert_eq!(reason, "accuracy: candidate − champion = −0.0290 (one-sided 95 % bounds −0.0344 … −0.0236), margin −0.0100");
    let outcome = judge(vec![welch()], &evidence(BETTER));
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Pass, "1 of 1 checks pass"));
    assert_eq!(outcome.checks[0].limit, Some(-0.01));
    assert!(outcome.checks[0].details["p_value_holm"].is_number());
    assert_eq!(one(welch(), &evidence(&[0.94, 0.99, 0.90])).0, Verdict::Inconclusive);
}

#[test]
fn slower_candidates_fail() {
    let check = |margin| CheckSpec::NonInferiority { metric: "latency_ms".to_owned(), test: NonInferiorityTest::RatioOfMedians, margin };
    let (verdict, reason) = one(check(0.05), &evidence(BETTER));
    assert_eq!(verdict, Verdict::Fail);
    assert!(
        reason.starts_with("latency_ms: candidate / champion = 1.3000 (one-sided 95 % bounds 1.1905 … 1.4211), limit 1.05"),
        "{reason}"
    );
    assert_eq!(one(check(0.5), &evidence(BETTER)).0, Verdict::Pass);
    assert!(one(check(0.3), &evidence(BETTER)).1.ends_with("limit 1.3; 3 repeats cannot tell"));
}

#[test]
fn absence_never_passes() {
    let mut e = evidence(BETTER);
    e.benchmark = None;
    assert_eq!(one(welch(), &e).0, Verdict::Error);
    e.onnx = None;
    assert_eq!((one(parity(), &e).0, one(budget(0.5, 100.0), &e).0), (Verdict::Error, Verdict::Error));
    assert_eq!(judge(Vec::new(), &e).verdict, Verdict::Error);

    let mut e = evidence(BETTER);
    e.benchmark.as_mut().unwrap().metrics.get_mut("accuracy").unwrap().candidate[2].values[0] = None;
    let (verdict, reason) = one(welch(), &e);
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Error, "accuracy: the candidate's process 2 reported a value that is not a finite number")
    );
    e.benchmark.as_mut().unwrap().metrics.get_mut("accuracy").unwrap().candidate[2].values.clear();
    assert!(one(welch(), &e).1.contains("reported no value"));
    assert_eq!(one(welch(), &evidence(&[0.99])).1, "accuracy: the candidate has 1 processes; at least 2 are needed");

    let mut e = evidence(BETTER);
    e.benchmark.as_mut().unwrap().metrics.remove("accuracy");
    assert_eq!(one(welch(), &e).0, Verdict::Error);
}

#[test]
fn a_first_champion_needs_an_approval() {
    let mut e = evidence(BETTER);
    e.champion_version = None;
    e.benchmark = Some(benchmark(BETTER, &[], None));
    let outcome = judge(vec![threshold("acc", Some(0.9), None), welch()], &e);
    assert_eq!((outcome.verdict, outcome.checks[1].verdict), (Verdict::NoBaseline, Verdict::NoBaseline));
    assert!(outcome.reason.contains("needs an approval"), "{}", outcome.reason);
    assert_eq!(judge(vec![threshold("acc", Some(0.9), None)], &e).verdict, Verdict::NoBaseline);

    e.approved_by = vec!["ann".to_owned(), "bob".to_owned()];
    let outcome = judge(vec![threshold("acc", Some(0.9), None), welch()], &e);
    assert_eq!((outcome.verdict, outcome.checks[1].verdict), (Verdict::Pass, Verdict::NoBaseline));
    assert!(outcome.reason.contains("approved by ann, bob"), "{}", outcome.reason);

    // An approval stands in for the missing champion, for nothing else.
    assert_eq!(judge(vec![threshold("acc", Some(0.95), None), welch()], &e).verdict, Verdict::Fail);
    assert_eq!(judge(vec![threshold("nan", Some(0.95), None), welch()], &e).verdict, Verdict::Error);
    e.benchmark.as_mut().unwrap().metrics.get_mut("accuracy").unwrap().candidate[0].values[0] = None;
    assert_eq!(judge(vec![welch()], &e).verdict, Verdict::Error);

    // With a champion an approval changes nothing.
    let mut e = evidence(WORSE);
    e.approved_by = vec!["ann".to_owned()];
    assert_eq!(judge(vec![welch()], &e).verdict, Verdict::Fail);
}

#[test]
fn a_champion_that_changed_meanwhile_is_an_error() {
    for (measured, now) in [(Some(2), Some(3)), (None, Some(3)), (Some(3), None)] {
        let mut e = evidence(BETTER);
        e.champion_version = now;
        e.benchmark.as_mut().unwrap().champion_version = measured;
        let (verdict, reason) = one(welch(), &e);
        assert!(verdict == Verdict::Error && reason.contains("champion changed"), "{reason}");
    }
}

#[test]
fn the_worst_check_decides() {
    let e = evidence(WORSE);
    let outcome = judge(vec![threshold("nan", Some(0.9), None), parity(), welch(), threshold("acc", Some(0.95), None)], &e);
    assert_eq!(outcome.verdict, Verdict::Fail);
    assert!(outcome.reason.starts_with("accuracy: candidate − champion") && outcome.reason.ends_with("(and 1 more)"), "{}", outcome.reason);
    let outcome = judge(vec![threshold("nan", Some(0.9), None), parity()], &e);
    assert_eq!(outcome.verdict, Verdict::Error);
}

#[test]
fn latency() {
    let e = evidence(BETTER);
    let (verdict, reason) = one(budget(0.9, 9.0), &e);
    assert_eq!((verdict, reason.as_str()), (Verdict::Fail, "p90 latency at batch 1 is 9.01 ms, above the limit 9 ms"));
    assert_eq!(one(budget(0.9, 9.1), &e).0, Verdict::Pass);
    let (verdict, reason) = one(budget(0.99, 100.0), &e);
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Error, "p99 latency at batch 1: 100 samples were taken; at least 1000 are needed for this quantile")
    );
    assert_eq!(one(CheckSpec::LatencyBudget { batch: 2, quantile: 0.5, max_ms: 100.0 }, &e).0, Verdict::Error);
    let mut broken = evidence(BETTER);
    broken.onnx.as_mut().unwrap().latency[0].samples_ms[5] = f64::NAN;
    assert_eq!(one(budget(0.5, 100.0), &broken).0, Verdict::Error);
}

#[test]
fn onnx_parity_names_the_batch() {
    let mut e = evidence(BETTER);
    assert_eq!(one(parity(), &e).0, Verdict::Pass);
    e.onnx.as_mut().unwrap().parity[2].excess = vec![(1e-3, 0.25)];
    let (verdict, reason) = one(parity(), &e);
    assert_eq!(
        (verdict, reason.as_str()),
        (Verdict::Fail, "batch 8: output logits: |torch − onnx| exceeds 0.001·|torch| by 0.25, above the limit 1e-4")
    );

    let mut e = evidence(BETTER);
    e.onnx.as_mut().unwrap().parity[1].error = Some("Got invalid dimensions for input: x\n index: 0 Got: 3 Expected: 1".to_owned());
    assert_eq!(one(parity(), &e), (Verdict::Fail, "batch 3: Got invalid dimensions for input: x".to_owned()));

    let mut e = evidence(BETTER);
    e.onnx.as_mut().unwrap().parity[3].max_abs_diff = None;
    assert_eq!(one(parity(), &e), (Verdict::Error, "batch 17: output logits: the difference is not a finite number".to_owned()));

    let mut e = evidence(BETTER);
    e.onnx.as_mut().unwrap().parity[3].output = "other".to_owned();
    assert_eq!(one(parity(), &e), (Verdict::Error, "batch 17: output logits was not compared".to_owned()));
    e.onnx.as_mut().unwrap().parity.clear();
    assert_eq!(one(parity(), &e).0, Verdict::Error);
}

#[test]
fn numbers_for_people() {
    for (x, wanted) in [
        (0.9312, "0.9312"),
        (-0.01, "−0.01"),
        (1234.56, "1234.6"),
        (1e-5, "1e-5"),
        (-1.25e-5, "−1.25e-5"),
        (1.2e-5, "1.2e-5"),
        (0.0, "0"),
        (5.0, "5"),
        (2e7, "2e7"),
    ] {
        assert_eq!(number(x), wanted);
    }
}
