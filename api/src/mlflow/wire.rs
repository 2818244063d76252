//! The JSON of MLflow's messages. Unset and empty fields are left out, as proto2 JSON does.

use serde::{Serialize, Serializer};
use sluice_app::Result;
use sluice_domain::tracking::{Experiment, KeyValue, MetricPoint, MetricSummary, Run, RunInfo};

use super::Args;

/// A double: NaN is text; the infinities are the greatest finite numbers, which is what MLflow's SQL store gives.
#[derive(Debug, Clone, Copy)]
pub struct Double(pub f64);

impl Serialize for Double {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.0.is_nan() { serializer.serialize_str("NaN") } else { serializer.serialize_f64(self.0.clamp(f64::MIN, f64::MAX)) }
    }
}

/// `{key, value}` of tags and params.
#[derive(Debug, Serialize)]
pub struct KeyValueView<'a> {
    key: &'a str,
    value: &'a str,
}

/// Shows tags or params.
#[must_use]
pub fn key_values(pairs: &[KeyValue]) -> Vec<KeyValueView<'_>> {
    pairs.iter().map(|pair| KeyValueView { key: &pair.key, value: &pair.value }).collect()
}

/// Reads a list of `{key, value}`. A key must be there and not be empty; an absent value is empty.
///
/// # Errors
/// When the list is malformed; the error names the item.
pub fn read_key_values(args: &Args, name: &str) -> Result<Vec<KeyValue>> {
    args.items(name)?
        .iter()
        .map(|item| Ok(KeyValue { key: item.required_text("key")?, value: item.text("value")?.unwrap_or_default() }))
        .collect()
}

/// An experiment.
#[derive(Debug, Serialize)]
pub struct ExperimentView<'a> {
    experiment_id: String,
    name: &'a str,
    artifact_location: &'a str,
    lifecycle_stage: &'static str,
    last_update_time: i64,
    creation_time: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
    workspace: &'static str,
}

impl<'a> From<&'a Experiment> for ExperimentView<'a> {
    fn from(experiment: &'a Experiment) -> Self {
        Self {
            experiment_id: experiment.id.to_string(),
            name: &experiment.name,
            artifact_location: &experiment.artifact_location,
            lifecycle_stage: experiment.lifecycle.as_str(),
            last_update_time: experiment.updated_at.timestamp_millis(),
            creation_time: experiment.created_at.timestamp_millis(),
            tags: key_values(&experiment.tags),
            workspace: "default",
        }
    }
}

/// A run.
#[derive(Debug, Serialize)]
pub struct RunView<'a> {
    info: RunInfoView<'a>,
    data: RunDataView<'a>,
    inputs: RunInputsView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<RunOutputsView<'a>>,
}

/// Which of a run's links to logged models an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// runs/create
    None,
    /// runs/search
    Outputs,
    /// runs/get
    Both,
}

impl<'a> RunView<'a> {
    /// Shows a run.
    #[must_use]
    pub fn new(run: &'a Run, links: Links) -> Self {
        Self {
            info: RunInfoView::from(&run.info),
            data: RunDataView {
                metrics: run.metrics.iter().map(MetricView::from).collect(),
                params: key_values(&run.params),
                tags: key_values(&run.tags),
            },
            inputs: RunInputsView {
                dataset_inputs: run
                    .datasets
                    .iter()
                    .map(|input| DatasetInputView {
                        tags: key_values(&input.tags),
                        dataset: DatasetView {
                            name: &input.name,
                            digest: &input.digest,
                            source_type: &input.source_type,
                            source: &input.source,
                            schema: input.schema.as_deref(),
                            profile: input.profile.as_deref(),
                        },
                    })
                    .collect(),
                model_inputs: match links {
                    Links::Both => run.model_inputs.iter().map(|model_id| ModelInputView { model_id }).collect(),
                    _ => Vec::new(),
                },
            },
            outputs: (links != Links::None).then(|| RunOutputsView {
                model_outputs: run
                    .model_outputs
                    .iter()
                    .map(|output| ModelOutputView { model_id: &output.model_id, step: output.step })
                    .collect(),
            }),
        }
    }
}

/// A run's own fields.
#[derive(Debug, Serialize)]
pub struct RunInfoView<'a> {
    run_uuid: String,
    run_id: String,
    run_name: &'a str,
    experiment_id: String,
    user_id: &'a str,
    status: &'static str,
    start_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<i64>,
    artifact_uri: &'a str,
    lifecycle_stage: &'static str,
}

impl<'a> From<&'a RunInfo> for RunInfoView<'a> {
    fn from(info: &'a RunInfo) -> Self {
        let id = info.id.to_string();
        Self {
            run_uuid: id.clone(),
            run_id: id,
            run_name: &info.name,
            experiment_id: info.experiment_id.to_string(),
            user_id: &info.user_id,
            status: info.status.as_str(),
            start_time: info.start_time_ms,
            end_time: info.end_time_ms,
            artifact_uri: &info.artifact_uri,
            lifecycle_stage: info.lifecycle.as_str(),
        }
    }
}

#[derive(Debug, Serialize)]
struct RunDataView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    params: Vec<KeyValueView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
}

/// A metric's value at one point.
#[derive(Debug, Serialize)]
pub struct MetricView<'a> {
    key: &'a str,
    value: Double,
    timestamp: i64,
    step: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
}

impl<'a> From<&'a MetricSummary> for MetricView<'a> {
    fn from(metric: &'a MetricSummary) -> Self {
        Self { key: &metric.key, value: Double(metric.value), timestamp: metric.timestamp_ms, step: metric.step, run_id: None }
    }
}

impl<'a> From<&'a MetricPoint> for MetricView<'a> {
    fn from(point: &'a MetricPoint) -> Self {
        Self { key: &point.key, value: Double(point.value), timestamp: point.timestamp_ms, step: point.step, run_id: None }
    }
}

impl MetricView<'_> {
    /// The same, saying whose it is.
    #[must_use]
    pub fn of_run(self, run_id: String) -> Self {
        Self { run_id: Some(run_id), ..self }
    }
}

#[derive(Debug, Serialize)]
struct RunInputsView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dataset_inputs: Vec<DatasetInputView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_inputs: Vec<ModelInputView<'a>>,
}

#[derive(Debug, Serialize)]
struct DatasetInputView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
    dataset: DatasetView<'a>,
}

#[derive(Debug, Serialize)]
struct DatasetView<'a> {
    name: &'a str,
    digest: &'a str,
    source_type: &'a str,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct ModelInputView<'a> {
    model_id: &'a str,
}

#[derive(Debug, Serialize)]
struct RunOutputsView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_outputs: Vec<ModelOutputView<'a>>,
}

#[derive(Debug, Serialize)]
struct ModelOutputView<'a> {
    model_id: &'a str,
    step: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        let json = |value| serde_json::to_string(&Double(value)).unwrap();
        assert_eq!(json(f64::NAN), "\"NaN\"");
        assert_eq!(json(f64::INFINITY).parse::<f64>().unwrap(), 1.797_693_134_862_315_7e308);
        assert_eq!(json(f64::NEG_INFINITY).parse::<f64>().unwrap(), -1.797_693_134_862_315_7e308);
        assert_eq!(json(0.1), "0.1");
    }
}
