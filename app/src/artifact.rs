//! Artifact files: upload, download, listing, and what `mlflow-artifacts:/…` URIs name.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::Stream;
pub use sluice_blob::{Entry, Key, Object, Range, Stored};
use sluice_domain::id::RunId;
use sluice_store::artifact;

use crate::{App, Error, Result};

/// A stored output file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutput {
    /// `mlflow-artifacts:/…`
    pub uri: String,
    /// Lowercase hex.
    pub sha256: String,
    pub bytes: u64,
}

/// An answer to [`open`].
pub enum Opened {
    Object(Object),
    /// The wanted range starts behind the end.
    RangeNotSatisfiable {
        bytes: u64,
    },
}

/// The key that an artifact URI names.
///
/// # Errors
/// When the URI is not served by this server, or its path is not safe.
pub fn key_of_uri(uri: &str) -> Result<Key> {
    Ok(Key::parse(path_of_uri(uri)?)?)
}

/// The path of an `mlflow-artifacts:` URI, with or without a host, as it stands.
fn path_of_uri(uri: &str) -> Result<&str> {
    let not_ours =
        || Error::invalid("artifact_uri", format!("Artifacts at '{uri}' are not served by this server, only mlflow-artifacts:/ URIs are."));
    let rest = uri.strip_prefix("mlflow-artifacts:").ok_or_else(not_ours)?;
    match rest.strip_prefix("//") {
        Some(with_host) => Ok(with_host.split_once('/').ok_or_else(not_ours)?.1),
        None => Ok(rest.trim_start_matches('/')),
    }
}

/// The URI of a key.
#[must_use]
pub fn uri_of_key(key: &Key) -> String {
    format!("mlflow-artifacts:/{key}")
}

/// Stores a stream of bytes under a key. `fence` is asked before the first byte is read and again when
/// everything is there, just before it becomes visible: a writer that lost its right meanwhile changes nothing.
///
/// # Errors
/// What `fence` says; when the stream breaks off; when a folder is in the way.
pub async fn upload<S, E, F>(app: &App, key: &Key, stream: S, fence: F) -> Result<Stored>
where
    S: Stream<Item = std::result::Result<Bytes, E>>,
    E: std::fmt::Display,
    F: AsyncFn() -> Result<()>,
{
    fence().await?;
    let staged = app.blob.put_stream(key, stream).await?;
    fence().await?;
    Ok(staged.publish().await?)
}

/// Stores a file of a job's output below the artifacts of the job's run, at `outputs/{output}/{path}`.
/// `fence` as for [`upload`].
///
/// # Errors
/// As [`upload`]; when the run does not exist or the path is not safe.
pub async fn store_output<S, E, F>(app: &App, run_id: RunId, output: &str, path: &str, stream: S, fence: F) -> Result<StoredOutput>
where
    S: Stream<Item = std::result::Result<Bytes, E>>,
    E: std::fmt::Display,
    F: AsyncFn() -> Result<()>,
{
    let key = run_folder(app, run_id).await?.1.join(&format!("outputs/{output}/{path}"))?;
    let stored = upload(app, &key, stream, fence).await?;
    Ok(StoredOutput { uri: uri_of_key(&key), sha256: stored.sha256, bytes: stored.bytes })
}

/// Opens a file, or a part of it.
///
/// # Errors
/// When it does not exist or is a folder.
pub async fn open(app: &App, key: &Key, range: Option<Range>) -> Result<Opened> {
    match app.blob.get(key, range).await {
        Ok(object) => Ok(Opened::Object(object)),
        Err(sluice_blob::Error::RangeNotSatisfiable { bytes }) => Ok(Opened::RangeNotSatisfiable { bytes }),
        Err(error) => Err(error.into()),
    }
}

/// The names directly in a folder (`None`: the root), sorted; empty when there is no such folder.
///
/// # Errors
/// When the store fails.
pub async fn list_folder(app: &App, folder: Option<&Key>) -> Result<Vec<Entry>> {
    Ok(app.blob.list(folder).await?)
}

/// Removes a file or a tree; removing nothing is fine. `fence` is asked first.
///
/// # Errors
/// What `fence` says.
pub async fn delete<F: AsyncFn() -> Result<()>>(app: &App, key: &Key, fence: F) -> Result<()> {
    fence().await?;
    Ok(app.blob.delete(key).await?)
}

/// The artifact root of a run: its URI and folder.
///
/// # Errors
/// When the run does not exist or its artifacts are kept elsewhere.
pub async fn run_folder(app: &App, run_id: RunId) -> Result<(String, Key)> {
    let mut db = app.connection().await?;
    let uri = artifact::find_run_artifact_uri(&mut db, run_id.0)
        .await?
        .ok_or_else(|| Error::NotFound(format!("Run with id={run_id} not found")))?;
    let key = key_of_uri(&uri)?;
    Ok((uri, key))
}

/// A run's artifacts directly in a folder (`""`: its root), with paths relative to the root of the run.
///
/// # Errors
/// When the run does not exist or the path is not safe.
pub async fn list_run_artifacts(app: &App, run_id: RunId, path: &str) -> Result<(String, Vec<Entry>)> {
    let (uri, root) = run_folder(app, run_id).await?;
    let entries = list_below(app, &root, path).await?;
    Ok((uri, entries))
}

/// The entries of a folder below a root, named by their paths relative to that root.
///
/// # Errors
/// When the path is not safe.
pub async fn list_below(app: &App, root: &Key, path: &str) -> Result<Vec<Entry>> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return list_folder(app, Some(root)).await;
    }
    let folder = root.join(path)?;
    let prefix = &folder.as_str()[root.as_str().len() + 1..];
    let entries = list_folder(app, Some(&folder)).await?;
    Ok(entries.into_iter().map(|entry| Entry { name: format!("{prefix}/{}", entry.name), ..entry }).collect())
}

/// Removes what uploads of an earlier process of this server left behind. Run once, at its start.
pub async fn sweep(app: App) {
    // file times may lag behind the clock by a few milliseconds
    let before = SystemTime::now() - Duration::from_secs(1);
    match app.blob.remove_abandoned(before).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed abandoned uploads"),
        Err(error) => tracing::warn!(error = format!("{:#}", anyhow::Error::from(error)), "cannot remove abandoned uploads"),
    }
}

impl From<sluice_blob::Error> for Error {
    fn from(error: sluice_blob::Error) -> Self {
        use sluice_blob::Error as Blob;
        match error {
            Blob::InvalidKey(_) | Blob::NotAFile(_) | Blob::RangeNotSatisfiable { .. } => Self::invalid("path", error.to_string()),
            Blob::NotFound(_) => Self::NotFound(error.to_string()),
            Blob::Interrupted(_) => Self::invalid("body", error.to_string()),
            Blob::DigestMismatch { .. } => Self::Conflict(error.to_string()),
            Blob::Full(_) => Self::Unavailable(error.into()),
            Blob::Local(_) | Blob::Store(_) => Self::Internal(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uris_of_this_server_have_keys() {
        for (uri, key) in [
            ("mlflow-artifacts:/0/a/artifacts", "0/a/artifacts"),
            ("mlflow-artifacts:///0/a", "0/a"),
            ("mlflow-artifacts://host:5000/0/a%20b", "0/a b"),
        ] {
            assert_eq!(key_of_uri(uri).unwrap().as_str(), key);
        }
        for bad in [
            "s3://bucket/x",
            "/etc/passwd",
            "file:///etc/passwd",
            "mlflow-artifacts:/",
            "mlflow-artifacts:/../x",
            "mlflow-artifacts://host",
        ] {
            assert!(key_of_uri(bad).is_err(), "{bad}");
        }
    }
}
