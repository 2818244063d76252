//! One attempt from its assignment to its acknowledged result.

use std::{sync::Arc, time::Duration};

use sluice_client::{Client, RetryPolicy, retry};
use sluice_domain::{
    runner::{Assignment, JobResult},
    state::{AttemptStatus, Cause},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    RunnerConfig,
    context::Context,
    halt::{Failure, Halt, JobResultOf, io},
    log::Shipper,
    process::Containment,
    steps::Steps,
    stop::{Stop, StopReason},
    workspace::Folders,
};

/// Longest time between two renewals: also how fast a cancellation is seen.
const RENEW_AT_MOST: Duration = Duration::from_secs(2);
/// How long a runner that goes down waits for its last words to be heard.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Runs the attempt. Returns when its result is acknowledged or nobody wants it any more; no process is left then.
pub async fn run(config: Arc<RunnerConfig>, containment: Arc<Containment>, client: Client, assignment: Assignment, stop: Stop) {
    let (job, attempt) = (assignment.job_id, assignment.attempt);
    let client = client.with_token(&assignment.token);
    let steps = Arc::new(Steps::default());
    tracing::info!(job.id = job, job.attempt = attempt, job.name = %assignment.job.name, "job starts");
    let renewal = renew(client.clone(), job, attempt, Duration::from_secs(assignment.lease_secs.into()), Arc::clone(&steps), stop.clone());
    let (result, folders) = execute(config, &containment, &client, assignment, &steps, &stop).await;
    let status = result.status;
    let acknowledged = report(&client, job, attempt, result, &stop).await;
    renewal.abort();
    if let Some(folders) = folders {
        let _ = tokio::task::spawn_blocking(move || folders.remove()).await;
    }
    tracing::info!(job.id = job, job.attempt = attempt, %status, acknowledged, "job ended");
}

/// Does everything between the claim and the report.
async fn execute(
    config: Arc<RunnerConfig>,
    containment: &Arc<Containment>,
    client: &Client,
    assignment: Assignment,
    steps: &Arc<Steps>,
    stop: &Stop,
) -> (JobResult, Option<Folders>) {
    let name = format!("{}.{}", assignment.job_id, assignment.attempt);
    let prepared = async {
        let work_dir = config.work_dir.clone();
        let job = name.clone();
        let folders = crate::files::blocking("workspace", move || Folders::create(&work_dir, &job)).await?;
        let scope = containment.scope(&name).map_err(io("containment"))?;
        let secrets = vec![assignment.token.clone()];
        let (id, attempt) = (assignment.job_id, assignment.attempt);
        let started = Shipper::start(client.clone(), id, attempt, &folders.log_spool(), secrets, stop.clone()).await;
        let (log, shipper) = started.map_err(io("log spool"))?;
        Ok((folders, scope, log, shipper))
    };
    let (folders, scope, log, shipper) = match prepared.await {
        Ok(prepared) => prepared,
        Err(halt) => return (result_of(Err(halt), steps), None),
    };
    let context = Context {
        config,
        assignment,
        client: client.clone(),
        scope: Arc::new(scope),
        stop: stop.clone(),
        log,
        steps: Arc::clone(steps),
        folders: folders.clone(),
    };
    let outcome = all_steps(&context).await;
    if let Err(error) = context.scope.kill_all().await {
        tracing::error!(%error, "processes of the job are left");
    }
    let result = result_of(outcome, steps);
    if result.status != AttemptStatus::Succeeded {
        context.log.line(&format!("sluice: {}: {}", result.status, result.message)).await;
    }
    drop(context);
    // The log must be there before the result closes the attempt. Going down does not wait for a server that is away.
    let shipped = match stop.reason() {
        Some(StopReason::Shutdown) => timeout(SHUTDOWN_LIMIT, shipper.finish()).await.unwrap_or(Ok(())),
        _ => shipper.finish().await,
    };
    if let Err(error) = shipped {
        tracing::error!(%error, "the log is incomplete");
    }
    (result, Some(folders))
}

type Measured = Vec<sluice_domain::evidence::Evidence>;

async fn all_steps(context: &Context) -> JobResultOf<Measured> {
    let steps = &context.steps;
    steps.begin("checkout");
    context.checkout().await?;
    steps.end("succeeded", None);

    steps.begin("setup");
    let (environment, built) = context.set_up().await?;
    steps.end(if built { "succeeded" } else { "skipped" }, built.then_some(0));

    // The clock starts here: an environment is built for all jobs that share it, not for this one.
    let _clock = context.assignment.job.timeout_secs.map(|limit| Clock::start(Duration::from_secs(limit), context.stop.clone()));
    steps.begin("inputs");
    context.fetch_inputs().await?;
    steps.end(if context.assignment.inputs.is_empty() { "skipped" } else { "succeeded" }, None);

    steps.begin("run");
    let evidence = context.do_work(&environment).await?;
    steps.end("succeeded", Some(0));

    steps.begin("outputs");
    context.upload_outputs().await?;
    steps.end(if context.assignment.job.outputs.is_empty() { "skipped" } else { "succeeded" }, None);
    Ok(evidence)
}

/// Stops the job when its time is up, unless dropped before.
struct Clock(JoinHandle<()>);

impl Clock {
    fn start(limit: Duration, stop: Stop) -> Self {
        let at = Instant::now() + limit;
        Self(tokio::spawn(async move {
            sleep_until(at).await;
            stop.request(StopReason::Timeout);
        }))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The report of an outcome. Ends the step that was running.
fn result_of(outcome: JobResultOf<Measured>, steps: &Steps) -> JobResult {
    let failed = |failure: Failure| (AttemptStatus::Failed, Some(failure.cause), failure.exit_code, failure.message);
    let ended = |cause, message: &str| (AttemptStatus::Failed, Some(cause), None, message.to_owned());
    let mut evidence = Vec::new();
    let (status, cause, exit_code, message) = match outcome {
        Ok(measured) => {
            evidence = measured;
            (AttemptStatus::Succeeded, None, Some(0), String::new())
        }
        Err(Halt::Failed(failure)) => failed(failure),
        Err(Halt::Stopped(StopReason::Cancelled)) => (AttemptStatus::Cancelled, Some(Cause::Cancelled), None, "cancelled".to_owned()),
        Err(Halt::Stopped(StopReason::Timeout)) => ended(Cause::Timeout, "the job's time is up"),
        // Counts as a fault of the machine: the server runs another attempt.
        Err(Halt::Stopped(StopReason::Shutdown)) => ended(Cause::Infra, "runner stopped"),
        Err(Halt::Stopped(StopReason::Stale)) => ended(Cause::Lost, "the lease is over"),
    };
    if status != AttemptStatus::Succeeded {
        steps.end("failed", exit_code);
    }
    JobResult { status, cause, exit_code, message, steps: steps.snapshot(), evidence }
}

/// Sends the result until it is acknowledged. False when nobody wants it.
async fn report(client: &Client, job: i64, attempt: i32, mut result: JobResult, stop: &Stop) -> bool {
    loop {
        let mut stale = stop.clone();
        let send = retry(RetryPolicy::forever(), "result", || client.report_result(job, attempt, &result));
        let going_down = async {
            let mut stop = stop.clone();
            stop.wait_for(StopReason::Shutdown).await;
            tokio::time::sleep(SHUTDOWN_LIMIT).await;
        };
        let sent = tokio::select! {
            biased;
            () = stale.wait_for(StopReason::Stale) => return false,
            sent = send => sent,
            () = going_down => {
                tracing::warn!(job.id = job, job.attempt = attempt, "the server is away; the lease will run out");
                return false;
            }
        };
        let Err(error) = sent else { return true };
        tracing::warn!(job.id = job, job.attempt = attempt, %error, "the server refuses the result");
        // What was measured is not acceptable (too large, say). Silence would count as a lost lease and repeat it all.
        if !matches!(error.status(), Some(400 | 413)) || result.evidence.is_empty() {
            return false;
        }
        let Halt::Failed(failure) = Halt::user(format!("the server refuses what was measured: {error}")) else { return false };
        let Failure { cause, message, .. } = failure;
        result = JobResult { status: AttemptStatus::Failed, cause: Some(cause), message, evidence: Vec::new(), exit_code: None, ..result };
    }
}

/// Keeps the lease, and hears of cancellations and of its end.
fn renew(client: Client, job: i64, attempt: i32, lease: Duration, steps: Arc<Steps>, stop: Stop) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut pause = pause_of(lease);
        loop {
            match client.renew(job, attempt, steps.snapshot()).await {
                Ok(renewed) => {
                    pause = pause_of(Duration::from_secs(renewed.lease_secs.into()));
                    if renewed.cancel {
                        stop.request(StopReason::Cancelled);
                    }
                }
                Err(error) if matches!(error.status(), Some(401 | 404 | 409)) => {
                    tracing::warn!(job.id = job, job.attempt = attempt, %error, "the lease is over; the job is dropped");
                    stop.request(StopReason::Stale);
                    return;
                }
                // Away or unwell: the job goes on, and if the lease runs out meanwhile, the server will say so.
                Err(error) => tracing::warn!(job.id = job, job.attempt = attempt, %error, "the lease was not renewed"),
            }
            tokio::time::sleep(pause).await;
        }
    })
}

fn pause_of(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_millis(100), RENEW_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_come_early_enough() {
        assert_eq!(pause_of(Duration::from_secs(60)), Duration::from_secs(2));
        assert_eq!(pause_of(Duration::from_secs(3)), Duration::from_secs(1));
        assert_eq!(pause_of(Duration::ZERO), Duration::from_millis(100));
    }

    #[test]
    fn outcomes_become_reports() {
        let report = |outcome| {
            let steps = Steps::default();
            steps.begin("run");
            result_of(outcome, &steps)
        };
        let done = report(Ok(Vec::new()));
        assert_eq!((done.status, done.cause), (AttemptStatus::Succeeded, None));
        let cancelled = report(Err(Halt::Stopped(StopReason::Cancelled)));
        assert_eq!(
            (cancelled.status, cancelled.cause, cancelled.steps[0].status.as_str()),
            (AttemptStatus::Cancelled, Some(Cause::Cancelled), "failed")
        );
        let down = report(Err(Halt::Stopped(StopReason::Shutdown)));
        assert_eq!((down.status, down.cause, down.message.as_str()), (AttemptStatus::Failed, Some(Cause::Infra), "runner stopped"));
        let failed = report(Err(Halt::failed(Cause::User, Some(3), "a\nb")));
        assert_eq!((failed.message.as_str(), failed.steps[0].exit_code), ("a b", Some(3)));
    }
}
