//! Artifact bytes over an object store: streamed, staged in a temporary object, visible only when complete.

mod error;
mod key;
mod read;
mod staged;
mod sweep;

use std::{
    fmt::Write as _,
    path::{Path as FsPath, PathBuf},
    sync::Arc,
};

use object_store::{ObjectStore, local::LocalFileSystem};
use sha2::{Digest as _, Sha256};

pub use error::Error;
pub use key::Key;
pub use read::{Entry, Object, Range};
pub use staged::{Staged, Stored};

/// Where artifact bytes live. Cheap to clone. Keys are the paths of `mlflow-artifacts:/…` URIs.
#[derive(Debug, Clone)]
pub struct BlobStore {
    store: Arc<dyn ObjectStore>,
    folder: PathBuf,
}

impl BlobStore {
    /// A store in a local folder, which must exist. Published objects survive a crash of the machine.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub fn local(folder: &FsPath) -> Result<Self, object_store::Error> {
        let store = LocalFileSystem::new_with_prefix(folder)?.with_automatic_cleanup(true).with_fsync(true);
        Ok(Self { store: Arc::new(store), folder: folder.to_owned() })
    }
}

/// A finished digest as lowercase hex.
fn hex_digest(digest: Sha256) -> String {
    digest.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
