//! What benchmark and export jobs measured: the raw numbers that gate checks judge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::Direction;

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    Benchmark(BenchmarkEvidence),
    Onnx(OnnxEvidence),
}

impl Evidence {
    /// The value of its `kind` tag.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Benchmark(_) => "benchmark",
            Self::Onnx(_) => "onnx",
        }
    }
}

/// Candidate and champion, interleaved in fresh processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkEvidence {
    /// Metric → what was measured.
    pub metrics: BTreeMap<String, BenchmarkMetric>,
    /// Version that was measured as the champion; `None`: there was no holder of the alias.
    pub champion_version: Option<i32>,
    /// Host, CPU model, core count and the like, as the runner saw them.
    pub environment: BTreeMap<String, String>,
}

/// One metric of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkMetric {
    pub direction: Direction,
    pub candidate: Vec<ProcessSample>,
    /// Empty without a champion.
    pub champion: Vec<ProcessSample>,
}

/// What one fresh process reported for a metric: the unit of replication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Position in the interleaved schedule, from 0.
    pub order: u32,
    pub seed: u32,
    /// One value, or the iterations inside the process (never counted as replicates). JSON has no
    /// NaN: a value that is not finite is sent as null and makes checks that read it fail with `error`.
    pub values: Vec<Option<f64>>,
}

/// An ONNX file, compared with the model it came from and timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnnxEvidence {
    /// SHA-256 of the file, lowercase hex.
    pub sha256: String,
    pub bytes: u64,
    pub opset: u32,
    /// `mlflow-artifacts:/…` of the file. Filled in by the server from the job's outputs.
    #[serde(default)]
    pub uri: String,
    pub inputs: Vec<TensorInfo>,
    pub outputs: Vec<TensorInfo>,
    pub parity: Vec<ParityCase>,
    pub latency: Vec<LatencyCase>,
    /// ONNX Runtime's version and the provider that really ran (first of the session).
    pub runtime: String,
    pub provider: String,
}

/// Name, element type and shape of a tensor. A dynamic axis is its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<String>,
}

/// PyTorch against ONNX Runtime on the same random input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParityCase {
    pub batch: u32,
    pub output: String,
    /// Largest |a − b|. `None` when not finite or when the batch could not run.
    pub max_abs_diff: Option<f64>,
    /// Largest |a − b| / |b| over elements with b ≠ 0.
    pub max_rel_diff: Option<f64>,
    /// Largest |a − b| − rtol·|b| for each rtol that a policy may ask for, as (rtol, excess).
    /// The check passes when excess ≤ atol.
    pub excess: Vec<(f64, f64)>,
    /// Why the batch could not run, e.g. a frozen batch axis.
    pub error: Option<String>,
}

/// Latency of one `session.run`, one thread count, after warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyCase {
    pub batch: u32,
    /// Raw samples in milliseconds, in order.
    pub samples_ms: Vec<f64>,
}
