//! Artifact bytes over an object store: streamed, staged in a temporary object, visible only when complete.

use std::{path::Path as FsPath, sync::Arc};

use object_store::{ObjectStore, local::LocalFileSystem};

/// Where artifact bytes live. Cheap to clone. Keys are the paths of `mlflow-artifacts:/…` URIs.
#[derive(Debug, Clone)]
pub struct BlobStore {
    #[allow(dead_code, reason = "read by the functions that the artifact proxy brings")]
    store: Arc<dyn ObjectStore>,
}

impl BlobStore {
    /// A store in a local folder, which must exist.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub fn local(folder: &FsPath) -> Result<Self, object_store::Error> {
        Ok(Self { store: Arc::new(LocalFileSystem::new_with_prefix(folder)?) })
    }
}
