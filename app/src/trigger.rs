//! From pushed branch tips to pipelines, exactly once.
//!
//! `branch_tips` remembers the tips that were considered. [`scan`] compares it to the repository under the
//! repository's row lock, and notes the new tips in the transaction that makes their pipelines: concurrent
//! scans and a crash between push and scan neither lose nor double a pipeline.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use sluice_ci::{FileError, PIPELINE_FILE};
use sluice_domain::{
    plan::Plan,
    state::{JobStatus, PipelineStatus},
};
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    job::{NewJob, insert_job},
    notify::notify,
    pipeline::{NewPipeline, find_pipeline_of_tip, insert_pipeline, insert_waiting_promotion},
    repository as store,
};
use sluice_vcs::repository::CommitInfo;

use tokio_util::sync::CancellationToken;

use crate::{
    Actor, App, Error, Result,
    context::commit,
    pipeline::{self, url},
    repository::{blocking, folder},
};

/// One branch tip and what its commit asks for.
struct Tip {
    branch: String,
    sha: String,
    commit: CommitInfo,
    wish: Wish,
}

enum Wish {
    /// No pipeline file, or one that does not name this branch.
    Nothing,
    Broken(Vec<FileError>),
    Planned(Box<Plan>),
}

/// Starts the pipelines of every branch tip that was not considered yet, and gives their ids.
///
/// # Errors
/// When there is no such repository, or git or the database fails; nothing is noted then.
pub async fn scan(app: &App, actor: &Actor, repository: &str) -> Result<Vec<i64>> {
    let mut tx = app.begin().await?;
    let row = store::lock_repository(&mut tx, repository).await?;
    let known = store::list_branch_tips(&mut tx, row.id).await?;
    let path = folder(app, repository);
    let heads = blocking({
        let path = path.clone();
        move || sluice_vcs::repository::branch_heads(&path)
    })
    .await?;
    let now = app.clock.now();
    for branch in known.keys().filter(|branch| !heads.contains_key(*branch)) {
        store::delete_branch_tip(&mut tx, row.id, branch).await?;
    }
    let mut started = Vec::new();
    for (branch, sha) in heads.into_iter().filter(|(branch, sha)| known.get(branch) != Some(sha)) {
        let tip = consider(path.clone(), repository.to_owned(), branch, sha).await?;
        if let Some(id) = start(app, &mut tx, actor, row.id, &tip).await? {
            started.push(id);
        }
        store::upsert_branch_tip(&mut tx, row.id, &tip.branch, &tip.sha, now).await?;
    }
    commit(tx).await?;
    Ok(started)
}

/// [`scan`] of every repository, for the start of the server. A repository that cannot be read is logged and
/// passed over.
///
/// # Errors
/// When the database fails.
pub async fn scan_all(app: &App) -> Result<usize> {
    let (mut after, mut started) = (0, 0);
    loop {
        let mut db = app.connection().await?;
        let page = store::list_repositories(&mut db, after, 100).await?;
        drop(db);
        let Some(last) = page.last() else { return Ok(started) };
        after = last.id;
        for repository in page {
            match scan(app, &Actor::system(), &repository.name).await {
                Ok(ids) => started += ids.len(),
                Err(error @ Error::Unavailable(_)) => return Err(error),
                Err(error) => tracing::error!(repository.name, error = ?error, "branches not scanned"),
            }
        }
    }
}

/// Scans every repository now, for what a crash left undone, and then once a minute until `shutdown`.
pub async fn run(app: App, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        let pause = match scan_all(&app).await {
            Ok(_) => Duration::from_secs(60),
            Err(error) => {
                tracing::warn!(error = format!("{:#}", anyhow::Error::from(error)), "repositories could not be scanned");
                Duration::from_secs(2)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// The lines that tell the user which pipelines a push started, for `remote:`.
///
/// # Errors
/// When the database fails.
pub async fn describe_push(app: &App, repository: &str, tips: &[(String, String)]) -> Result<Vec<String>> {
    let mut db = app.connection().await?;
    let Some(row) = store::find_repository(&mut db, repository).await? else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for (branch, sha) in tips {
        let Some(pipeline) = find_pipeline_of_tip(&mut db, row.id, branch, sha).await? else { continue };
        lines.push(format!("pipeline #{}  {}", pipeline.id, url(app, pipeline.id)));
        if *pipeline.status == PipelineStatus::Failed {
            lines.push(format!("pipeline #{} failed: {}", pipeline.id, pipeline.status_reason));
        }
    }
    Ok(lines)
}

/// Reads the pipeline file at a tip and makes its plan.
async fn consider(folder: PathBuf, repository: String, branch: String, sha: String) -> Result<Tip> {
    blocking(move || {
        let commit = sluice_vcs::repository::commit_info(&folder, &sha)?;
        let wish = match read_text(&folder, &sha, PIPELINE_FILE) {
            Ok(None) => Wish::Nothing,
            Ok(Some(source)) => match sluice_ci::plan(&source, &repository, &|path| read_text(&folder, &sha, path).unwrap_or_default()) {
                Ok(pipeline) if pipeline.runs_on_branch(&branch) => Wish::Planned(Box::new(pipeline.plan)),
                Ok(_) => Wish::Nothing,
                Err(errors) => Wish::Broken(errors),
            },
            Err(message) => Wish::Broken(vec![FileError {
                file: PIPELINE_FILE.to_owned(),
                message,
                field: String::new(),
                line: None,
                column: None,
                snippet: String::new(),
            }]),
        };
        Ok(Tip { branch, sha, commit, wish })
    })
    .await
}

/// The text of a file at a commit; an error is a sentence for the author of the commit.
fn read_text(folder: &Path, sha: &str, path: &str) -> std::result::Result<Option<String>, String> {
    match sluice_vcs::repository::read_file(folder, sha, path) {
        Ok(Some(bytes)) if bytes.contains(&0) => Err("the file holds a NUL byte: it must be UTF-8 text".to_owned()),
        Ok(Some(bytes)) => String::from_utf8(bytes).map(Some).map_err(|_| "the file is not UTF-8 text".to_owned()),
        Ok(None) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes the pipeline that a tip asks for, if any.
async fn start(app: &App, db: &mut PgConnection, actor: &Actor, repository_id: i64, tip: &Tip) -> Result<Option<i64>> {
    let now = app.clock.now();
    let mut new = NewPipeline {
        repository_id,
        branch: &tip.branch,
        sha: &tip.sha,
        commit_subject: &tip.commit.subject,
        commit_author: &tip.commit.author,
        status: PipelineStatus::Running,
        status_reason: "",
        file_errors: None,
        plan: None,
        at: now,
    };
    let reason;
    let plan = match &tip.wish {
        Wish::Nothing => return Ok(None),
        Wish::Broken(errors) => {
            reason = errors.first().map_or_else(|| "the pipeline file is broken".to_owned(), summary);
            new.status = PipelineStatus::Failed;
            new.status_reason = &reason;
            new.file_errors = Some(to_json(errors)?);
            None
        }
        Wish::Planned(plan) => {
            new.plan = Some(to_json(plan)?);
            Some(plan)
        }
    };
    let id = insert_pipeline(db, &new).await?;
    let detail = json!({ "branch": tip.branch, "sha": tip.sha, "status": new.status });
    insert_audit(db, now, &actor.0, "pipeline.started", &format!("pipeline:{id}"), &detail).await?;
    if let Some(plan) = plan {
        insert_jobs(db, id, plan, now).await?;
        if let Some(promote) = &plan.promote {
            insert_waiting_promotion(db, id, &promote.model, &promote.alias, now).await?;
        }
        pipeline::settle(app, db, id).await?;
        notify(db, "queue").await?;
    }
    notify(db, &format!("pipeline:{id}")).await?;
    Ok(Some(id))
}

async fn insert_jobs(db: &mut PgConnection, pipeline_id: i64, plan: &Plan, at: chrono::DateTime<chrono::Utc>) -> Result<()> {
    for job in &plan.jobs {
        let new = NewJob {
            pipeline_id,
            name: &job.name,
            kind: job.work.kind(),
            spec: to_json(job)?,
            needs: &job.needs,
            requires: &job.requires,
            cpus: i32::try_from(job.resources.cpus).unwrap_or(i32::MAX),
            status: if job.needs.is_empty() { JobStatus::Queued } else { JobStatus::Pending },
            at,
        };
        insert_job(db, &new).await?;
    }
    Ok(())
}

/// `FILE:LINE:COLUMN: MESSAGE`
fn summary(error: &FileError) -> String {
    let mut text = error.file.clone();
    for number in [error.line, error.column].into_iter().flatten() {
        text.push_str(&format!(":{number}"));
    }
    if !error.field.is_empty() {
        text.push_str(&format!(": {}", error.field));
    }
    format!("{text}: {}", error.message)
}

fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
}
