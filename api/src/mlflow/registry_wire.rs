//! The JSON of the model registry and of logged models.

use serde::Serialize;
use sluice_domain::{
    id::RunId,
    logged_model::LoggedModel,
    registry::{ModelVersion, RegisteredModel},
};

use super::wire::{Double, KeyValueView, key_values};

/// A registered model.
#[derive(Debug, Serialize)]
pub struct RegisteredModelView<'a> {
    name: &'a str,
    creation_timestamp: i64,
    last_updated_timestamp: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latest_versions: Vec<ModelVersionView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<AliasView<'a>>,
}

#[derive(Debug, Serialize)]
struct AliasView<'a> {
    alias: &'a str,
    version: String,
}

impl<'a> From<&'a RegisteredModel> for RegisteredModelView<'a> {
    fn from(model: &'a RegisteredModel) -> Self {
        Self {
            name: &model.name,
            creation_timestamp: model.created_at.timestamp_millis(),
            last_updated_timestamp: model.updated_at.timestamp_millis(),
            description: &model.description,
            latest_versions: model.latest_versions.iter().map(ModelVersionView::from).collect(),
            tags: key_values(&model.tags),
            aliases: model.aliases.iter().map(|(alias, version)| AliasView { alias, version: version.to_string() }).collect(),
        }
    }
}

/// A version of a registered model.
#[derive(Debug, Serialize)]
pub struct ModelVersionView<'a> {
    name: &'a str,
    version: String,
    creation_timestamp: i64,
    last_updated_timestamp: i64,
    user_id: &'a str,
    current_stage: &'static str,
    description: &'a str,
    source: &'a str,
    run_id: String,
    status: &'a str,
    status_message: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
    run_link: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    aliases: &'a [String],
}

impl<'a> From<&'a ModelVersion> for ModelVersionView<'a> {
    fn from(version: &'a ModelVersion) -> Self {
        Self {
            name: &version.name,
            version: version.version.to_string(),
            creation_timestamp: version.created_at.timestamp_millis(),
            last_updated_timestamp: version.updated_at.timestamp_millis(),
            user_id: &version.user_id,
            current_stage: version.stage.as_str(),
            description: &version.description,
            source: &version.source,
            run_id: run_id_text(version.run_id),
            status: &version.status,
            status_message: "",
            tags: key_values(&version.tags),
            run_link: &version.run_link,
            aliases: &version.aliases,
        }
    }
}

fn run_id_text(id: Option<RunId>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

/// A logged model.
#[derive(Debug, Serialize)]
pub struct LoggedModelView<'a> {
    info: LoggedModelInfoView<'a>,
    data: LoggedModelDataView<'a>,
}

#[derive(Debug, Serialize)]
struct LoggedModelInfoView<'a> {
    model_id: &'a str,
    experiment_id: String,
    name: &'a str,
    creation_timestamp_ms: i64,
    last_updated_timestamp_ms: i64,
    artifact_uri: &'a str,
    status: &'static str,
    model_type: &'a str,
    source_run_id: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    status_message: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValueView<'a>>,
}

#[derive(Debug, Serialize)]
struct LoggedModelDataView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    params: Vec<KeyValueView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<LoggedModelMetricView<'a>>,
}

#[derive(Debug, Serialize)]
struct LoggedModelMetricView<'a> {
    key: &'a str,
    value: Double,
    timestamp: i64,
    step: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    dataset_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    dataset_digest: &'a str,
    model_id: &'a str,
    run_id: String,
}

impl<'a> From<&'a LoggedModel> for LoggedModelView<'a> {
    fn from(model: &'a LoggedModel) -> Self {
        Self {
            info: LoggedModelInfoView {
                model_id: &model.id,
                experiment_id: model.experiment_id.to_string(),
                name: &model.name,
                creation_timestamp_ms: model.created_at.timestamp_millis(),
                last_updated_timestamp_ms: model.updated_at.timestamp_millis(),
                artifact_uri: &model.artifact_uri,
                status: model.status.as_wire(),
                model_type: &model.model_type,
                source_run_id: run_id_text(model.source_run_id),
                status_message: &model.status_message,
                tags: key_values(&model.tags),
            },
            data: LoggedModelDataView {
                params: key_values(&model.params),
                metrics: model
                    .metrics
                    .iter()
                    .map(|metric| LoggedModelMetricView {
                        key: &metric.key,
                        value: Double(metric.value),
                        timestamp: metric.timestamp_ms,
                        step: metric.step,
                        dataset_name: &metric.dataset_name,
                        dataset_digest: &metric.dataset_digest,
                        model_id: &model.id,
                        run_id: metric.run_id.to_string(),
                    })
                    .collect(),
            },
        }
    }
}
