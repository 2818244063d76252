//! Pipelines, jobs and their logs.

use reqwest::Method;
use serde_json::json;

use crate::{
    Client, EventStream, Result, check,
    view::{Job, LogPage, Page, Pipeline},
};

impl Client {
    /// Newest first. Each filter may be left out.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn pipelines(
        &self,
        repository: Option<&str>,
        branch: Option<&str>,
        status: Option<&str>,
        limit: Option<u32>,
        after: Option<&str>,
    ) -> Result<Page<Pipeline>> {
        let mut url = self.url(["api", "v1", "pipelines"]);
        let limit = limit.map(|limit| limit.to_string());
        let filters = [("repository", repository), ("branch", branch), ("status", status), ("limit", limit.as_deref()), ("after", after)];
        for (name, value) in filters.iter().filter_map(|(name, value)| value.map(|value| (name, value))) {
            url.query_pairs_mut().append_pair(name, value);
        }
        self.get(url).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn pipeline(&self, id: i64) -> Result<Pipeline> {
        self.get(self.url(["api", "v1", "pipelines", &id.to_string()])).await
    }

    /// Cancels every unfinished job of a pipeline.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn cancel_pipeline(&self, id: i64) -> Result<Pipeline> {
        self.post(self.url(["api", "v1", "pipelines", &id.to_string(), "cancel"]), &json!({})).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn job(&self, id: i64) -> Result<Job> {
        self.get(self.url(["api", "v1", "jobs", &id.to_string()])).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn cancel_job(&self, id: i64) -> Result<Job> {
        self.post(self.url(["api", "v1", "jobs", &id.to_string(), "cancel"]), &json!({})).await
    }

    /// Another attempt of a finished, unsuccessful job.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn retry_job(&self, id: i64) -> Result<Job> {
        self.post(self.url(["api", "v1", "jobs", &id.to_string(), "retry"]), &json!({})).await
    }

    /// Log chunks of an attempt (default: the latest) from number `from` on, at most 1 MiB.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn job_logs(&self, id: i64, attempt: Option<i32>, from: i64) -> Result<LogPage> {
        let mut url = self.url(["api", "v1", "jobs", &id.to_string(), "logs"]);
        url.query_pairs_mut().append_pair("from", &from.to_string());
        if let Some(attempt) = attempt {
            url.query_pairs_mut().append_pair("attempt", &attempt.to_string());
        }
        self.get(url).await
    }

    /// The log as it grows: events `chunk` (data: JSON `{seq, content}`, id: the chunk's number) and, when the
    /// attempt is over, `end`. `after` resumes behind a chunk.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn follow_job_log(&self, id: i64, attempt: Option<i32>, after: Option<i64>) -> Result<EventStream> {
        let mut url = self.url(["api", "v1", "jobs", &id.to_string(), "logs"]);
        url.query_pairs_mut().append_pair("follow", "1");
        if let Some(attempt) = attempt {
            url.query_pairs_mut().append_pair("attempt", &attempt.to_string());
        }
        let mut request = self.request(Method::GET, url).header("accept", "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        Ok(EventStream::new(check(request.send().await).await?))
    }

    /// Notices about topics such as `pipeline:1` or `job:2`: events `change`.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn events(&self, topics: &[&str]) -> Result<EventStream> {
        let mut url = self.url(["api", "v1", "events"]);
        url.query_pairs_mut().append_pair("topics", &topics.join(","));
        let request = self.request(Method::GET, url).header("accept", "text/event-stream");
        Ok(EventStream::new(check(request.send().await).await?))
    }
}
