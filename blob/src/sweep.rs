//! What uploads leave behind when their process is killed.

use std::{fs, io, path::Path, time::SystemTime};

use crate::{BlobStore, Error};

impl BlobStore {
    /// Removes staged uploads that were last written before `before`; returns how many. Meant for the start of
    /// the only server on this store, when no upload of an earlier process can go on.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub async fn remove_abandoned(&self, before: SystemTime) -> Result<u64, Error> {
        let folder = self.folder.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&folder, before)).await;
        swept.map_err(io::Error::other).flatten().map_err(Error::Local)
    }
}

fn sweep(folder: &Path, before: SystemTime) -> io::Result<u64> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            removed += sweep(&entry.path(), before)?;
        } else if kind.is_file() && is_staged(&entry.file_name().to_string_lossy()) && entry.metadata()?.modified()? < before {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a file name is one of those that staged uploads have: no object's key holds a `#`.
fn is_staged(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
