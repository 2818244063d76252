//! Output files of attempts: artifacts of the job's run, in a folder of the attempt.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::Stream;
use sluice_domain::{
    id::RunId,
    names::{check_relative_path, check_slug},
    plan::JobSpec,
    runner::StoredFile,
};
use sluice_store::{
    job::get_job,
    job_attempt::{OutputRow, count_outputs, upsert_output},
};

use crate::{
    App, Error, Result, artifact,
    attempt::{AttemptRef, fence},
    context::commit,
};

/// An attempt may upload at most this many files.
const MAX_FILES: i64 = 10_000;

/// Stores one file of an output. A second upload of the same file replaces the first.
///
/// # Errors
/// [`Error::StaleAttempt`], also when the lease ends while the bytes come in: nothing becomes visible then.
pub async fn put_output<S, E>(app: &App, who: &AttemptRef, name: &str, path: &str, stream: S) -> Result<StoredFile>
where
    S: Stream<Item = std::result::Result<Bytes, E>>,
    E: std::fmt::Display,
{
    check_slug(name, 100, "output name").map_err(|message| Error::invalid("name", message))?;
    check_relative_path(path).map_err(|message| Error::invalid("path", message))?;
    let mut tx = app.begin().await?;
    fence(app, &mut tx, who).await?;
    let job = get_job(&mut tx, who.job_id).await?;
    let files = count_outputs(&mut tx, who.job_id, who.attempt).await?;
    commit(tx).await?;
    let spec: JobSpec = serde_json::from_value(job.spec).map_err(|error| Error::Internal(error.into()))?;
    check_declared(&spec.outputs, name)?;
    if files >= MAX_FILES {
        let message = format!("path {path:?} is one file too many: an attempt may upload at most {MAX_FILES}");
        return Err(Error::invalid("path", message));
    }
    let run_id = job.run_id.ok_or_else(|| Error::NotFound(format!("the run of job {} was deleted", who.job_id)))?;
    // A folder of its own: what an attempt before this one left behind is not among this one's files.
    let folder = format!("attempt-{}/{name}", who.attempt);
    let stored = artifact::store_output(app, RunId(run_id), &folder, path, stream, async || {
        let mut tx = app.begin().await?;
        fence(app, &mut tx, who).await?;
        commit(tx).await
    })
    .await?;
    let bytes = i64::try_from(stored.bytes).unwrap_or(i64::MAX);
    // as it was stored: escapes in the path are decoded
    let path = stored.uri.split_once(&format!("/outputs/{folder}/")).map_or(path, |(_, path)| path).to_owned();
    let mut tx = app.begin().await?;
    fence(app, &mut tx, who).await?;
    let row = OutputRow {
        job_id: who.job_id,
        attempt: who.attempt,
        name: name.to_owned(),
        path,
        uri: stored.uri,
        sha256: stored.sha256.clone(),
        bytes,
    };
    upsert_output(&mut tx, &row).await?;
    commit(tx).await?;
    Ok(StoredFile { sha256: stored.sha256, bytes })
}

fn check_declared(outputs: &BTreeMap<String, String>, name: &str) -> Result<()> {
    if outputs.contains_key(name) {
        return Ok(());
    }
    let known = outputs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(Error::invalid(
        "name",
        format!("name {name:?} is not an output of this job; it has {}", if known.is_empty() { "none" } else { &known }),
    ))
}
