//! Advancing one promotion: register, collect, evaluate, and record the outcome in one transaction.

use std::collections::BTreeMap;

use anyhow::anyhow;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sluice_domain::{
    gate::{GateOutcome, GatePolicy},
    id::RunId,
    plan::{DeploySpec, Plan, PromoteSpec},
    state::{JobStatus, PromotionStatus, Verdict},
};
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    deployment::NewDeployment,
    gate_input::{self, JobInput},
    gate_record::{GateRecordRow, insert_gate_record},
    model_alias::{Why, find_holder, move_alias},
    model_version::{NewVersion, find_version_of_pipeline, insert_version},
    notify::notify,
    promotion::{self, PromotionRow},
    registered_model::{insert_registered_model, lock_registered_model},
};

use super::{
    evidence::{Artifact, Collected, collect, with_faults},
    view::{from_json, from_text},
};
use crate::{App, Error, Result, context::commit};

/// How often a promotion is judged again because the alias moved meanwhile.
const MAX_EVALUATIONS: usize = 5;

/// Advances every promotion whose jobs have ended. Returns how many there were.
///
/// # Errors
/// When they cannot be listed. A promotion that cannot be advanced is logged and tried again next time.
pub async fn tick(app: &App) -> Result<usize> {
    let due = {
        let mut db = app.connection().await?;
        promotion::list_due_promotions(&mut db).await?
    };
    for id in &due {
        if let Err(error) = advance(app, *id).await {
            tracing::error!(promotion.id = id, error = format!("{:#}", anyhow::Error::from(error)), "promotion could not be advanced");
        }
    }
    Ok(due.len())
}

/// Judges a waiting promotion if its jobs have ended; otherwise does nothing.
///
/// # Errors
/// When the database fails or the alias keeps moving.
pub async fn advance(app: &App, id: i64) -> Result<()> {
    for _ in 0..MAX_EVALUATIONS {
        if try_advance(app, id).await? == Step::Done {
            return Ok(());
        }
    }
    Err(Error::Unavailable(anyhow!("the alias moved {MAX_EVALUATIONS} times while promotion {id} was judged")))
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There is nothing more to do now.
    Done,
    /// The champion that was judged is not the holder any more: nothing was written.
    ChampionMoved,
}

async fn try_advance(app: &App, id: i64) -> Result<Step> {
    let mut tx = app.begin().await?;
    let row = promotion::lock_promotion(&mut tx, id).await?;
    if from_text::<PromotionStatus>("promotion status", &row.status)? != PromotionStatus::Waiting {
        return Ok(Step::Done);
    }
    let pipeline = gate_input::get_pipeline_input(&mut tx, row.pipeline_id).await?;
    let Some(plan) = pipeline.plan.map(|plan| from_json::<Plan>("plan", plan)).transpose()? else { return Ok(Step::Done) };
    let Some(promote) = plan.promote.clone() else { return Ok(Step::Done) };
    let jobs: BTreeMap<_, _> =
        gate_input::list_job_inputs(&mut tx, row.pipeline_id).await?.into_iter().map(|job| (job.name.clone(), job)).collect();
    match readiness(&promote, &jobs)? {
        Readiness::NotYet => return Ok(Step::Done),
        Readiness::Never(reason) => {
            close(app, &mut tx, &row, PromotionStatus::Cancelled, &reason).await?;
            commit(tx).await?;
            return Ok(Step::Done);
        }
        Readiness::Ready => {}
    }
    let Some(version) = register(app, &mut tx, &row, &promote, &jobs, &pipeline.commit_subject, &pipeline.commit_author).await? else {
        let reason = format!("job {} left no files in output {}: there is nothing to register", promote.from.job, promote.from.output);
        close(app, &mut tx, &row, PromotionStatus::Blocked, &reason).await?;
        commit(tx).await?;
        return Ok(Step::Done);
    };
    commit(tx).await?;

    let collected = {
        let mut db = app.connection().await?;
        collect(&mut db, id, version, &plan, &promote, &jobs).await?
    };
    // resampling is work for a processor, not for the reactor
    let policy = promote.policy.clone();
    let (outcome, collected) = tokio::task::spawn_blocking(move || {
        let outcome = sluice_ci::gate::evaluate(&policy, &collected.evidence);
        (with_faults(outcome, &collected.faults), collected)
    })
    .await
    .map_err(|error| Error::Internal(error.into()))?;
    record(app, &row, version, &promote, plan.deploy.as_ref(), &outcome, &collected).await
}

enum Readiness {
    NotYet,
    Ready,
    Never(String),
}

/// Whether the needed jobs let the gate be evaluated.
fn readiness(promote: &PromoteSpec, jobs: &BTreeMap<String, JobInput>) -> Result<Readiness> {
    let mut ready = Readiness::Ready;
    for name in &promote.needs {
        let Some(job) = jobs.get(name) else { return Ok(Readiness::Never(format!("the pipeline has no job {name}"))) };
        match from_text::<JobStatus>("job status", &job.status)? {
            JobStatus::Succeeded => {}
            JobStatus::Pending | JobStatus::Queued | JobStatus::Running => ready = Readiness::NotYet,
            ended @ (JobStatus::Failed | JobStatus::Cancelled | JobStatus::Skipped) => {
                return Ok(Readiness::Never(format!("job {name} {}", describe(ended, &job.message))));
            }
        }
    }
    Ok(ready)
}

fn describe(status: JobStatus, message: &str) -> String {
    let verb = match status {
        JobStatus::Failed => "failed",
        JobStatus::Cancelled => "was cancelled",
        _ => "was skipped",
    };
    match message.lines().next().unwrap_or_default() {
        "" => verb.to_owned(),
        line => format!("{verb}: {line}"),
    }
}

/// Ends a promotion without a verdict.
async fn close(app: &App, db: &mut PgConnection, row: &PromotionRow, status: PromotionStatus, reason: &str) -> Result<()> {
    let now = app.clock.now();
    promotion::update_promotion_state(db, row.id, status.as_str(), reason, None, Some(now)).await?;
    let detail = json!({ "promotion": row.id, "pipeline": row.pipeline_id, "status": status, "reason": reason });
    insert_audit(db, now, &actor(row), "promotion.closed", &format!("model:{}", row.model_name), &detail).await?;
    announce(app, db, row).await
}

/// Settles the pipeline and tells everyone who watches.
async fn announce(app: &App, db: &mut PgConnection, row: &PromotionRow) -> Result<()> {
    notify(db, &format!("promotion:{}", row.id)).await?;
    crate::pipeline::settle(app, db, row.pipeline_id).await?;
    Ok(())
}

fn actor(row: &PromotionRow) -> String {
    format!("pipeline:{}", row.pipeline_id)
}

/// Registers the version of the pipeline, once. `None`: the output has no files.
async fn register(
    app: &App,
    db: &mut PgConnection,
    row: &PromotionRow,
    promote: &PromoteSpec,
    jobs: &BTreeMap<String, JobInput>,
    subject: &str,
    author: &str,
) -> Result<Option<i32>> {
    if let Some(version) = row.version {
        return Ok(Some(version));
    }
    let Some(job) = jobs.get(&promote.from.job) else { return Ok(None) };
    let files = gate_input::list_output_files(db, job.id, job.attempt, &promote.from.output).await?;
    let Some(source) = files.first().map(|file| folder_of(&file.uri, &file.path)) else { return Ok(None) };
    let now = app.clock.now();
    insert_registered_model(db, &promote.model, "", now).await?;
    let Some(model) = lock_registered_model(db, &promote.model).await? else { return Ok(None) };
    let version = if let Some(known) = find_version_of_pipeline(db, model.id, row.pipeline_id).await? {
        known
    } else {
        let new = NewVersion {
            source: &source,
            storage_uri: &source,
            run_id: job.run_id.map(RunId),
            logged_model_id: None,
            run_link: "",
            description: subject,
            user_id: author,
            pipeline_id: Some(row.pipeline_id),
        };
        let version = insert_version(db, model.id, &new, now).await?;
        let detail = json!({ "version": version, "pipeline": row.pipeline_id, "source": source });
        insert_audit(db, now, &actor(row), "version.registered", &format!("model:{}", promote.model), &detail).await?;
        version
    };
    promotion::update_promotion_version(db, row.id, version).await?;
    Ok(Some(version))
}

/// The folder that an output's files lie in: the URI of one of them without its path in the output.
fn folder_of(uri: &str, path: &str) -> String {
    uri.strip_suffix(path).unwrap_or(uri).trim_end_matches('/').to_owned()
}

/// Writes the gate record and everything that follows from the verdict.
async fn record(
    app: &App,
    judged: &PromotionRow,
    version: i32,
    promote: &PromoteSpec,
    deploy: Option<&DeploySpec>,
    outcome: &GateOutcome,
    collected: &Collected,
) -> Result<Step> {
    let champion = collected.evidence.champion_version;
    let mut tx = app.begin().await?;
    let row = promotion::lock_promotion(&mut tx, judged.id).await?;
    if row.status != judged.status {
        return Ok(Step::Done);
    }
    let passed = outcome.verdict == Verdict::Pass;
    if !passed && find_holder(&mut tx, &row.model_name, &row.alias).await? != champion {
        return Ok(Step::ChampionMoved);
    }
    let now = app.clock.now();
    let subject = format!("model:{}", row.model_name);
    let artifact = collected.artifact.as_ref();
    let policy = to_json(&promote.policy)?;
    let gate_record = insert_gate_record(
        &mut tx,
        &GateRecordRow {
            id: 0,
            promotion_id: row.id,
            model_name: row.model_name.clone(),
            version,
            alias: row.alias.clone(),
            champion_version: champion,
            verdict: outcome.verdict.as_str().to_owned(),
            policy_sha256: policy_digest(&promote.policy)?,
            policy,
            checks: to_json(&outcome.checks)?,
            evidence: to_json(&collected.evidence)?,
            artifact_sha256: artifact.map(|artifact| artifact.sha256.clone()),
            artifact_uri: artifact.map(|artifact| artifact.uri.clone()),
            approved_by: collected.evidence.approved_by.clone(),
            created_at: now,
        },
    )
    .await?;
    let detail = json!({
        "version": version, "alias": row.alias, "gate_record": gate_record, "verdict": outcome.verdict, "reason": outcome.reason,
        "champion": champion, "artifact_sha256": artifact.map(|artifact| &artifact.sha256),
    });
    insert_audit(&mut tx, now, &actor(&row), "gate.evaluated", &subject, &detail).await?;
    let (status, reason) = standing(outcome, &row, version, champion);
    if passed {
        let why = format!("promotion {}: the gate passed", row.id);
        let why = Why { gate_record_id: Some(gate_record), reason: &why, actor: &actor(&row), at: now };
        // the comparison holds for the champion that was judged, and for no other
        match move_alias(&mut tx, &row.model_name, &row.alias, champion, version, why).await {
            Ok(Ok(())) => {}
            Ok(Err(_holder)) => return Ok(Step::ChampionMoved),
            Err(sluice_store::Error::NotFound { .. }) => {
                drop(tx);
                return withdraw(app, judged.id, version).await;
            }
            Err(error) => return Err(error.into()),
        }
        let detail = json!({ "alias": row.alias, "from": champion, "to": version, "gate_record": gate_record, "reason": why.reason });
        insert_audit(&mut tx, now, &actor(&row), "alias.moved", &subject, &detail).await?;
    }
    if let (true, Some(deploy), Some(artifact)) = (passed, deploy.filter(|deploy| deploy.alias == row.alias), artifact) {
        start_deployment(&mut tx, &row, version, deploy, artifact, gate_record, now).await?;
    }
    let finished = (status != PromotionStatus::WaitingApproval).then_some(now);
    promotion::update_promotion_state(&mut tx, row.id, status.as_str(), &reason, Some(gate_record), finished).await?;
    announce(app, &mut tx, &row).await?;
    commit(tx).await?;
    tracing::info!(promotion.id = row.id, model = row.model_name, version, verdict = %outcome.verdict, reason, "gate evaluated");
    Ok(Step::Done)
}

/// Ends a promotion whose version was deleted while it was judged.
async fn withdraw(app: &App, id: i64, version: i32) -> Result<Step> {
    let mut tx = app.begin().await?;
    let row = promotion::lock_promotion(&mut tx, id).await?;
    close(app, &mut tx, &row, PromotionStatus::Cancelled, &format!("version {version} was deleted")).await?;
    commit(tx).await?;
    Ok(Step::Done)
}

/// Where a verdict leaves the promotion, and why, in one line.
fn standing(outcome: &GateOutcome, row: &PromotionRow, version: i32, champion: Option<i32>) -> (PromotionStatus, String) {
    match outcome.verdict {
        Verdict::Pass => {
            let before = champion.map_or_else(|| "nobody held it before".to_owned(), |champion| format!("version {champion} before"));
            (PromotionStatus::Promoted, format!("version {version} is {} ({before})", row.alias))
        }
        Verdict::NoBaseline => {
            let alias = if row.alias == "champion" { String::new() } else { format!(" --alias {}", row.alias) };
            let reason = format!("no champion to compare with: run `sluice approve {} {version}{alias}`", row.model_name);
            (PromotionStatus::WaitingApproval, reason)
        }
        Verdict::Fail | Verdict::Inconclusive | Verdict::Error => (PromotionStatus::Blocked, outcome.reason.clone()),
    }
}

async fn start_deployment(
    db: &mut PgConnection,
    row: &PromotionRow,
    version: i32,
    deploy: &DeploySpec,
    artifact: &Artifact,
    gate_record: i64,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<()> {
    let actor = actor(row);
    let new = NewDeployment {
        environment: &deploy.to,
        model: &row.model_name,
        version,
        artifact_uri: &artifact.uri,
        artifact_sha256: &artifact.sha256,
        gate_record_id: gate_record,
        rollback: None,
        actor: &actor,
        at: now,
    };
    crate::deployment::request(db, &new).await?;
    Ok(())
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::Internal(error.into()))
}

/// SHA-256 of the policy as compact JSON.
fn policy_digest(policy: &GatePolicy) -> Result<String> {
    let text = serde_json::to_vec(policy).map_err(|error| Error::Internal(error.into()))?;
    Ok(Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_the_folder_of_the_output() {
        assert_eq!(
            folder_of("mlflow-artifacts:/1/r/artifacts/outputs/model/MLmodel", "MLmodel"),
            "mlflow-artifacts:/1/r/artifacts/outputs/model"
        );
        assert_eq!(folder_of("mlflow-artifacts:/1/o/model/data/model.pth", "data/model.pth"), "mlflow-artifacts:/1/o/model");
    }

    fn job(name: &str, status: &str) -> (String, JobInput) {
        let job =
            JobInput { id: 1, name: name.to_owned(), status: status.to_owned(), message: "exit 1".to_owned(), attempt: 1, run_id: None };
        (name.to_owned(), job)
    }

    #[test]
    fn a_gate_waits_for_every_needed_job_and_for_no_other() {
        let promote: PromoteSpec = serde_json::from_value(json!({
            "model": "digits", "alias": "champion", "from": { "job": "train", "output": "model" }, "needs": ["train", "bench"],
            "gate_file": "gate.yml", "policy": { "checks": [] },
        }))
        .unwrap();
        let ready = |jobs: Vec<(String, JobInput)>| readiness(&promote, &jobs.into_iter().collect()).unwrap();
        assert!(matches!(ready(vec![job("train", "succeeded"), job("bench", "running")]), Readiness::NotYet));
        assert!(matches!(ready(vec![job("train", "succeeded"), job("bench", "succeeded"), job("trt", "queued")]), Readiness::Ready));
        let Readiness::Never(reason) = ready(vec![job("train", "running"), job("bench", "failed")]) else { panic!("a failed job ends it") };
        assert_eq!(reason, "job bench failed: exit 1");
        assert!(matches!(ready(vec![job("train", "succeeded")]), Readiness::Never(_)));
    }
}
