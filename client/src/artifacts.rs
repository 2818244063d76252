//! Artifact bytes through the proxy.

use std::path::Path;

use reqwest::Method;
use tokio::io::AsyncWriteExt as _;

use crate::{Client, Error, Result, Url, check};

impl Client {
    /// Where an `mlflow-artifacts:/…` URI is read over HTTP.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] for another scheme.
    pub fn artifact_url(&self, uri: &str) -> Result<Url> {
        let path = uri
            .strip_prefix("mlflow-artifacts:/")
            .map(|path| path.trim_start_matches('/'))
            .filter(|path| !path.is_empty())
            .ok_or_else(|| Error::InvalidUrl { url: uri.to_owned(), message: "must start with mlflow-artifacts:/".to_owned() })?;
        let start = ["api", "2.0", "mlflow-artifacts", "artifacts"];
        Ok(self.url(start.into_iter().chain(path.split('/'))))
    }

    /// Streams an artifact into a file, which is created or truncated, handing every piece to `seen` on the way
    /// (for digests). Answers the number of bytes. The file is complete only when this returns `Ok`.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn download_artifact(&self, uri: &str, file: &Path, mut seen: impl FnMut(&[u8])) -> Result<u64> {
        let io = |source| Error::Io { path: file.display().to_string(), source };
        let mut answer = check(self.request(Method::GET, self.artifact_url(uri)?).send().await).await?;
        let mut target = tokio::fs::File::create(file).await.map_err(io)?;
        let mut length = 0;
        while let Some(piece) = answer.chunk().await.map_err(Error::Transport)? {
            seen(&piece);
            target.write_all(&piece).await.map_err(io)?;
            length += piece.len() as u64;
        }
        target.flush().await.map_err(io)?;
        Ok(length)
    }
}
