//! Predictions: requests of the Open Inference Protocol, passed to the process that serves the model.

use bytes::Bytes;
use sluice_store::deployment;

use super::Deployments;

/// What is asked of a served model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `GET …`
    Metadata,
    /// `GET …/ready`
    Ready,
    /// `POST …/infer`, with a JSON body.
    Infer(Bytes),
}

/// The model server's answer.
#[derive(Debug, Clone)]
pub struct Served {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Bytes,
    /// The version that answered.
    pub version: i32,
    /// SHA-256 of the file that answered.
    pub sha256: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// Nothing of that name and version is served.
    #[error("{0}")]
    NotFound(String),
    /// It should be served and is not, just now.
    #[error("{0}")]
    NotReady(String),
}

impl Deployments {
    /// Passes a request to the process that serves `model` in `environment`. A `version`, when given, must be
    /// the served one.
    ///
    /// # Errors
    /// When that version is not served there, or not now.
    pub async fn serve(&self, environment: &str, model: &str, version: Option<&str>, endpoint: Endpoint) -> Result<Served, ServeError> {
        let target = (environment.to_owned(), model.to_owned());
        let Some((instance, _in_flight)) = self.enter(&target).filter(|(instance, _)| instance.is_alive()) else {
            return Err(self.why_not(environment, model).await);
        };
        if version.is_some_and(|version| version != instance.version.to_string()) {
            return Err(ServeError::NotFound(format!(
                "version {} of model {model} is not served in {environment}: version {} is",
                version.unwrap_or_default(),
                instance.version
            )));
        }
        let not_ready =
            |error: &dyn std::fmt::Display| ServeError::NotReady(format!("the server of model {model} does not answer: {error}"));
        let mut url = reqwest::Url::parse(&format!("http://{}/v2/models", instance.address)).map_err(|error| not_ready(&error))?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(model);
            match endpoint {
                Endpoint::Metadata => {}
                Endpoint::Ready => _ = path.push("ready"),
                Endpoint::Infer(_) => _ = path.push("infer"),
            }
        }
        let request = match endpoint {
            Endpoint::Metadata | Endpoint::Ready => self.client().get(url),
            Endpoint::Infer(body) => self.client().post(url).header("content-type", "application/json").body(body),
        };
        let answer = request.send().await.map_err(|error| not_ready(&error.without_url()))?;
        let status = answer.status().as_u16();
        let content_type = answer.headers().get("content-type").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = answer.bytes().await.map_err(|error| not_ready(&error.without_url()))?;
        Ok(Served { status, content_type, body, version: instance.version, sha256: instance.sha256.clone() })
    }

    /// Whether everything that should be served is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn all_ready(&self) -> crate::Result<bool> {
        let mut db = self.app().connection().await?;
        let live = deployment::list_live_deployments(&mut db).await?;
        Ok(live.into_iter().filter(|row| row.status == "serving").all(|row| {
            let instance = self.instance(&(row.environment, row.model_name));
            instance.is_some_and(|instance| instance.deployment_id == row.id && instance.is_alive())
        }))
    }

    /// Why a model has no process: it is on its way, or nobody deployed it.
    async fn why_not(&self, environment: &str, model: &str) -> ServeError {
        let live = match self.app().connection().await {
            Ok(mut db) => deployment::list_live_deployments(&mut db).await.map_err(crate::Error::from),
            Err(error) => Err(error),
        };
        match live {
            Ok(rows) => match rows.into_iter().find(|row| row.environment == environment && row.model_name == model) {
                Some(row) => ServeError::NotReady(format!(
                    "version {} of model {model} is starting in {environment}{}{}",
                    row.version,
                    if row.message.is_empty() { "" } else { ": " },
                    row.message
                )),
                None => ServeError::NotFound(format!("model {model} is not served in {environment}")),
            },
            Err(error) => ServeError::NotReady(error.to_string()),
        }
    }
}
