//! Experiments, runs and what is logged to them.

use chrono::{DateTime, Utc};

use crate::{
    id::RunId,
    state::{Lifecycle, RunStatus},
};

/// Tag that mirrors a run's name.
pub const RUN_NAME_TAG: &str = "mlflow.runName";
/// Tag with the id of a nested run's parent.
pub const PARENT_RUN_TAG: &str = "mlflow.parentRunId";
/// Tag of runs that a job created beside its own: the job's id.
pub const JOB_TAG: &str = "sluice.job";

/// A tag or a param.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

/// An experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    pub id: i32,
    pub name: String,
    pub artifact_location: String,
    pub lifecycle: Lifecycle,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub tags: Vec<KeyValue>,
}

/// A run without what was logged to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    pub id: RunId,
    pub experiment_id: i32,
    pub name: String,
    pub user_id: String,
    pub status: RunStatus,
    pub start_time_ms: i64,
    pub end_time_ms: Option<i64>,
    pub artifact_uri: String,
    pub lifecycle: Lifecycle,
}

/// A run with everything that tables and pages show.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub info: RunInfo,
    /// The latest point of every metric, with a summary; by key.
    pub metrics: Vec<MetricSummary>,
    pub params: Vec<KeyValue>,
    pub tags: Vec<KeyValue>,
    pub datasets: Vec<DatasetInput>,
    /// Ids of logged models that it read.
    pub model_inputs: Vec<String>,
    /// Logged models that it made.
    pub model_outputs: Vec<ModelOutput>,
}

impl Run {
    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
    }

    /// The value of a param.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<&str> {
        self.params.iter().find(|param| param.key == key).map(|param| param.value.as_str())
    }

    /// The summary of a metric.
    #[must_use]
    pub fn metric(&self, key: &str) -> Option<&MetricSummary> {
        self.metrics.iter().find(|metric| metric.key == key)
    }
}

/// The latest point of a metric by (step, timestamp, value), and what all its points span.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSummary {
    pub key: String,
    pub value: f64,
    pub timestamp_ms: i64,
    pub step: i64,
    /// Least value that is a number; NaN when none is.
    pub min: f64,
    /// Greatest value that is a number; NaN when none is.
    pub max: f64,
    pub count: i64,
}

/// One logged value.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricPoint {
    pub key: String,
    pub value: f64,
    pub timestamp_ms: i64,
    pub step: i64,
}

/// A dataset that a run read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInput {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    pub schema: Option<String>,
    pub profile: Option<String>,
    pub tags: Vec<KeyValue>,
}

/// A logged model that a run made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOutput {
    pub model_id: String,
    pub step: i64,
}
