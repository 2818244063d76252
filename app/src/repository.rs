//! Repositories: bare git repositories in the data folder, one row each.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sluice_domain::names::check_repository_name;
use sluice_store::{audit::insert_audit, notify::notify, repository as store};
use tokio::sync::OwnedMutexGuard;

use crate::{Actor, App, Error, Result, context::commit};

/// A repository, as shown to users.
#[derive(Debug, Clone, Serialize)]
pub struct Repository {
    pub id: i64,
    pub name: String,
    pub default_branch: String,
    /// What `git clone` takes.
    pub git_url: String,
    pub created_at: DateTime<Utc>,
}

/// Creates a bare repository. `default_branch` is `main` unless given.
///
/// # Errors
/// When a name is not allowed or the repository's is taken.
pub async fn create_repository(app: &App, actor: &Actor, name: &str, default_branch: Option<&str>) -> Result<Repository> {
    check_repository_name(name).map_err(|message| Error::invalid("name", message))?;
    let branch = default_branch.unwrap_or("main");
    if !sluice_vcs::repository::is_branch_name(branch) {
        return Err(Error::invalid("default_branch", format!("default_branch {branch:?} is not a git branch name of at most 200 bytes")));
    }
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let row = store::insert_repository(&mut tx, name, branch, now).await.map_err(|error| match error.constraint() {
        Some("repositories_name_key") => Error::AlreadyExists(format!("repository {name} already exists")),
        _ => error.into(),
    })?;
    insert_audit(&mut tx, now, &actor.0, "repository.created", &format!("repository:{name}"), &json!({ "default_branch": branch })).await?;
    notify(&mut tx, &format!("repository:{}", row.id)).await?;
    // The folder comes before the commit: a row without a folder would be a broken repository, a folder
    // without a row is taken over by the next attempt.
    let (folder, branch) = (folder(app, name), branch.to_owned());
    blocking(move || sluice_vcs::repository::create_bare(&folder, &branch)).await?;
    commit(tx).await?;
    Ok(view(app, row))
}

/// Reads a repository.
///
/// # Errors
/// When there is none of that name.
pub async fn get_repository(app: &App, name: &str) -> Result<Repository> {
    let mut db = app.connection().await?;
    let row = store::find_repository(&mut db, name).await?.ok_or_else(|| not_found(name))?;
    Ok(view(app, row))
}

/// Lists repositories by id.
///
/// # Errors
/// When the database fails.
pub async fn list_repositories(app: &App, after_id: i64, limit: i64) -> Result<Vec<Repository>> {
    let mut db = app.connection().await?;
    Ok(store::list_repositories(&mut db, after_id, limit).await?.into_iter().map(|row| view(app, row)).collect())
}

/// The folder of an existing repository, for the git service.
///
/// # Errors
/// When there is none of that name.
pub async fn git_folder(app: &App, name: &str) -> Result<PathBuf> {
    // only a valid name may become part of a path
    check_repository_name(name).map_err(|_| not_found(name))?;
    get_repository(app, name).await?;
    Ok(folder(app, name))
}

/// Held from the moment a push may change branches until its pipelines are started, so that two pushes to
/// one branch in quick succession are two tips and not one. After a crash in between only the last tip of a
/// branch is known.
pub async fn lock_pushes(name: &str) -> OwnedMutexGuard<()> {
    static LOCKS: LazyLock<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);
    let lock = Arc::clone(LOCKS.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default());
    lock.lock_owned().await
}

pub(crate) fn folder(app: &App, name: &str) -> PathBuf {
    app.settings.data_dir.join("repositories").join(format!("{name}.git"))
}

/// Runs a git function on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> sluice_vcs::Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Error::Internal(error.into())),
        Err(error) => Err(Error::Internal(error.into())),
    }
}

fn view(app: &App, row: store::RepositoryRow) -> Repository {
    let git_url = format!("{}/git/{}.git", app.settings.public_url, row.name);
    Repository { id: row.id, name: row.name, default_branch: row.default_branch, git_url, created_at: row.created_at }
}

fn not_found(name: &str) -> Error {
    Error::NotFound(format!("repository {name:?} not found"))
}
