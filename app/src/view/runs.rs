//! What runs table and run page show beside the runs themselves, which come from `crate::run` and `crate::run_search`.

use std::fmt;

use sluice_blob::Entry;
use sluice_domain::{id::RunId, tracking::Run};
use sluice_store::view::runs as store;
pub use sluice_store::view::runs::{CATALOGUE_KEYS, CATALOGUE_RUNS, KeyCatalogue, PointRow, RunJob, RunModelVersion};

use crate::{App, Result, artifact};

/// A column that the user chose. Its text form (`metrics.loss`, `min.loss`, `max.loss`, `params.lr`, `tags.team`) is in the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    Last(String),
    Min(String),
    Max(String),
    Param(String),
    Tag(String),
}

/// The value of a column in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Empty,
    Number(f64),
    Text(String),
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

    /// Its value in a run.
    #[must_use]
    pub fn cell(&self, run: &Run) -> Cell {
        let number = |value: Option<f64>| value.map_or(Cell::Empty, Cell::Number);
        let text = |value: Option<&str>| value.map_or(Cell::Empty, |value| Cell::Text(value.to_owned()));
        match self {
            Self::Last(key) => number(run.metric(key).map(|metric| metric.value)),
            Self::Min(key) => number(run.metric(key).map(|metric| metric.min)),
            Self::Max(key) => number(run.metric(key).map(|metric| metric.max)),
            Self::Param(key) => text(run.param(key)),
            Self::Tag(key) => text(run.tag(key)),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind(), self.key())
    }
}

/// Keys that may become columns.
///
/// # Errors
/// When the database fails.
pub async fn key_catalogue(app: &App, experiment_id: i32) -> Result<KeyCatalogue> {
    Ok(store::key_catalogue(&mut *app.connection().await?, experiment_id).await?)
}

/// Where a run came from, and what was made of it.
///
/// # Errors
/// When the database fails.
pub async fn relations(app: &App, id: RunId) -> Result<(Option<RunJob>, Vec<RunModelVersion>)> {
    let mut db = app.connection().await?;
    Ok((store::find_run_job(&mut db, id.0).await?, store::list_run_model_versions(&mut db, id.0).await?))
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

/// One line of the artifact tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Relative to the root of the run.
    pub path: String,
    pub name: String,
    pub depth: usize,
    pub is_dir: bool,
    pub bytes: u64,
    /// A folder whose entries are not listed here.
    pub folded: bool,
}

/// Most lines of one artifact tree.
pub const TREE: usize = 400;

/// The artifacts of a run below `path` as a tree in reading order; folders beyond [`TREE`] lines stay folded.
///
/// # Errors
/// When the run or the folder does not exist or its artifacts are kept elsewhere.
pub async fn artifact_tree(app: &App, id: RunId, path: &str) -> Result<Vec<TreeEntry>> {
    let (_, entries) = artifact::list_run_artifacts(app, id, path).await?;
    let mut stack: Vec<(usize, Entry)> = entries.into_iter().rev().map(|entry| (0, entry)).collect();
    let mut tree = Vec::new();
    while let Some((depth, entry)) = stack.pop() {
        if tree.len() >= TREE {
            tree.push(tree_entry(depth, entry, true));
            if tree.len() >= 2 * TREE {
                break;
            }
            continue;
        }
        let folder = entry.is_dir.then(|| entry.name.clone());
        tree.push(tree_entry(depth, entry, false));
        if let Some(folder) = folder {
            let (_, entries) = artifact::list_run_artifacts(app, id, &folder).await?;
            stack.extend(entries.into_iter().rev().map(|entry| (depth + 1, entry)));
        }
    }
    Ok(tree)
}

fn tree_entry(depth: usize, entry: Entry, folded: bool) -> TreeEntry {
    let name = entry.name.rsplit('/').next().unwrap_or_default().to_owned();
    TreeEntry { path: entry.name, name, depth, is_dir: entry.is_dir, bytes: entry.bytes, folded: folded && entry.is_dir }
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
