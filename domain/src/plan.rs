//! The plan of a pipeline: what `.sluice.yml` means once it is checked. Made by `sluice-ci`, stored with
//! the pipeline, sent to runners job by job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    gate::GatePolicy,
    state::{Direction, JobKind},
};

/// Everything that one commit asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In a topological order: a job comes after every job it needs.
    pub jobs: Vec<JobSpec>,
    pub promote: Option<PromoteSpec>,
    pub deploy: Option<DeploySpec>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Names of jobs whose success and outputs this one needs.
    pub needs: Vec<String>,
    /// Experiment that its tracking run belongs to; created when missing.
    pub experiment: String,
    /// Shell command that builds the environment. Its result is cached by content (see `Runner`).
    pub setup: Option<String>,
    pub env: BTreeMap<String, String>,
    pub work: Work,
    pub resources: Resources,
    /// `None`: no limit.
    pub timeout_secs: Option<u64>,
    /// Output name → file or folder, relative to the checkout. Missing after success: the job fails.
    pub outputs: BTreeMap<String, String>,
    /// Capabilities that a runner must have, e.g. `tensorrt`.
    pub requires: Vec<String>,
}

/// What a runner must set aside for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU cores, at least 1.
    pub cpus: u32,
}

/// The work itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A shell command (`bash -e -o pipefail -c`), in the checkout.
    Run {
        command: String,
    },
    /// `torchrun --standalone --nproc-per-node=PROCESSES SCRIPT ARGS…`.
    Torchrun {
        processes: u32,
        script: String,
        args: Vec<String>,
    },
    Benchmark(BenchmarkSpec),
    ExportOnnx(OnnxExportSpec),
    ExportTensorrt(TensorrtExportSpec),
}

impl Work {
    /// The job kind that this work makes.
    #[must_use]
    pub const fn kind(&self) -> JobKind {
        match self {
            Self::Run { .. } | Self::Torchrun { .. } => JobKind::Run,
            Self::Benchmark(_) => JobKind::Benchmark,
            Self::ExportOnnx(_) => JobKind::ExportOnnx,
            Self::ExportTensorrt(_) => JobKind::ExportTensorrt,
        }
    }
}

/// Candidate and champion measured by the same command, in fresh processes, in the order A B B A ….
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkSpec {
    /// Shell command. It reads the inputs of its side from `$SLUICE_INPUTS` and writes one JSON object
    /// (metric → number or array of numbers) to `$SLUICE_BENCH_RESULT`. `$SLUICE_SEED` counts from 0.
    pub command: String,
    /// Model and alias whose holder is the champion; `None`: measure only the candidate.
    pub against: Option<ModelAlias>,
    /// Processes per side, at least 1.
    pub repeats: u32,
    /// The metrics that must be in every result, and which way of each is better.
    pub metrics: BTreeMap<String, Direction>,
}

/// A registered model's alias.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAlias {
    pub model: String,
    pub alias: String,
}

/// Exports an MLflow PyTorch model folder to ONNX and compares the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnnxExportSpec {
    /// Job and output name of the MLflow model folder.
    pub from: JobOutput,
    pub opset: u32,
    /// Names of the axes that may vary. Only `batch` (axis 0 of every input) in this version.
    pub dynamic: Vec<String>,
    /// Batch sizes at which the outputs are compared.
    pub parity_batches: Vec<u32>,
    /// Batch sizes at which ONNX Runtime's latency is measured.
    pub latency_batches: Vec<u32>,
    /// Name of the job's output that holds the ONNX file (`model.onnx`).
    pub output: String,
}

/// Builds a TensorRT engine. Runs only where a runner has the capability `tensorrt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorrtExportSpec {
    /// Job and output name of the ONNX file.
    pub from: JobOutput,
    /// `fp32`, `fp16`, `bf16`, `int8` or `fp8`.
    pub precision: String,
}

/// One output of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    pub job: String,
    pub output: String,
}

/// Registers a model version from an output and asks for an alias.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromoteSpec {
    pub model: String,
    pub alias: String,
    /// Job and output of the model folder; the version's source and run come from it.
    pub from: JobOutput,
    /// Jobs that must have succeeded before the gate is evaluated: `from`, benchmarks and ONNX exports.
    pub needs: Vec<String>,
    /// Path of the gate file at the commit.
    pub gate_file: String,
    pub policy: GatePolicy,
}

/// Deploys the holder of an alias.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploySpec {
    pub alias: String,
    /// Environment, e.g. `production`.
    pub to: String,
}
