//! The list of experiments.

use sluice_store::view::experiments as store;
pub use sluice_store::view::experiments::{ExperimentHead, ExperimentRow};

use crate::{App, Error, Result};

/// Rows on one page.
pub const PAGE: i64 = 100;

/// Lists active experiments, most recently active first. `after` is (activity, id) of the last row before.
///
/// # Errors
/// When the database fails.
pub async fn list(app: &App, text: Option<&str>, after: Option<(i64, i32)>) -> Result<Vec<ExperimentRow>> {
    Ok(store::list_experiments(&mut *app.connection().await?, text, after, PAGE).await?)
}

/// Gets an experiment.
///
/// # Errors
/// [`Error::NotFound`], or when the database fails.
pub async fn get(app: &App, id: i32) -> Result<ExperimentHead> {
    store::find_experiment(&mut *app.connection().await?, id).await?.ok_or_else(|| Error::NotFound(format!("experiment {id} not found")))
}
