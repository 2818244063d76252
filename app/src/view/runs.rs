//! The runs table and the run page.

use std::{collections::HashMap, fmt};

use sluice_domain::id::RunId;
use sluice_store::view::runs as store;
pub use sluice_store::view::runs::{
    CATALOGUE_KEYS, CATALOGUE_RUNS, KeyCatalogue, KeyValue, MetricRow, PointRow, RunHead, RunJob, RunModelVersion, RunRow,
};

use crate::{App, Error, Result};

/// A column that the user chose. Its text form (`metrics.loss`, `min.loss`, `max.loss`, `params.lr`, `tags.team`) is in the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    Last(String),
    Min(String),
    Max(String),
    Param(String),
    Tag(String),
}

impl Column {
    /// Parses the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, key) = text.split_once('.')?;
        let key = (!key.is_empty()).then(|| key.to_owned())?;
        match kind {
            "metrics" => Some(Self::Last(key)),
            "min" => Some(Self::Min(key)),
            "max" => Some(Self::Max(key)),
            "params" => Some(Self::Param(key)),
            "tags" => Some(Self::Tag(key)),
            _ => None,
        }
    }

    /// The key alone.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Last(key) | Self::Min(key) | Self::Max(key) | Self::Param(key) | Self::Tag(key) => key,
        }
    }

    /// `metrics`, `min`, `max`, `params` or `tags`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Last(_) => "metrics",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::Param(_) => "params",
            Self::Tag(_) => "tags",
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind(), self.key())
    }
}

/// The value of a column in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Empty,
    Number(f64),
    Text(String),
}

/// One row of the runs table; `cells` in the order of the columns.
#[derive(Debug, Clone)]
pub struct TableRow {
    pub run: RunRow,
    pub cells: Vec<Cell>,
}

/// Loads the rows of the runs table for `ids`, in their order, with only the chosen columns.
///
/// # Errors
/// When the database fails.
pub async fn rows(app: &App, ids: &[RunId], columns: &[Column]) -> Result<Vec<TableRow>> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    let keys = |wanted: fn(&Column) -> bool| columns.iter().filter(|c| wanted(c)).map(|c| c.key().to_owned()).collect::<Vec<_>>();
    let metric_keys = keys(|c| matches!(c, Column::Last(_) | Column::Min(_) | Column::Max(_)));
    let param_keys = keys(|c| matches!(c, Column::Param(_)));
    let tag_keys = keys(|c| matches!(c, Column::Tag(_)));

    let mut db = app.connection().await?;
    let runs = store::list_run_rows(&mut db, &ids).await?;
    let mut cells = HashMap::new();
    if !metric_keys.is_empty() {
        for cell in store::list_metric_cells(&mut db, &ids, &metric_keys).await? {
            cells.insert((cell.run_id, format!("metrics.{}", cell.key)), Cell::Number(cell.last));
            cells.insert((cell.run_id, format!("min.{}", cell.key)), Cell::Number(cell.min));
            cells.insert((cell.run_id, format!("max.{}", cell.key)), Cell::Number(cell.max));
        }
    }
    if !param_keys.is_empty() {
        for cell in store::list_param_cells(&mut db, &ids, &param_keys).await? {
            cells.insert((cell.run_id, format!("params.{}", cell.key)), Cell::Text(cell.value));
        }
    }
    if !tag_keys.is_empty() {
        for cell in store::list_tag_cells(&mut db, &ids, &tag_keys).await? {
            cells.insert((cell.run_id, format!("tags.{}", cell.key)), Cell::Text(cell.value));
        }
    }
    Ok(runs
        .into_iter()
        .map(|run| {
            let cells = columns.iter().map(|column| cells.remove(&(run.id, column.to_string())).unwrap_or(Cell::Empty)).collect();
            TableRow { run, cells }
        })
        .collect())
}

/// Keys that may become columns.
///
/// # Errors
/// When the database fails.
pub async fn key_catalogue(app: &App, experiment_id: i32) -> Result<KeyCatalogue> {
    Ok(store::key_catalogue(&mut *app.connection().await?, experiment_id).await?)
}

/// Everything on the run page but its artifacts and log.
#[derive(Debug, Clone)]
pub struct RunPage {
    pub head: RunHead,
    pub metrics: Vec<MetricRow>,
    /// Whether more metrics match than are listed.
    pub more_metrics: bool,
    pub params: Vec<KeyValue>,
    pub tags: Vec<KeyValue>,
    pub job: Option<RunJob>,
    pub versions: Vec<RunModelVersion>,
}

/// Most metrics on one run page.
pub const METRICS: usize = 500;

/// Gets the run page. `metric_text` is a part of the metric keys to show.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, id: RunId, metric_text: Option<&str>) -> Result<RunPage> {
    let mut db = app.connection().await?;
    let head = store::find_run_head(&mut db, id.0).await?.ok_or_else(|| Error::NotFound(format!("run {id} not found")))?;
    let mut metrics = store::list_metrics(&mut db, id.0, metric_text, METRICS as i64 + 1).await?;
    let more_metrics = metrics.len() > METRICS;
    metrics.truncate(METRICS);
    Ok(RunPage {
        metrics,
        more_metrics,
        params: store::list_params(&mut db, id.0).await?,
        tags: store::list_tags(&mut db, id.0).await?,
        job: store::find_run_job(&mut db, id.0).await?,
        versions: store::list_run_model_versions(&mut db, id.0).await?,
        head,
    })
}

/// Gets the head of a run.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn head(app: &App, id: RunId) -> Result<RunHead> {
    store::find_run_head(&mut *app.connection().await?, id.0).await?.ok_or_else(|| Error::NotFound(format!("run {id} not found")))
}

/// Points of one metric on one page.
pub const POINTS: usize = 500;

/// Lists the points of a metric in step order, after (step, timestamp, value) of the last point before.
/// The flag says whether more follow.
///
/// # Errors
/// When the database fails.
pub async fn points(app: &App, id: RunId, key: &str, after: Option<(i64, i64, f64)>) -> Result<(Vec<PointRow>, bool)> {
    let mut points = store::list_points(&mut *app.connection().await?, id.0, key, after, POINTS as i64 + 1).await?;
    let more = points.len() > POINTS;
    points.truncate(POINTS);
    Ok((points, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_parse_back() {
        for text in ["metrics.val/loss", "min.a.b", "max.x", "params.lr", "tags.team"] {
            assert_eq!(Column::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "metrics.", "loss", "attributes.status"] {
            assert_eq!(Column::parse(bad), None, "{bad:?}");
        }
    }
}
