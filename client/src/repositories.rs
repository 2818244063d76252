//! Repositories.

use serde_json::json;

use crate::{
    Client, Result,
    view::{Page, Repository},
};

impl Client {
    /// Creates a repository with an empty built-in remote.
    ///
    /// # Errors
    /// 409 when the name is taken; see [`crate::Error`].
    pub async fn create_repository(&self, name: &str, default_branch: Option<&str>) -> Result<Repository> {
        let mut body = json!({ "name": name });
        if let Some(branch) = default_branch {
            body["default_branch"] = json!(branch);
        }
        self.post(self.url(["api", "v1", "repositories"]), &body).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn repositories(&self) -> Result<Page<Repository>> {
        self.get(self.url(["api", "v1", "repositories"])).await
    }

    /// # Errors
    /// See [`crate::Error`].
    pub async fn repository(&self, name: &str) -> Result<Repository> {
        self.get(self.url(["api", "v1", "repositories", name])).await
    }
}
