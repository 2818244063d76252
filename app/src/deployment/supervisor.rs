//! Keeps the processes of live deployments running, and switches from one to the next.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use serde_json::json;
use sluice_domain::state::DeploymentStatus;
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    deployment::{self, DeploymentRow},
    model_alias::Why,
    notify::notify,
};
use tokio::sync::{Notify, broadcast::error::RecvError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    files,
    local::{self, Instance, Launch, StartError},
};
use crate::{
    App, Error, Result,
    context::commit,
    promotion::{ROLLBACK, move_back},
};

/// How often deployments are looked at when nothing is announced.
const POLL: Duration = Duration::from_secs(2);
/// Wait before the second start of a process that crashed; doubles with each failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// What is served where: (environment, model).
type Target = (String, String);

/// The processes of this server's deployments. Cheap to clone; shared by the supervisor loop and by the
/// routes that serve predictions.
#[derive(Debug, Clone)]
pub struct Deployments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    app: App,
    runtime_roots: Vec<PathBuf>,
    client: reqwest::Client,
    routes: RwLock<HashMap<Target, Arc<Instance>>>,
    /// Targets that a worker is busy with.
    busy: Mutex<HashSet<Target>>,
    retries: Mutex<HashMap<i64, Retry>>,
    wake: Arc<Notify>,
    stop: CancellationToken,
    workers: TaskTracker,
}

/// When a deployment may be started again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    failures: u32,
    not_before: Instant,
}

enum Work {
    /// Bring up a new deployment and switch to it.
    Start(DeploymentRow),
    /// Bring the serving deployment back: this server is new, or its process crashed.
    Restart(DeploymentRow),
}

impl Deployments {
    /// Nothing runs yet; see [`Deployments::run`]. When the settings name no ONNX Runtime, it is looked for in
    /// Python environments below `runtime_roots` (a runner's cache) each time that a process is started.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(app: App, runtime_roots: Vec<PathBuf>) -> Result<Self> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(120))
            .build()
            .map_err(|error| Error::Internal(error.into()))?;
        Ok(Self(Arc::new(Inner {
            app,
            runtime_roots,
            client,
            routes: RwLock::default(),
            busy: Mutex::default(),
            retries: Mutex::default(),
            wake: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            workers: TaskTracker::new(),
        })))
    }

    /// Supervises until `shutdown`, then stops every process.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut notices = self.0.app.notices.subscribe();
        while !shutdown.is_cancelled() {
            if let Err(error) = self.tick().await {
                tracing::warn!(error = format!("{:#}", anyhow::Error::from(error)), "deployments could not be looked at");
            }
            let announced = async {
                loop {
                    match notices.recv().await {
                        Ok(notice) if !notice.starts_with("deployment:") && notice != "resync" => {}
                        Err(RecvError::Closed) => std::future::pending().await,
                        Ok(_) | Err(RecvError::Lagged(_)) => return,
                    }
                }
            };
            tokio::select! {
                () = announced => {}
                () = self.0.wake.notified() => {}
                () = tokio::time::sleep(POLL) => {}
                () = shutdown.cancelled() => {}
            }
        }
        self.shutdown().await;
    }

    /// Stops every process and waits for their ends.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.workers.close();
        self.0.workers.wait().await;
        let running: Vec<_> = self.routes_mut().drain().map(|(_, instance)| instance).collect();
        futures_util::future::join_all(running.iter().map(|instance| instance.stop())).await;
    }

    /// Gives every target that needs a process, and has nobody working on it, a worker. Returns how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tick(&self) -> Result<usize> {
        let live = {
            let mut db = self.0.app.connection().await?;
            deployment::list_live_deployments(&mut db).await?
        };
        let mut targets: HashMap<Target, Vec<DeploymentRow>> = HashMap::new();
        for row in live {
            targets.entry((row.environment.clone(), row.model_name.clone())).or_default().push(row);
        }
        let mut begun = 0;
        for (target, rows) in targets {
            if self.0.stop.is_cancelled() || self.busy().contains(&target) {
                continue;
            }
            let Some(work) = self.next_work(&target, rows) else { continue };
            self.busy().insert(target.clone());
            begun += 1;
            let this = self.clone();
            self.0.workers.spawn(async move {
                tokio::select! {
                    () = this.work(&target, work) => {}
                    () = this.0.stop.cancelled() => {}
                }
                this.busy().remove(&target);
                this.0.wake.notify_one();
            });
        }
        Ok(begun)
    }

    /// What serves now comes back first; then new deployments, in the order in which they were asked for.
    fn next_work(&self, target: &Target, rows: Vec<DeploymentRow>) -> Option<Work> {
        let running = self.instance(target);
        let is_served =
            |row: &DeploymentRow| running.as_ref().is_some_and(|instance| instance.deployment_id == row.id && instance.is_alive());
        let due = |row: &DeploymentRow| self.retries().get(&row.id).is_none_or(|retry| retry.not_before <= Instant::now());
        let (serving, starting): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.status == DeploymentStatus::Serving.as_str());
        let lost = serving.into_iter().find(|row| !is_served(row) && due(row)).map(Work::Restart);
        lost.or_else(|| starting.into_iter().next().filter(due).map(Work::Start))
    }

    async fn work(&self, target: &Target, work: Work) {
        let (row, is_new) = match work {
            Work::Start(row) => (row, true),
            Work::Restart(row) => (row, false),
        };
        let outcome = match self.launch(&row).await {
            Ok(instance) if is_new => self.switch(target, &row, instance).await,
            Ok(instance) => self.restore(target, &row, instance).await,
            Err(StartError::Failed(message)) if is_new => self.fail(&row, &message).await,
            Err(StartError::Failed(message)) => self.postpone(&row, &message).await,
            Err(StartError::Passing(error)) => Err(Error::Unavailable(error)),
        };
        if let Err(error) = outcome {
            // the row is as it was: tried again, later and later
            self.back_off(row.id);
            tracing::warn!(deployment.id = row.id, error = format!("{:#}", anyhow::Error::from(error)), "deployment postponed");
        }
    }

    async fn launch(&self, row: &DeploymentRow) -> std::result::Result<Instance, StartError> {
        let app = &self.0.app;
        let model_file = files::gated_model(app, row).await?;
        let onnxruntime = match &app.settings.onnxruntime {
            Some(path) => path.clone(),
            None => {
                let roots = self.0.runtime_roots.clone();
                let found = tokio::task::spawn_blocking(move || files::find_onnxruntime(&roots)).await;
                found.ok().flatten().ok_or_else(|| StartError::Failed("ONNX Runtime not found: set --onnxruntime".to_owned()))?
            }
        };
        let launch = Launch {
            executable: &app.settings.executable,
            onnxruntime: &onnxruntime,
            model_file,
            folder: files::folder(app, row.id),
            row,
            wake: Arc::clone(&self.0.wake),
        };
        local::start(&self.0.client, launch).await
    }

    /// Switches to a new, ready process: in the database first, then for requests; the old process ends last.
    async fn switch(&self, target: &Target, row: &DeploymentRow, instance: Instance) -> Result<()> {
        match self.record_switch(row).await {
            Ok(()) => {}
            Err(Error::Conflict(message)) => {
                instance.stop().await;
                return self.fail(row, &message).await;
            }
            Err(error) => {
                instance.stop().await;
                return Err(error);
            }
        }
        self.retries().remove(&row.id);
        self.install(target, instance);
        tracing::info!(deployment.id = row.id, environment = row.environment, model = row.model_name, version = row.version, "serving");
        Ok(())
    }

    async fn record_switch(&self, row: &DeploymentRow) -> Result<()> {
        let app = &self.0.app;
        let now = app.clock.now();
        let subject = format!("model:{}", row.model_name);
        let mut tx = app.begin().await?;
        if let (Some(alias), Some(from)) = (&row.rollback_alias, row.rollback_from) {
            // a rollback's alias moves in the transaction in which its deployment starts to serve
            let why = Why { gate_record_id: row.gate_record_id, reason: ROLLBACK, actor: &row.actor, at: now };
            move_back(&mut tx, &row.model_name, alias, (from, row.version), why).await?;
        }
        let superseded = deployment::update_deployment_serving(&mut tx, row.id, now).await.map_err(|error| match error {
            sluice_store::Error::NotFound { .. } => Error::Conflict("it was ended while it started".to_owned()),
            other => other.into(),
        })?;
        if let Some(old) = superseded {
            let detail = json!({ "deployment": old, "environment": row.environment, "by": row.id });
            insert_audit(&mut tx, now, &row.actor, "deployment.superseded", &subject, &detail).await?;
            notify(&mut tx, &format!("deployment:{old}")).await?;
        }
        let detail = json!({
            "deployment": row.id, "environment": row.environment, "version": row.version, "artifact_sha256": row.artifact_sha256,
        });
        insert_audit(&mut tx, now, &row.actor, "deployment.serving", &subject, &detail).await?;
        announce(&mut tx, row).await?;
        commit(tx).await
    }

    /// The process of a serving deployment is back.
    async fn restore(&self, target: &Target, row: &DeploymentRow, instance: Instance) -> Result<()> {
        self.install(target, instance);
        if !row.message.is_empty() {
            let mut tx = self.0.app.begin().await?;
            deployment::update_deployment_message(&mut tx, row.id, "").await?;
            announce(&mut tx, row).await?;
            commit(tx).await?;
        }
        tracing::info!(
            deployment.id = row.id,
            environment = row.environment,
            model = row.model_name,
            version = row.version,
            "serving again"
        );
        // crashes that follow at once still count as one series
        self.back_off(row.id);
        Ok(())
    }

    /// A serving deployment cannot be brought back now: it stays what should be served.
    async fn postpone(&self, row: &DeploymentRow, message: &str) -> Result<()> {
        self.back_off(row.id);
        if row.message != message {
            tracing::warn!(deployment.id = row.id, message, "serving deployment cannot be restarted");
            let mut tx = self.0.app.begin().await?;
            deployment::update_deployment_message(&mut tx, row.id, message).await?;
            announce(&mut tx, row).await?;
            commit(tx).await?;
        }
        Ok(())
    }

    /// A new deployment failed; whatever served before goes on.
    async fn fail(&self, row: &DeploymentRow, message: &str) -> Result<()> {
        let now = self.0.app.clock.now();
        let mut tx = self.0.app.begin().await?;
        self.retries().remove(&row.id);
        if !deployment::update_deployment_failed(&mut tx, row.id, message, now).await? {
            return Ok(());
        }
        let detail = json!({ "deployment": row.id, "environment": row.environment, "version": row.version, "message": message });
        insert_audit(&mut tx, now, &row.actor, "deployment.failed", &format!("model:{}", row.model_name), &detail).await?;
        announce(&mut tx, row).await?;
        commit(tx).await?;
        files::remove(&self.0.app, row.id).await;
        tracing::warn!(deployment.id = row.id, message, "deployment failed");
        Ok(())
    }

    /// Sends requests to a process from now on; the one before it ends when its requests are answered.
    fn install(&self, target: &Target, instance: Instance) {
        let id = instance.deployment_id;
        let Some(old) = self.routes_mut().insert(target.clone(), Arc::new(instance)) else { return };
        let app = self.0.app.clone();
        self.0.workers.spawn(async move {
            old.retire().await;
            if old.deployment_id != id {
                files::remove(&app, old.deployment_id).await;
            }
        });
    }

    fn back_off(&self, id: i64) {
        let mut retries = self.retries();
        let now = Instant::now();
        let retry = retries.entry(id).or_insert(Retry { failures: 0, not_before: now });
        // a process that ran for a good while is not part of the series
        if now.saturating_duration_since(retry.not_before) > MAX_BACKOFF * 2 {
            retry.failures = 0;
        }
        let wait = FIRST_BACKOFF.saturating_mul(1 << retry.failures.min(10)).min(MAX_BACKOFF);
        *retry = Retry { failures: retry.failures + 1, not_before: now + wait };
    }

    pub(super) fn app(&self) -> &App {
        &self.0.app
    }

    pub(super) fn client(&self) -> &reqwest::Client {
        &self.0.client
    }

    /// The process that requests for a target go to.
    pub(super) fn instance(&self, target: &Target) -> Option<Arc<Instance>> {
        self.0.routes.read().unwrap_or_else(PoisonError::into_inner).get(target).cloned()
    }

    /// The process that requests for a target go to, with the request counted in. Both under one lock, so that
    /// a process that is being replaced is either not found or not stopped before the request is answered.
    pub(super) fn enter(&self, target: &Target) -> Option<(Arc<Instance>, tokio::sync::OwnedRwLockReadGuard<()>)> {
        let routes = self.0.routes.read().unwrap_or_else(PoisonError::into_inner);
        let instance = routes.get(target)?;
        Some((Arc::clone(instance), instance.enter()?))
    }

    fn routes_mut(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Target, Arc<Instance>>> {
        self.0.routes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self) -> MutexGuard<'_, HashSet<Target>> {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retries(&self) -> MutexGuard<'_, HashMap<i64, Retry>> {
        self.0.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells everyone who watches the deployment, or the pipeline that it came from.
async fn announce(db: &mut PgConnection, row: &DeploymentRow) -> Result<()> {
    notify(db, &format!("deployment:{}", row.id)).await?;
    if let Some(pipeline) = deployment::find_pipeline_of_deployment(db, row.id).await? {
        notify(db, &format!("pipeline:{pipeline}")).await?;
    }
    Ok(())
}
