//! Uploads: streamed in parts to a staged object that nobody sees until it is published.

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayloadMut};
use sha2::{Digest as _, Sha256};

use crate::{BlobStore, Error, Key, hex_digest};

/// Bytes held in memory before they are written; cloud stores want parts of at least 5 MiB.
const PART_BYTES: usize = 5 * 1024 * 1024;

/// What was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Lowercase hex.
    pub sha256: String,
    pub bytes: u64,
}

/// A complete upload that is not visible yet. Dropping it removes it.
#[derive(Debug)]
pub struct Staged {
    store: BlobStore,
    upload: Upload,
    key: Key,
    stored: Stored,
}

/// The open multipart upload; aborted when dropped without having completed.
#[derive(Debug)]
struct Upload(Option<Box<dyn MultipartUpload>>);

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { upload.abort().await });
        }
    }
}

impl BlobStore {
    /// Reads `stream` to its end into a staged object, in constant memory, and digests it on the way.
    /// [`Staged::publish`] makes it visible under `key`, replacing what was there.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the stream fails; nothing is kept then.
    pub async fn put_stream<S, E>(&self, key: &Key, stream: S) -> Result<Staged, Error>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: std::fmt::Display,
    {
        let sort = |error| Error::of(key.as_str(), error);
        self.check_no_folder(key).await?;
        let mut stream = std::pin::pin!(stream);
        let mut upload = Upload(Some(self.store.put_multipart(&key.path()).await.map_err(sort)?));
        let mut digest = Sha256::new();
        let mut bytes = 0;
        let mut part = PutPayloadMut::new();
        let mut first = true;
        loop {
            let chunk = stream.next().await.transpose().map_err(|error| Error::Interrupted(error.to_string()))?;
            let ended = chunk.is_none();
            if let Some(chunk) = chunk {
                digest.update(&chunk);
                bytes += chunk.len() as u64;
                part.push(chunk);
            }
            // an empty object still needs one part
            if part.content_length() >= PART_BYTES || (ended && (first || !part.is_empty())) {
                let payload = std::mem::take(&mut part).freeze();
                if let Some(upload) = upload.0.as_mut() {
                    upload.put_part(payload).await.map_err(sort)?;
                }
                first = false;
            }
            if ended {
                let stored = Stored { sha256: hex_digest(digest), bytes };
                return Ok(Staged { store: self.clone(), upload, key: key.clone(), stored });
            }
        }
    }

    async fn check_no_folder(&self, key: &Key) -> Result<(), Error> {
        if self.is_dir(key).await? { Err(Error::NotAFile(format!("'{key}' is a folder"))) } else { Ok(()) }
    }
}

impl Staged {
    /// Digest and size of what was uploaded.
    #[must_use]
    pub const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Makes the upload visible under its key, at once and whole.
    ///
    /// # Errors
    /// [`Error::NotAFile`] when a folder is in the way.
    pub async fn publish(mut self) -> Result<Stored, Error> {
        // completing onto a folder fails and leaves the staged object behind
        self.store.check_no_folder(&self.key).await?;
        if let Some(mut upload) = self.upload.0.take()
            && let Err(error) = upload.complete().await
        {
            self.upload.0 = Some(upload);
            return Err(Error::of(self.key.as_str(), error));
        }
        Ok(self.stored.clone())
    }
}
