//! Runners: registration, the list, and handing out jobs under leases.

use std::time::Duration;

use base64::Engine as _;
use chrono::{DateTime, TimeDelta, Utc};
use rand::Rng as _;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sluice_domain::{
    id::RunId,
    names::check_slug,
    plan::{JobSpec, Work},
    runner::{Assignment, ChampionInputs, Claim, InputFile, RegisterRunner, RegisteredRunner},
    state::{AttemptStatus, Cause, JobStatus, RunStatus},
    tracking::KeyValue,
};
use sluice_store::{
    PgConnection, Postgres, Transaction,
    audit::insert_audit,
    job::{JobChange, JobRow, claim_queued_job, find_champion_pipeline, list_jobs, lock_job, update_job_started, update_job_status},
    job_attempt::{AttemptEnd, insert_attempt, list_outputs, list_running_attempts_of_runner},
    job_run::{ensure_experiment, update_job_run_continued},
    notify::notify,
    pipeline::{PipelineRow, get_pipeline, lock_pipeline},
    runner::{self as store, RunnerRegistration, RunnerRow},
};
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use crate::{
    Actor, App, Error, Result, attempt,
    context::commit,
    job::advance,
    run::{NewRun, create_run_in},
};

/// A runner that was not heard of for this long counts as offline.
pub const OFFLINE_AFTER: TimeDelta = TimeDelta::seconds(60);

/// The server holds a claim open for at most this long.
const MAX_WAIT_SECS: u32 = 30;

/// While a claim waits, it looks at the queue at least this often, should a notice be lost.
const POLL: Duration = Duration::from_secs(5);

/// A runner, as shown to users.
#[derive(Debug, Clone, Serialize)]
pub struct Runner {
    pub name: String,
    /// `idle`, `busy` or `offline`.
    pub status: &'static str,
    pub capabilities: Vec<String>,
    pub cpus: i32,
    pub version: String,
    pub registered_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    /// Jobs that it runs now.
    pub jobs: Vec<i64>,
}

/// Lists runners by name, after `after`.
///
/// # Errors
/// When the database fails.
pub async fn list_runners(app: &App, after: &str, limit: i64) -> Result<Vec<Runner>> {
    let mut db = app.connection().await?;
    let rows = store::list_runners(&mut db, after, limit).await?;
    let now = app.clock.now();
    Ok(rows.into_iter().map(|row| view(row, now)).collect())
}

fn view(row: RunnerRow, now: DateTime<Utc>) -> Runner {
    let status = match (now - row.last_seen_at < OFFLINE_AFTER, row.jobs.is_empty()) {
        (false, _) => "offline",
        (true, true) => "idle",
        (true, false) => "busy",
    };
    Runner {
        name: row.name,
        status,
        capabilities: row.capabilities,
        cpus: row.cpus,
        version: row.version,
        registered_at: row.registered_at,
        last_seen_at: row.last_seen_at,
        jobs: row.jobs,
    }
}

/// Registers a runner. A name that is known gets a new token, and what the runner was doing under the old
/// one is lost: it has been started anew.
///
/// # Errors
/// When a field is not allowed.
pub async fn register_runner(app: &App, request: &RegisterRunner) -> Result<RegisteredRunner> {
    check_slug(&request.name, 100, "runner name").map_err(|message| Error::invalid("name", message))?;
    if request.capabilities.len() > 64 {
        return Err(Error::invalid("capabilities", format!("capabilities: {} given, at most 64 are allowed", request.capabilities.len())));
    }
    for (index, capability) in request.capabilities.iter().enumerate() {
        let field = format!("capabilities[{index}]");
        check_slug(capability, 100, "capability").map_err(|message| Error::invalid(&field, format!("{field}: {message}")))?;
    }
    let cpus = i32::try_from(request.cpus)
        .ok()
        .filter(|cpus| (1..=4096).contains(cpus))
        .ok_or_else(|| Error::invalid("cpus", format!("cpus {} must be 1 to 4096", request.cpus)))?;
    if request.version.len() > 100 || request.version.chars().any(char::is_control) {
        return Err(Error::invalid("version", "version must be at most 100 bytes without control characters"));
    }
    let token = new_token("sluice_runner_");
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let registration = RunnerRegistration {
        name: &request.name,
        token_sha256: &digest(&token),
        capabilities: &request.capabilities,
        cpus,
        version: &request.version,
        at: now,
    };
    let id = store::upsert_runner(&mut tx, Uuid::new_v4(), &registration).await?;
    let detail = json!({ "capabilities": request.capabilities, "cpus": cpus, "version": request.version });
    insert_audit(&mut tx, now, &actor(&request.name), "runner.registered", &format!("runner:{}", request.name), &detail).await?;
    notify(&mut tx, &format!("runner:{id}")).await?;
    commit(tx).await?;
    // The old token is dead by now, so this list cannot grow; what a crash leaves undone, lease expiry does.
    let mut db = app.connection().await?;
    let lost = list_running_attempts_of_runner(&mut db, id).await?;
    drop(db);
    for row in lost {
        attempt::lose(app, row.job_id, row.attempt, "its runner was started anew").await?;
    }
    Ok(RegisteredRunner { runner_id: id.simple().to_string(), token })
}

/// Hands out the oldest job that fits the runner, waiting up to `wait_secs` for one.
///
/// # Errors
/// When the token is not a runner's or a field is out of range.
pub async fn claim(app: &App, token: &str, request: &Claim) -> Result<Option<Assignment>> {
    if request.wait_secs > MAX_WAIT_SECS {
        return Err(Error::invalid("wait_secs", format!("wait_secs {} must be at most {MAX_WAIT_SECS}", request.wait_secs)));
    }
    let free_cpus = i32::try_from(request.free_cpus)
        .ok()
        .filter(|cpus| *cpus <= 4096)
        .ok_or_else(|| Error::invalid("free_cpus", format!("free_cpus {} must be at most 4096", request.free_cpus)))?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(request.wait_secs.into());
    loop {
        // armed before the query: a job that is queued after the query wakes this claim
        let mut notices = app.notices.subscribe();
        if let Some(assignment) = try_claim(app, token, free_cpus).await? {
            return Ok(Some(assignment));
        }
        let now = tokio::time::Instant::now();
        if now >= deadline {
            return Ok(None);
        }
        let wait = async {
            loop {
                match notices.recv().await {
                    Ok(notice) if notice != "queue" && notice != "resync" => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    // no listener runs in this process: fall back to polling
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let _ = tokio::time::timeout(POLL.min(deadline - now), wait).await;
    }
}

/// Tries once. Jobs that cannot be handed out are failed on the way, so that they do not block the queue.
async fn try_claim(app: &App, token: &str, free_cpus: i32) -> Result<Option<Assignment>> {
    loop {
        match try_claim_one(app, token, free_cpus).await? {
            Claiming::Assigned(assignment) => return Ok(Some(*assignment)),
            Claiming::NoJob => return Ok(None),
            Claiming::Refused => {}
        }
    }
}

enum Claiming {
    Assigned(Box<Assignment>),
    NoJob,
    Refused,
}

/// Fails a job that cannot be started.
async fn refuse(app: &App, tx: Transaction<'static, Postgres>, job: &JobRow, message: &str) -> Result<Claiming> {
    tx.rollback().await.map_err(sluice_store::Error::from)?;
    let mut tx = app.begin().await?;
    lock_pipeline(&mut tx, job.pipeline_id).await?;
    let job = lock_job(&mut tx, job.id).await?;
    if *job.status == JobStatus::Queued {
        let now = app.clock.now();
        let change = JobChange { status: JobStatus::Failed, cause: Some(Cause::User), message, at: now };
        update_job_status(&mut tx, job.id, &change).await?;
        insert_audit(&mut tx, now, &Actor::system().0, "job.finished", &format!("job:{}", job.id), &json!({ "message": message })).await?;
        notify(&mut tx, &format!("job:{}", job.id)).await?;
        advance(app, &mut tx, job.pipeline_id).await?;
    }
    commit(tx).await?;
    Ok(Claiming::Refused)
}

async fn try_claim_one(app: &App, token: &str, free_cpus: i32) -> Result<Claiming> {
    let now = app.clock.now();
    let mut tx = app.begin().await?;
    let runner = store::find_runner_by_token(&mut tx, &digest(token))
        .await?
        .ok_or_else(|| Error::Unauthenticated("the bearer token is not that of a registered runner".to_owned()))?;
    store::update_runner_seen(&mut tx, runner.id, now).await?;
    let Some(job) = claim_queued_job(&mut tx, &runner.capabilities, free_cpus).await? else {
        commit(tx).await?;
        return Ok(Claiming::NoJob);
    };
    let spec: JobSpec = match serde_json::from_value(job.spec.clone()) {
        Ok(spec) => spec,
        Err(error) => return refuse(app, tx, &job, &format!("its plan cannot be read: {error}")).await,
    };
    let pipeline = get_pipeline(&mut tx, job.pipeline_id).await?;
    let run_id = match start_run(app, &mut tx, &pipeline, &job, &spec).await {
        Ok(run_id) => run_id,
        Err(error @ (Error::Invalid { .. } | Error::NotFound(_))) => return refuse(app, tx, &job, &error.to_string()).await,
        Err(error) => return Err(error),
    };
    let attempt = update_job_started(&mut tx, job.id, run_id, now).await?;
    let token = new_token("sluice_job_");
    insert_attempt(&mut tx, job.id, attempt, runner.id, &digest(&token), now, now + lease(app)).await?;
    let detail = json!({ "attempt": attempt });
    insert_audit(&mut tx, now, &actor(&runner.name), "job.started", &format!("job:{}", job.id), &detail).await?;
    for notice in [format!("job:{}", job.id), format!("pipeline:{}", job.pipeline_id), format!("run:{}", run_id.simple())] {
        notify(&mut tx, &notice).await?;
    }
    let inputs = inputs(&mut tx, job.pipeline_id, &spec.needs).await?;
    let champion = champion(&mut tx, &spec).await?;
    commit(tx).await?;
    Ok(Claiming::Assigned(Box::new(Assignment {
        job_id: job.id,
        attempt,
        token,
        lease_secs: lease_secs(app),
        pipeline_id: job.pipeline_id,
        git_path: format!("/git/{}.git", pipeline.repository),
        repository: pipeline.repository,
        branch: pipeline.branch,
        sha: pipeline.sha,
        job: spec,
        run_id: RunId(run_id),
        inputs,
        champion,
    })))
}

/// The job's tracking run: made at the first attempt, taken up again by later ones.
async fn start_run(app: &App, db: &mut PgConnection, pipeline: &PipelineRow, job: &JobRow, spec: &JobSpec) -> Result<Uuid> {
    if let Some(run_id) = job.run_id {
        update_job_run_continued(db, run_id, RunStatus::Running).await?;
        return Ok(run_id);
    }
    let experiment_id = ensure_experiment(db, &spec.experiment, app.clock.now()).await?;
    let source = match &spec.work {
        Work::Torchrun { script, .. } => script.clone(),
        _ => pipeline.repository.clone(),
    };
    let tags = [
        ("mlflow.user", "sluice".to_owned()),
        ("mlflow.source.type", "JOB".to_owned()),
        ("mlflow.source.name", source),
        ("mlflow.source.git.commit", pipeline.sha.clone()),
        ("mlflow.source.git.branch", pipeline.branch.clone()),
        ("sluice.repository", pipeline.repository.clone()),
        ("sluice.pipeline", pipeline.id.to_string()),
        ("sluice.job_name", job.name.clone()),
    ]
    .map(|(key, value)| KeyValue { key: key.to_owned(), value });
    let new =
        NewRun { user_id: "sluice".to_owned(), name: format!("{}-{}", job.name, pipeline.id), start_time_ms: None, tags: tags.to_vec() };
    Ok(create_run_in(db, app, experiment_id, new, Some(job.id)).await?.0)
}

/// The outputs of some jobs of a pipeline.
async fn inputs(db: &mut PgConnection, pipeline_id: i64, names: &[String]) -> Result<Vec<InputFile>> {
    let jobs = list_jobs(db, &[pipeline_id]).await?;
    let jobs: Vec<_> = jobs.into_iter().filter(|job| names.contains(&job.name) && *job.status == JobStatus::Succeeded).collect();
    let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    let outputs = list_outputs(db, &ids).await?;
    Ok(outputs
        .into_iter()
        .filter_map(|output| {
            let job = jobs.iter().find(|job| job.id == output.job_id)?.name.clone();
            Some(InputFile { job, output: output.name, path: output.path, uri: output.uri, sha256: output.sha256, bytes: output.bytes })
        })
        .collect())
}

/// For a benchmark: what the needed jobs of the champion's own pipeline left behind.
async fn champion(db: &mut PgConnection, spec: &JobSpec) -> Result<Option<ChampionInputs>> {
    let Work::Benchmark(benchmark) = &spec.work else { return Ok(None) };
    let Some(against) = &benchmark.against else { return Ok(None) };
    // a version that no pipeline registered has no outputs to measure: like no champion
    let Some((version, Some(pipeline_id))) = find_champion_pipeline(db, &against.model, &against.alias).await? else { return Ok(None) };
    let inputs = inputs(db, pipeline_id, &spec.needs).await?;
    Ok((!inputs.is_empty()).then(|| ChampionInputs { model: against.model.clone(), version, inputs }))
}

/// Name of a runner in audit rows.
pub(crate) fn actor(runner: &str) -> String {
    format!("runner:{runner}")
}

pub(crate) fn digest(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

pub(crate) fn lease(app: &App) -> TimeDelta {
    TimeDelta::from_std(app.settings.lease).unwrap_or(TimeDelta::MAX)
}

pub(crate) fn lease_secs(app: &App) -> u32 {
    u32::try_from(app.settings.lease.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// A secret of 32 random bytes: the prefix and 43 characters.
fn new_token(prefix: &str) -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill(&mut bytes);
    format!("{prefix}{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

/// Ends an attempt whose runner is gone.
pub(crate) const fn lost<'a>(message: &'a str, at: DateTime<Utc>) -> AttemptEnd<'a> {
    AttemptEnd { status: AttemptStatus::Lost, cause: Some(Cause::Lost), exit_code: None, message, steps: None, at }
}
