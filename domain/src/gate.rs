//! The shapes of gates: a policy is a list of checks, an evaluation gives each check a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    evidence::{BenchmarkEvidence, OnnxEvidence},
    state::{Direction, Verdict},
};

/// The checks that a promotion must pass, from the gate file at the commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatePolicy {
    pub checks: Vec<CheckSpec>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckSpec {
    /// The candidate run's latest value of a metric is within bounds.
    MetricThreshold { metric: String, min: Option<f64>, max: Option<f64> },
    /// The candidate is not worse than the champion by more than a margin, at 95 % one-sided confidence.
    NonInferiority {
        metric: String,
        test: NonInferiorityTest,
        /// `welch`: in units of the metric. `ratio_of_medians`: a fraction, 0.05 = 5 %.
        margin: f64,
    },
    /// A quantile of ONNX Runtime's latency at a batch size is at most a number of milliseconds.
    LatencyBudget { batch: u32, quantile: f64, max_ms: f64 },
    /// Every output at every parity batch satisfies |torch − onnx| ≤ atol + rtol·|torch|.
    OnnxParity { atol: f64, rtol: f64 },
}

impl CheckSpec {
    /// The value of its `kind` tag.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::MetricThreshold { .. } => "metric_threshold",
            Self::NonInferiority { .. } => "non_inferiority",
            Self::LatencyBudget { .. } => "latency_budget",
            Self::OnnxParity { .. } => "onnx_parity",
        }
    }
}

/// How candidate and champion are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonInferiorityTest {
    /// Difference of means over processes (seeds), Welch.
    Welch,
    /// Ratio of medians over processes, bootstrap interval.
    RatioOfMedians,
}

/// Everything that the checks of one gate may read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct GateEvidence {
    /// Latest metric values of the candidate's run. A value that is not finite is `None`.
    pub candidate_metrics: BTreeMap<String, Option<f64>>,
    /// Holder of the alias at evaluation.
    pub champion_version: Option<i32>,
    pub benchmark: Option<BenchmarkEvidence>,
    pub onnx: Option<OnnxEvidence>,
    /// Who approved this version for this alias.
    pub approved_by: Vec<String>,
    /// Seed of the bootstrap, recorded so that the evaluation can be repeated.
    pub bootstrap_seed: u64,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Readable name, e.g. `metric_threshold test_accuracy`.
    pub name: String,
    /// `metric_threshold`, `non_inferiority`, `latency_budget` or `onnx_parity`.
    pub kind: String,
    pub verdict: Verdict,
    /// The one number that was judged; `None` when it is missing or not finite.
    pub value: Option<f64>,
    pub limit: Option<f64>,
    /// `""`, `ms`, `ratio`.
    pub unit: String,
    /// One-sided 95 % bounds, for comparisons.
    pub interval: Option<(f64, f64)>,
    pub direction: Option<Direction>,
    /// One line: value, limit, uncertainty, and what is wrong.
    pub reason: String,
    /// Further numbers (p-values, medians, sample counts), by name.
    pub details: BTreeMap<String, serde_json::Value>,
}

/// What a whole gate found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateOutcome {
    pub verdict: Verdict,
    pub checks: Vec<CheckResult>,
    /// One line for terminals and tables: the first check that decided, with its numbers.
    pub reason: String,
}
