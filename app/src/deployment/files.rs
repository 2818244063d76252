//! The files that a deployment needs: the gated model, and ONNX Runtime's library.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use futures_util::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use sluice_store::deployment::DeploymentRow;
use tokio_util::io::ReaderStream;

use super::local::StartError;
use crate::App;

/// The folder of a deployment.
pub(super) fn folder(app: &App, id: i64) -> PathBuf {
    app.settings.data_dir.join("deployments").join(id.to_string())
}

/// Removes the folder of a deployment that is over. Its bytes stay in the artifact store.
pub(super) async fn remove(app: &App, id: i64) {
    if let Err(error) = tokio::fs::remove_dir_all(folder(app, id)).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(deployment.id = id, %error, "the folder of a deployment cannot be removed");
    }
}

/// Makes sure that the deployment's folder holds the gated bytes, and gives the file. A file that is there
/// and has the right digest is used as it is: a server that starts again needs the artifact no more.
///
/// # Errors
/// When the artifact is gone, or is not the one that the gate judged.
pub(super) async fn gated_model(app: &App, row: &DeploymentRow) -> Result<PathBuf, StartError> {
    let folder = folder(app, row.id);
    let file = folder.join("model.onnx");
    if digest(&file).await.is_some_and(|found| found.eq_ignore_ascii_case(&row.artifact_sha256)) {
        return Ok(file);
    }
    tokio::fs::create_dir_all(&folder).await.map_err(|error| StartError::Failed(format!("creating the deployment's folder: {error}")))?;
    let key = crate::artifact::key_of_uri(&row.artifact_uri).map_err(|error| StartError::Failed(error.to_string()))?;
    match app.blob.fetch(&key, Some(&row.artifact_sha256), &file).await {
        Ok(_) => Ok(file),
        Err(sluice_blob::Error::DigestMismatch { expected, found, .. }) => {
            Err(StartError::Failed(format!("digest mismatch: {} has the SHA-256 {found}, the gate judged {expected}", row.artifact_uri)))
        }
        Err(sluice_blob::Error::NotFound(_)) => Err(StartError::Failed(format!("the gated file {} is gone", row.artifact_uri))),
        Err(error) => Err(StartError::Passing(error.into())),
    }
}

/// SHA-256 of a local file, when it can be read.
async fn digest(file: &Path) -> Option<String> {
    let mut chunks = ReaderStream::new(tokio::fs::File::open(file).await.ok()?);
    let mut digest = Sha256::new();
    while let Some(chunk) = chunks.try_next().await.ok()? {
        digest.update(&chunk);
    }
    Some(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How deep below a root a Python environment may lie.
const MAX_DEPTH: usize = 4;

/// The newest ONNX Runtime library in Python environments below some folders: a runner that exported a model
/// has one, so that a machine with a runner needs no installation of its own.
pub(super) fn find_onnxruntime(roots: &[PathBuf]) -> Option<PathBuf> {
    let mut found = Vec::new();
    for root in roots {
        search(root, MAX_DEPTH, &mut found);
    }
    found.sort();
    found.pop().map(|(_, library)| library)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<(SystemTime, PathBuf)>) {
    if folder.join("pyvenv.cfg").is_file() {
        for python in folders_in(&folder.join("lib")) {
            libraries_in(&python.join("site-packages/onnxruntime/capi"), found);
        }
    } else if depth > 0 {
        for below in folders_in(folder) {
            search(&below, depth - 1, found);
        }
    }
}

/// Folders, without following links.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn libraries_in(folder: &Path, found: &mut Vec<(SystemTime, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_library =
            entry.file_name().to_str().is_some_and(|name| name == "libonnxruntime.so" || name.starts_with("libonnxruntime.so."));
        if let (true, Ok(changed)) = (is_library, entry.metadata().and_then(|meta| meta.modified())) {
            found.push((changed, entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_an_environment_below_a_root() {
        let root = std::env::temp_dir().join(format!("sluice-runtime-{}", std::process::id()));
        let env = root.join("envs/abc");
        let capi = env.join("lib/python3.13/site-packages/onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        let library = capi.join("libonnxruntime.so.1.27.0");
        std::fs::write(&library, "").unwrap();
        std::fs::write(capi.join("libonnxruntime_providers_shared.so"), "").unwrap();
        assert_eq!(find_onnxruntime(std::slice::from_ref(&root)), None, "not an environment");
        std::fs::write(env.join("pyvenv.cfg"), "").unwrap();
        assert_eq!(find_onnxruntime(std::slice::from_ref(&root)), Some(library));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
