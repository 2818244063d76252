//! The runner protocol: JSON over HTTP. Every write of an attempt carries the attempt's token, and a
//! stale one answers 409 `stale_attempt`. `docs/API.md` lists the routes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    evidence::Evidence,
    id::RunId,
    plan::JobSpec,
    state::{AttemptStatus, Cause},
};

/// Body of `POST /api/v1/runners`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterRunner {
    /// Registering a known name again gives it a new token and ends the leases of the old one.
    pub name: String,
    pub capabilities: Vec<String>,
    pub cpus: u32,
    pub version: String,
}

/// Answer to [`RegisterRunner`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredRunner {
    pub runner_id: String,
    /// Secret; sent as `Authorization: Bearer …` with claims.
    pub token: String,
}

/// Body of `POST /api/v1/runner/claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// How long the server may hold the request open when there is no work, at most 30.
    pub wait_secs: u32,
    /// CPU cores that the runner has free.
    pub free_cpus: u32,
}

/// Answer to [`Claim`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    pub assignment: Option<Assignment>,
}

/// A leased job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub job_id: i64,
    /// The fencing token's number, from 1.
    pub attempt: i32,
    /// Secret of this attempt: bearer token of every further call, and `MLFLOW_TRACKING_TOKEN` of the job.
    pub token: String,
    /// Renew at a third of this.
    pub lease_secs: u32,
    pub pipeline_id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    /// Path of the git remote on the server, e.g. `/git/digits.git`.
    pub git_path: String,
    pub job: JobSpec,
    pub run_id: RunId,
    pub inputs: Vec<InputFile>,
    /// For a benchmark against an alias that has a holder.
    pub champion: Option<ChampionInputs>,
}

/// A file from an output of a needed job, to be laid at `JOB/OUTPUT/PATH` in the inputs folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    pub job: String,
    pub output: String,
    pub path: String,
    /// `mlflow-artifacts:/…`
    pub uri: String,
    pub sha256: String,
    pub bytes: i64,
}

/// The same inputs, as the champion's pipeline made them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChampionInputs {
    pub model: String,
    pub version: i32,
    pub inputs: Vec<InputFile>,
}

/// Body of `POST …/renew`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// Steps so far, the running one last.
    pub steps: Vec<StepReport>,
}

/// Answer to [`Renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    pub lease_secs: u32,
    /// The job must stop: SIGTERM, grace, SIGKILL.
    pub cancel: bool,
}

/// One step of an attempt: `checkout`, `setup`, `inputs`, `run`, `outputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    pub name: String,
    /// `running`, `succeeded`, `failed`, `skipped` (e.g. a set-up found in the cache).
    pub status: String,
    pub started_at_ms: i64,
    pub finished_at_ms: Option<i64>,
    pub exit_code: Option<i32>,
}

/// Body of `POST …/logs`: chunks in order. A chunk that was already stored is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendLogs {
    pub chunks: Vec<LogChunk>,
}

/// Consecutive numbers from 0 within an attempt; at most 64 KiB each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogChunk {
    pub seq: i64,
    pub content: String,
}

/// Answer to an upload of an output file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub sha256: String,
    pub bytes: i64,
}

/// Body of `POST …/result`: sent until acknowledged; an exact repeat is acknowledged again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobResult {
    /// `succeeded`, `failed` or `cancelled`.
    pub status: AttemptStatus,
    /// Set unless succeeded.
    pub cause: Option<Cause>,
    pub exit_code: Option<i32>,
    /// One line for people.
    pub message: String,
    pub steps: Vec<StepReport>,
    pub evidence: Vec<Evidence>,
}

/// Environment variables that every step of a job gets, beside those of the pipeline file.
#[must_use]
pub fn job_environment(server_url: &str, assignment: &Assignment) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("CI".to_owned(), "true".to_owned()),
        ("MLFLOW_TRACKING_URI".to_owned(), server_url.to_owned()),
        ("MLFLOW_TRACKING_TOKEN".to_owned(), assignment.token.clone()),
        ("MLFLOW_RUN_ID".to_owned(), assignment.run_id.to_string()),
        ("OMP_NUM_THREADS".to_owned(), "1".to_owned()),
        ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE".to_owned(), "1".to_owned()),
        ("SLUICE_URL".to_owned(), server_url.to_owned()),
        ("SLUICE_JOB".to_owned(), format!("{}.{}", assignment.job_id, assignment.attempt)),
        ("SLUICE_PIPELINE".to_owned(), assignment.pipeline_id.to_string()),
        ("SLUICE_REPOSITORY".to_owned(), assignment.repository.clone()),
        ("SLUICE_BRANCH".to_owned(), assignment.branch.clone()),
        ("SLUICE_COMMIT".to_owned(), assignment.sha.clone()),
    ])
}
