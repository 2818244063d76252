//! Answers of the native API, as far as the command line and the tests read them. Fields that a newer server
//! adds are ignored; fields that may be missing have defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_domain::{
    gate::CheckResult,
    runner::{LogChunk, StepReport},
    state::{AttemptStatus, Cause, DeploymentStatus, JobKind, JobStatus, PipelineStatus, PromotionStatus, Verdict},
};

/// One page of a list; `next` is the token of the following one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default)]
    pub next: Option<String>,
}

/// A repository and its built-in remote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repository {
    pub id: i64,
    pub name: String,
    pub default_branch: String,
    pub git_url: String,
    #[serde(default)]
    pub created_at: Option<String>,
}

/// What one pushed commit started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    pub id: i64,
    pub repository: String,
    pub branch: String,
    pub sha: String,
    #[serde(default)]
    pub commit_subject: String,
    #[serde(default)]
    pub commit_author: String,
    pub status: PipelineStatus,
    #[serde(default)]
    pub status_reason: String,
    /// `[{message, file, line, column, snippet}]`
    #[serde(default)]
    pub file_errors: Option<Vec<Value>>,
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub finished_at: Option<String>,
    /// Lists may leave the jobs out.
    #[serde(default)]
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub promotion: Option<Promotion>,
    #[serde(default)]
    pub deployment: Option<Deployment>,
}

/// One job of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: i64,
    pub pipeline_id: i64,
    pub name: String,
    pub kind: JobKind,
    pub status: JobStatus,
    /// Why it waits, in words.
    #[serde(default)]
    pub waiting_reason: Option<String>,
    #[serde(default)]
    pub cause: Option<Cause>,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub attempt: i32,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    #[serde(default)]
    pub run_id: Option<String>,
    #[serde(default)]
    pub needs: Vec<String>,
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub cpus: i32,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub queued_at: Option<String>,
    #[serde(default)]
    pub started_at: Option<String>,
    #[serde(default)]
    pub finished_at: Option<String>,
    #[serde(default)]
    pub outputs: Vec<Output>,
}

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub attempt: i32,
    pub status: AttemptStatus,
    #[serde(default)]
    pub cause: Option<Cause>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub steps: Vec<StepReport>,
    #[serde(default)]
    pub runner: Option<String>,
    #[serde(default)]
    pub started_at: Option<String>,
    #[serde(default)]
    pub finished_at: Option<String>,
}

/// One file that a job left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub name: String,
    pub path: String,
    pub uri: String,
    pub sha256: String,
    pub bytes: i64,
}

/// A piece of a job's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    pub attempt: i32,
    pub chunks: Vec<LogChunk>,
    /// Number of the chunk to ask for next.
    pub next: i64,
    /// Nothing will follow `next`.
    pub finished: bool,
}

/// A registered runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    pub name: String,
    /// `idle`, `busy` or `offline`.
    pub status: String,
    #[serde(default)]
    pub capabilities: Vec<String>,
    #[serde(default)]
    pub cpus: i32,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub last_seen_at: Option<String>,
    #[serde(default)]
    pub jobs: Vec<i64>,
}

/// A pipeline's request to move an alias.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promotion {
    pub id: i64,
    pub pipeline_id: i64,
    pub model: String,
    #[serde(default)]
    pub version: Option<i32>,
    pub alias: String,
    pub status: PromotionStatus,
    #[serde(default)]
    pub reason: String,
    /// The latest record; lists may give only its id.
    #[serde(default)]
    pub gate_record: Option<Value>,
}

impl Promotion {
    /// The gate record, when the answer carries it whole.
    #[must_use]
    pub fn record(&self) -> Option<GateRecord> {
        serde_json::from_value(self.gate_record.clone()?).ok()
    }

    /// Id of the latest gate record.
    #[must_use]
    pub fn record_id(&self) -> Option<i64> {
        let record = self.gate_record.as_ref()?;
        record.as_i64().or_else(|| record.get("id")?.as_i64())
    }
}

/// One evaluation of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    pub id: i64,
    pub model: String,
    pub version: i32,
    pub alias: String,
    #[serde(default)]
    pub champion_version: Option<i32>,
    pub verdict: Verdict,
    #[serde(default)]
    pub policy: Value,
    #[serde(default)]
    pub policy_sha256: String,
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    #[serde(default)]
    pub evidence: Value,
    #[serde(default)]
    pub artifact_sha256: Option<String>,
    #[serde(default)]
    pub artifact_uri: Option<String>,
    #[serde(default)]
    pub approved_by: Vec<String>,
    #[serde(default)]
    pub created_at: Option<String>,
}

/// A registered model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub aliases: BTreeMap<String, i32>,
    #[serde(default)]
    pub versions: Vec<ModelVersion>,
    #[serde(default)]
    pub deployments: Vec<Deployment>,
}

/// One version of a registered model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    pub name: String,
    pub version: i32,
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub run_id: Option<String>,
    #[serde(default)]
    pub pipeline_id: Option<i64>,
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    pub promotions: Vec<Promotion>,
    #[serde(default)]
    pub gate_records: Vec<GateRecord>,
    #[serde(default)]
    pub approvals: Vec<Value>,
    #[serde(default)]
    pub created_at: Option<String>,
}

/// One version put into service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    pub id: i64,
    pub environment: String,
    pub model: String,
    pub version: i32,
    #[serde(default)]
    pub artifact_sha256: String,
    pub status: DeploymentStatus,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub ready_at: Option<String>,
    #[serde(default)]
    pub ended_at: Option<String>,
}

/// What a rollback did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    pub model: String,
    pub alias: String,
    #[serde(default)]
    pub from_version: Option<i32>,
    pub to_version: i32,
    #[serde(default)]
    pub deployment: Option<Deployment>,
}
