//! Logging to a run: metrics, params and tags of one request in one transaction.

use std::collections::BTreeMap;

use sluice_domain::tracking::{KeyValue, MetricPoint, RUN_NAME_TAG};
use sluice_store::{metric, metric::ModelPoint, run as store};

use crate::{
    App, Error, Result,
    context::commit,
    fence,
    run::{check_active, validate_name, validate_tag_key},
    tracking::{MAX_PARAM_CHARS, cut, parse_run_id, run_not_found, run_tags, validate_key},
};

/// Most metrics, and most items of all kinds, in one batch.
pub const MAX_METRICS: usize = 1000;
/// Most params, and most tags, in one batch.
pub const MAX_PARAMS_OR_TAGS: usize = 100;

/// A metric's value, and the logged model that it measures, if it does.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedMetric {
    pub point: MetricPoint,
    pub model_id: Option<String>,
    pub dataset_name: String,
    pub dataset_digest: String,
}

/// What one request logs.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub metrics: Vec<LoggedMetric>,
    pub params: Vec<KeyValue>,
    pub tags: Vec<KeyValue>,
}

/// Logs a batch: all of it or nothing. Repeating a request changes nothing.
///
/// # Errors
/// [`Error::NotFound`] for an unknown run or model; [`Error::Invalid`] when the run is deleted, an item is
/// malformed, a limit is passed, or a param was logged with another value before.
pub async fn log_batch(app: &App, token: Option<&str>, run_id: &str, batch: Batch) -> Result<()> {
    if !is_plain_id(run_id) {
        let message = format!("Invalid value {} for parameter 'run_id' supplied.", serde_json::Value::from(run_id));
        return Err(Error::invalid("run_id", message));
    }
    check_limits(&batch)?;
    for (i, metric) in batch.metrics.iter().enumerate() {
        validate_metric(&metric.point, &format!("metrics[{i}]."))?;
    }
    check_duplicates(&batch.params)?;
    let mut params = Vec::with_capacity(batch.params.len());
    for (i, param) in batch.params.into_iter().enumerate() {
        let field = format!("params[{i}].key");
        validate_key(&field, "Param key", &param.key)?;
        params.push(KeyValue { key: param.key, value: cut(param.value, MAX_PARAM_CHARS) });
    }
    let tags = run_tags(batch.tags)?;
    write(app, token, run_id, &batch.metrics, params, &tags, changed_params).await
}

/// Logs one metric value.
///
/// # Errors
/// As [`log_batch`].
pub async fn log_metric(app: &App, token: Option<&str>, run_id: &str, metric: LoggedMetric) -> Result<()> {
    validate_metric(&metric.point, "")?;
    write(app, token, run_id, &[metric], Vec::new(), &[], changed_params).await
}

/// Logs one param.
///
/// # Errors
/// As [`log_batch`].
pub async fn log_param(app: &App, token: Option<&str>, run_id: &str, param: KeyValue) -> Result<()> {
    validate_key("key", "Param key", &param.key)?;
    let param = KeyValue { value: cut(param.value, MAX_PARAM_CHARS), ..param };
    write(app, token, run_id, &[], vec![param], &[], changed_param).await
}

/// Sets one tag.
///
/// # Errors
/// As [`log_batch`].
pub async fn set_tag(app: &App, token: Option<&str>, run_id: &str, tag: KeyValue) -> Result<()> {
    validate_tag_key(&tag.key)?;
    let tags = run_tags(vec![tag])?;
    write(app, token, run_id, &[], Vec::new(), &tags, changed_params).await
}

/// (stored params that differ, params of the request, run id) → the refusal
type Refusal = fn(&[KeyValue], &[KeyValue], &str) -> Error;

async fn write(
    app: &App,
    token: Option<&str>,
    id: &str,
    metrics: &[LoggedMetric],
    mut params: Vec<KeyValue>,
    tags: &[KeyValue],
    refusal: Refusal,
) -> Result<()> {
    let run_id = parse_run_id(id)?;
    let new_name = tags.iter().find(|tag| tag.key == RUN_NAME_TAG).map(|tag| tag.value.as_str()).filter(|name| !name.is_empty());
    if let Some(name) = new_name {
        validate_name(name)?;
    }
    let mut tx = app.begin().await?;
    let fenced = fence::check_run(&mut tx, &*app.clock, token, run_id).await?;
    let attempt = fenced.map_or(0, |fenced| fenced.attempt);
    // All writers lock in this order: the run (only to rename it), params by key, series by key, tags by key.
    let found = match new_name {
        Some(_) => store::lock_run(&mut tx, run_id).await?,
        None => store::find_run_info(&mut tx, run_id).await?,
    };
    let info = found.ok_or_else(|| run_not_found(id))?;
    check_active(&info)?;
    if !params.is_empty() {
        params.sort();
        let differing = store::insert_run_params(&mut tx, run_id, &params).await?;
        // A later attempt of a job may have come to other values: they hold.
        if !differing.is_empty() && attempt > 1 {
            store::update_run_params(&mut tx, run_id, &params).await?;
        } else if !differing.is_empty() {
            return Err(refusal(&differing, &params, id));
        }
    }
    let points: Vec<MetricPoint> = metrics.iter().map(|metric| metric.point.clone()).collect();
    metric::insert_points(&mut tx, run_id, attempt, &points).await?;
    let model_points: Vec<ModelPoint> = metrics.iter().filter_map(model_point).collect();
    if !model_points.is_empty() {
        metric::insert_model_points(&mut tx, run_id, &model_points).await.map_err(|error| match error.constraint() {
            Some("logged_model_metrics_model_id_fkey") => {
                let ids: Vec<_> = model_points.iter().map(|point| format!("'{}'", point.model_id)).collect();
                Error::NotFound(format!("Logged model with ID {} not found.", ids.join(", ")))
            }
            _ => error.into(),
        })?;
    }
    if !tags.is_empty() {
        store::upsert_run_tags(&mut tx, run_id, tags).await?;
    }
    if let Some(name) = new_name {
        store::update_run(&mut tx, run_id, name, info.status, info.end_time_ms).await?;
    }
    commit(tx).await?;
    // Not through Postgres: NOTIFY takes a lock across commits, which would make all loggers queue up.
    // Nobody listening is fine.
    let _ = app.notices.send(format!("run:{run_id}"));
    Ok(())
}

fn model_point(metric: &LoggedMetric) -> Option<ModelPoint> {
    Some(ModelPoint {
        model_id: metric.model_id.clone()?,
        dataset_name: metric.dataset_name.clone(),
        dataset_digest: metric.dataset_digest.clone(),
        point: metric.point.clone(),
    })
}

fn is_plain_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().count() <= 256
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

fn check_limits(batch: &Batch) -> Result<()> {
    let total = batch.metrics.len() + batch.params.len() + batch.tags.len();
    for (field, what, limit, length) in [
        ("metrics", "metrics", MAX_METRICS, batch.metrics.len()),
        ("params", "params", MAX_PARAMS_OR_TAGS, batch.params.len()),
        ("tags", "tags", MAX_PARAMS_OR_TAGS, batch.tags.len()),
        ("metrics", "metrics, params, and tags", MAX_METRICS, total),
    ] {
        if length > limit {
            return Err(Error::invalid(
                field,
                format!(
                    "A batch logging request can contain at most {limit} {what}. Got {length} {what}. Please split up {what} across multiple requests and try again."
                ),
            ));
        }
    }
    Ok(())
}

fn check_duplicates(params: &[KeyValue]) -> Result<()> {
    let mut seen = BTreeMap::new();
    let twice: Vec<String> =
        params.iter().filter(|param| seen.insert(&param.key, ()).is_some()).map(|param| format!("'{}'", param.key)).collect();
    if twice.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(
        "params",
        format!(
            "Duplicate parameter keys have been submitted: [{}]. Please ensure the request contains only one param value per param key.",
            twice.join(", ")
        ),
    ))
}

fn validate_metric(point: &MetricPoint, path: &str) -> Result<()> {
    validate_key(&format!("{path}name"), "Metric name", &point.key)?;
    if point.timestamp_ms < 0 {
        let field = format!("{path}timestamp");
        return Err(Error::invalid(
            &field,
            format!(
                "Invalid value {} for parameter '{field}' supplied: metric '{}' (value={}). Timestamp must be a nonnegative long (64-bit integer) ",
                point.timestamp_ms, point.key, point.value
            ),
        ));
    }
    Ok(())
}

fn changed_param(differing: &[KeyValue], params: &[KeyValue], run_id: &str) -> Error {
    let (old, new) = (&differing[0], params.iter().find(|param| param.key == differing[0].key).map_or("", |param| &param.value));
    Error::invalid(
        "value",
        format!(
            "Changing param values is not allowed. Param with key='{}' was already logged with value='{}' for run ID='{run_id}'. Attempted logging new value '{new}'.",
            old.key, old.value
        ),
    )
}

fn changed_params(differing: &[KeyValue], params: &[KeyValue], run_id: &str) -> Error {
    let list: Vec<String> = differing
        .iter()
        .map(|old| {
            let new = params.iter().find(|param| param.key == old.key).map_or("", |param| param.value.as_str());
            format!("{{'key': '{}', 'old_value': '{}', 'new_value': '{new}'}}", old.key, old.value)
        })
        .collect();
    Error::invalid(
        "params",
        format!("Changing param values is not allowed. Params were already logged='[{}]' for run ID='{run_id}'.", list.join(", ")),
    )
}
