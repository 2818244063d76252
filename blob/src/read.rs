//! Reading, listing and deleting.

use std::path::Path as FsPath;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _, stream::BoxStream};
use object_store::{GetOptions, GetRange, ObjectStoreExt as _, path::Path};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use crate::{BlobStore, Error, Key, Stored, hex_digest, key::percent_decode};

/// Which bytes of an object are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// From the first position up to and including the second, cut at the object's end.
    FromTo(u64, u64),
    From(u64),
    /// The last so many bytes.
    Last(u64),
}

/// An open object.
pub struct Object {
    /// Size of the whole object.
    pub bytes: u64,
    /// The part that `stream` gives.
    pub range: std::ops::Range<u64>,
    /// Changes when the object does.
    pub etag: Option<String>,
    pub stream: BoxStream<'static, Result<Bytes, Error>>,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
    /// 0 for folders.
    pub bytes: u64,
}

impl BlobStore {
    /// Opens an object, or a part of it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFile`] for a folder, [`Error::RangeNotSatisfiable`].
    pub async fn get(&self, key: &Key, range: Option<Range>) -> Result<Object, Error> {
        let size = self.size(key).await?;
        let range = match range {
            None => None,
            // an empty object has no satisfiable range, nor has a start behind the end
            Some(Range::FromTo(from, _) | Range::From(from)) if from >= size => return Err(Error::RangeNotSatisfiable { bytes: size }),
            Some(Range::Last(0)) => return Err(Error::RangeNotSatisfiable { bytes: size }),
            Some(Range::Last(_)) if size == 0 => return Err(Error::RangeNotSatisfiable { bytes: size }),
            Some(Range::FromTo(from, to)) => Some(GetRange::Bounded(from..to.min(size - 1) + 1)),
            Some(Range::From(from)) => Some(GetRange::Offset(from)),
            Some(Range::Last(count)) => Some(GetRange::Suffix(count.min(size))),
        };
        let path = key.path();
        let found = self.store.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await;
        let found = found.map_err(|error| Error::of(key.as_str(), error))?;
        let name = key.as_str().to_owned();
        Ok(Object {
            bytes: found.meta.size,
            range: found.range.clone(),
            etag: found.meta.e_tag.clone(),
            stream: Box::pin(found.into_stream().map_err(move |error| Error::of(&name, error))),
        })
    }

    /// Size of an object in bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFile`] for a folder.
    pub async fn size(&self, key: &Key) -> Result<u64, Error> {
        match self.store.head(&key.path()).await.map_err(|error| Error::of(key.as_str(), error)) {
            Ok(meta) => Ok(meta.size),
            Err(Error::NotFound(_) | Error::NotAFile(_)) if self.is_dir(key).await? => Err(Error::NotAFile(format!("'{key}' is a folder"))),
            Err(Error::NotFound(_) | Error::NotAFile(_)) => Err(Error::NotFound(key.as_str().to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Whether objects lie below the key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_dir(&self, key: &Key) -> Result<bool, Error> {
        match self.store.list(Some(&key.path())).try_next().await.map_err(|error| Error::of(key.as_str(), error)) {
            Ok(first) => Ok(first.is_some()),
            Err(Error::NotFound(_) | Error::NotAFile(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names directly in a folder (`None`: the root), sorted. A folder that does not exist is empty.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(&self, folder: Option<&Key>) -> Result<Vec<Entry>, Error> {
        let prefix = folder.map(Key::path);
        let name = folder.map_or("", Key::as_str);
        let found = match self.store.list_with_delimiter(prefix.as_ref()).await.map_err(|error| Error::of(name, error)) {
            Ok(found) => found,
            Err(Error::NotFound(_) | Error::NotAFile(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let folders = found.common_prefixes.iter().map(|path| Entry { name: last_part(path), is_dir: true, bytes: 0 });
        let files = found.objects.iter().map(|meta| Entry { name: last_part(&meta.location), is_dir: false, bytes: meta.size });
        let mut entries: Vec<_> = folders.chain(files).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Removes an object, or every object below the key. Removing nothing is fine.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, key: &Key) -> Result<(), Error> {
        let sort = |error| Error::of(key.as_str(), error);
        let path = key.path();
        if self.store.head(&path).await.is_ok() {
            return gone_is_fine(self.store.delete(&path).await.map_err(sort));
        }
        let mut below = self.store.list(Some(&path));
        loop {
            match below.try_next().await.map_err(sort) {
                Ok(Some(meta)) => gone_is_fine(self.store.delete(&meta.location).await.map_err(sort))?,
                Ok(None) => return Ok(()),
                Err(error) => return gone_is_fine(Err(error)),
            }
        }
    }

    /// Copies an object to a local file, which appears only when its digest is `expected_sha256` (`None`:
    /// any). What is digested is what is written, so the file cannot differ from what was checked.
    ///
    /// # Errors
    /// [`Error::DigestMismatch`] when the object is another one; nothing is left then.
    pub async fn fetch(&self, key: &Key, expected_sha256: Option<&str>, to: &FsPath) -> Result<Stored, Error> {
        let object = self.get(key, None).await?;
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = to.with_file_name(name);
        let written = write_digested(object.stream, &partial).await;
        let checked = written.and_then(|stored| match expected_sha256 {
            Some(expected) if !expected.eq_ignore_ascii_case(&stored.sha256) => {
                Err(Error::DigestMismatch { key: key.as_str().to_owned(), expected: expected.to_owned(), found: stored.sha256 })
            }
            _ => Ok(stored),
        });
        match checked {
            Ok(stored) => tokio::fs::rename(&partial, to).await.map(|()| stored).map_err(Error::Local),
            Err(error) => {
                let _ = tokio::fs::remove_file(&partial).await;
                Err(error)
            }
        }
    }
}

async fn write_digested(mut stream: impl Stream<Item = Result<Bytes, Error>> + Unpin, to: &FsPath) -> Result<Stored, Error> {
    let mut file = tokio::fs::File::create(to).await.map_err(Error::Local)?;
    let mut digest = Sha256::new();
    let mut bytes = 0;
    while let Some(chunk) = stream.try_next().await? {
        digest.update(&chunk);
        bytes += chunk.len() as u64;
        file.write_all(&chunk).await.map_err(Error::Local)?;
    }
    file.flush().await.map_err(Error::Local)?;
    Ok(Stored { sha256: hex_digest(digest), bytes })
}

fn gone_is_fine(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::NotFound(_) | Error::NotAFile(_)) => Ok(()),
        other => other,
    }
}

fn last_part(path: &Path) -> String {
    path.parts().next_back().map(|part| decode(part.as_ref())).unwrap_or_default()
}

/// A stored part as it was before the object store escaped it.
fn decode(part: &str) -> String {
    percent_decode(part).unwrap_or_else(|| part.to_owned())
}
