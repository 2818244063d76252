//! Typed HTTP client of Sluice's own API, used by the runner, the command line and tests.
//!
//! One [`Client`] per server. Methods map one to one to the routes of `docs/API.md`. Nothing is retried unless
//! the caller wraps it in [`retry`]: only the caller knows whether it still wants the answer.

mod artifacts;
mod error;
mod models;
mod pipelines;
mod repositories;
mod retry;
mod runner;
mod sse;
pub mod view;

use std::time::Duration;

pub use error::{ApiError, Error, Result};
pub use reqwest::Url;
use reqwest::{Method, RequestBuilder, Response};
pub use retry::{RetryPolicy, retry};
use serde::{Serialize, de::DeserializeOwned};
pub use sse::{EventStream, ServerEvent};

/// Longest time without a byte from the server. Longer than the longest long poll (30 s).
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection pool to one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
}

impl Client {
    /// A client of the server at `base_url`, e.g. `http://127.0.0.1:5000`.
    ///
    /// # Errors
    /// When the URL is not an `http://` URL with a host.
    pub fn new(base_url: &str) -> Result<Self> {
        let base = Url::parse(base_url).map_err(|error| Error::InvalidUrl { url: base_url.to_owned(), message: error.to_string() })?;
        if base.cannot_be_a_base() || base.host_str().is_none() || !matches!(base.scheme(), "http" | "https") {
            return Err(Error::InvalidUrl { url: base_url.to_owned(), message: "must be http://HOST[:PORT]".to_owned() });
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        // A proxy of the environment is for the outside world, never for this machine.
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        Ok(Self { http: builder.build().map_err(Error::Transport)?, base, token: None })
    }

    /// The same client with a bearer token on every request.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { http: self.http.clone(), base: self.base.clone(), token: Some(token.into()) }
    }

    /// The server's URL without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// URL of a path given as its segments; each is percent-encoded.
    fn url<S: AsRef<str>>(&self, segments: impl IntoIterator<Item = S>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// URL of a path that needs no encoding, with or without a leading slash, and its query.
    fn plain_url(&self, path_and_query: &str) -> Url {
        let (path, query) = path_and_query.split_once('?').map_or((path_and_query, None), |(path, query)| (path, Some(query)));
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{}", self.base.path().trim_end_matches('/'), path.trim_start_matches('/')));
        url.set_query(query);
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// `GET` of any path, e.g. `/api/2.0/mlflow/experiments/get?experiment_id=0`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_json<T: DeserializeOwned>(&self, path_and_query: &str) -> Result<T> {
        decode(self.request(Method::GET, self.plain_url(path_and_query)).send().await).await
    }

    /// `POST` of a JSON body to any path.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn post_json<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        decode(self.request(Method::POST, self.plain_url(path)).json(body).send().await).await
    }

    /// Whether the server answers `/health`.
    pub async fn is_healthy(&self) -> bool {
        match self.request(Method::GET, self.plain_url("/health")).timeout(CONNECT_TIMEOUT).send().await {
            Ok(answer) => answer.status().is_success(),
            Err(_) => false,
        }
    }

    async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T> {
        decode(self.request(Method::GET, url).send().await).await
    }

    async fn post<T: DeserializeOwned>(&self, url: Url, body: &impl Serialize) -> Result<T> {
        decode(self.request(Method::POST, url).json(body).send().await).await
    }
}

/// Whether the URL names this machine.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The answer, when it is a success; its problem otherwise.
async fn check(answer: reqwest::Result<Response>) -> Result<Response> {
    let answer = answer.map_err(Error::Transport)?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status().as_u16();
    let retry_after =
        answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse().ok()).map(Duration::from_secs);
    let body = answer.bytes().await.unwrap_or_default();
    Err(Error::Api(ApiError::parse(status, retry_after, &body)))
}

async fn decode<T: DeserializeOwned>(answer: reqwest::Result<Response>) -> Result<T> {
    let answer = check(answer).await?;
    let url = answer.url().to_string();
    let body = answer.bytes().await.map_err(Error::Transport)?;
    serde_json::from_slice(&body).map_err(|source| Error::Decode { url, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded_and_bases_may_have_a_path() {
        let client = Client::new("http://localhost:1/sluice/").unwrap();
        assert_eq!(client.base_url(), "http://localhost:1/sluice");
        assert_eq!(client.url(["api", "a b", "c/d?"]).as_str(), "http://localhost:1/sluice/api/a%20b/c%2Fd%3F");
        assert_eq!(client.plain_url("/health?x=1").as_str(), "http://localhost:1/sluice/health?x=1");
        assert_eq!(Client::new("http://h").unwrap().url(["api"]).as_str(), "http://h/api");
        for bad in ["", "localhost:5000", "ftp://h", "http://"] {
            assert!(Client::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn loopback_hosts_are_known() {
        for (url, expected) in
            [("http://127.0.0.1:5", true), ("http://[::1]:5", true), ("http://localhost", true), ("http://10.0.0.1", false)]
        {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
