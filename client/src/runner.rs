//! The runner protocol. After a claim, calls go through [`Client::with_token`] with the attempt's token.

use std::path::Path;

use reqwest::{Body, Method};
use serde::Deserialize;
use sluice_domain::runner::{
    AppendLogs, Claim, Claimed, JobResult, LogChunk, RegisterRunner, RegisteredRunner, Renew, Renewed, StepReport, StoredFile,
};
use tokio::io::AsyncReadExt as _;

use crate::{
    Client, Error, Result, Url, decode,
    view::{Page, Runner},
};

impl Client {
    /// # Errors
    /// See [`crate::Error`].
    pub async fn register_runner(&self, runner: &RegisterRunner) -> Result<RegisteredRunner> {
        self.post(self.url(["api", "v1", "runners"]), runner).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn runners(&self) -> Result<Page<Runner>> {
        self.get(self.url(["api", "v1", "runners"])).await
    }

    /// Asks for a job; the server may hold the request open for `claim.wait_secs`.
    ///
    /// # Errors
    /// 401 when the runner was registered again elsewhere; see [`crate::Error`].
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        self.post(self.url(["api", "v1", "runner", "claim"]), claim).await
    }

    /// Extends the lease and tells the server where the job stands.
    ///
    /// # Errors
    /// 409 when the attempt is stale; see [`crate::Error`].
    pub async fn renew(&self, job: i64, attempt: i32, steps: Vec<StepReport>) -> Result<Renewed> {
        self.post(self.attempt_url(job, attempt, &["renew"]), &Renew { steps }).await
    }

    /// Appends log chunks; answers the number of the next chunk wanted.
    ///
    /// # Errors
    /// 409 when the attempt is stale; see [`crate::Error`].
    pub async fn append_logs(&self, job: i64, attempt: i32, chunks: Vec<LogChunk>) -> Result<i64> {
        #[derive(Deserialize)]
        struct Next {
            next: i64,
        }
        let next: Next = self.post(self.attempt_url(job, attempt, &["logs"]), &AppendLogs { chunks }).await?;
        Ok(next.next)
    }

    /// Uploads one file of an output, streamed. `path` is relative to the output, `/`-separated.
    ///
    /// # Errors
    /// 409 when the attempt is stale; see [`crate::Error`].
    pub async fn put_output(&self, job: i64, attempt: i32, output: &str, path: &str, file: &Path) -> Result<StoredFile> {
        let io = |source| Error::Io { path: file.display().to_string(), source };
        let handle = tokio::fs::File::open(file).await.map_err(io)?;
        let length = handle.metadata().await.map_err(io)?.len();
        let mut segments = vec!["outputs", output];
        segments.extend(path.split('/'));
        let body = Body::wrap_stream(bytes_of(handle.take(length)));
        let request = self
            .request(Method::PUT, self.attempt_url(job, attempt, &segments))
            .header("content-type", "application/octet-stream")
            .header("content-length", length)
            .body(body);
        decode(request.send().await).await
    }

    /// Reports how the attempt ended.
    ///
    /// # Errors
    /// 409 when the attempt is stale; see [`crate::Error`].
    pub async fn report_result(&self, job: i64, attempt: i32, result: &JobResult) -> Result<()> {
        let _: serde_json::Value = self.post(self.attempt_url(job, attempt, &["result"]), result).await?;
        Ok(())
    }

    fn attempt_url(&self, job: i64, attempt: i32, rest: &[&str]) -> Url {
        let (job, attempt) = (job.to_string(), attempt.to_string());
        let start = ["api", "v1", "runner", "jobs", &job, "attempts", &attempt];
        self.url(start.into_iter().chain(rest.iter().copied()))
    }
}

/// The bytes of a reader, 64 KiB at a time.
fn bytes_of(
    reader: impl tokio::io::AsyncRead + Send + Unpin + 'static,
) -> impl futures_util::TryStream<Ok = bytes::Bytes, Error = std::io::Error> + Send + 'static {
    futures_util::stream::try_unfold(reader, |mut reader| async move {
        let mut buffer = bytes::BytesMut::with_capacity(64 * 1024);
        let read = reader.read_buf(&mut buffer).await?;
        Ok((read > 0).then(|| (buffer.freeze(), reader)))
    })
}
