//! Registered models, gates, deployments, predictions.

use serde_json::{Value, json};

use crate::{
    Client, Result,
    view::{Deployment, GateRecord, Model, ModelVersion, Page, Promotion, Rollback},
};

impl Client {
    /// # Errors
    /// See [`crate::Error`].
    pub async fn models(&self) -> Result<Page<Model>> {
        self.get(self.url(["api", "v1", "models"])).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn model(&self, name: &str) -> Result<Model> {
        self.get(self.url(["api", "v1", "models", name])).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn model_version(&self, name: &str, version: i32) -> Result<ModelVersion> {
        self.get(self.url(["api", "v1", "models", name, "versions", &version.to_string()])).await
    }

    /// Records an approval and evaluates the gate again.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn approve(&self, model: &str, version: i32, alias: &str, comment: Option<&str>) -> Result<Promotion> {
        let mut body = json!({ "alias": alias });
        if let Some(comment) = comment {
            body["comment"] = json!(comment);
        }
        self.post(self.url(["api", "v1", "models", model, "versions", &version.to_string(), "approve"]), &body).await
    }

    /// Alias and deployment return to the previous holder.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn rollback(&self, model: &str, alias: Option<&str>, environment: Option<&str>) -> Result<Rollback> {
        let mut body = json!({});
        for (name, value) in [("alias", alias), ("environment", environment)] {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        self.post(self.url(["api", "v1", "models", model, "rollback"]), &body).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn gate_record(&self, id: i64) -> Result<GateRecord> {
        self.get(self.url(["api", "v1", "gate-records", &id.to_string()])).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn deployments(&self, model: Option<&str>) -> Result<Page<Deployment>> {
        let mut url = self.url(["api", "v1", "deployments"]);
        if let Some(model) = model {
            url.query_pairs_mut().append_pair("model", model);
        }
        self.get(url).await
    }

    /// Deploys the holder of an alias again.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn deploy(&self, model: &str, alias: &str, environment: &str) -> Result<Deployment> {
        let body = json!({ "model": model, "alias": alias, "environment": environment });
        self.post(self.url(["api", "v1", "deployments"]), &body).await
    }

    /// Audit rows, newest first.
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn audit(&self, subject: Option<&str>) -> Result<Page<Value>> {
        let mut url = self.url(["api", "v1", "audit"]);
        if let Some(subject) = subject {
            url.query_pairs_mut().append_pair("subject", subject);
        }
        self.get(url).await
    }

    /// Metadata of a served model (Open Inference Protocol).
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn served_model(&self, name: &str) -> Result<Value> {
        self.get(self.url(["v2", "models", name])).await
    }

    /// One inference request (Open Inference Protocol).
    ///
    /// # Errors
    /// See [`crate::Error`].
    pub async fn infer(&self, name: &str, request: &Value) -> Result<Value> {
        self.post(self.url(["v2", "models", name, "infer"]), request).await
    }
}
