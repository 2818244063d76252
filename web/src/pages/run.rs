//! `/runs/{id}`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path},
};
use askama::Template;
use sluice_app::{
    App, run,
    view::{
        experiments::{self, ExperimentHead},
        jobs,
        runs::{self as view, RunJob, RunModelVersion, TREE, TreeEntry},
    },
};
use sluice_domain::{
    state::{Lifecycle, RunStatus},
    tracking::{KeyValue, MetricSummary, Run},
};

use super::run_id;
use crate::{
    ansi::{self, Line},
    assets,
    error::PageError,
    page::{self, Frame},
    query::{self, Query},
    show,
};

/// Charts drawn on one page; the filter picks which.
const CHARTS: usize = 24;
/// Metrics listed on one page.
const METRICS: usize = 500;
/// Lines of the job's log on this page.
const LOG_LINES: usize = 30;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    run: Run,
    experiment: ExperimentHead,
    job: Option<RunJob>,
    versions: Vec<RunModelVersion>,
    /// Part of the metric keys to show.
    metric_text: String,
    metrics: Vec<MetricSummary>,
    metric_total: usize,
    charts: Vec<MetricSummary>,
    charts_total: usize,
    tags: Vec<KeyValue>,
    system_tags: Vec<KeyValue>,
    note: Option<String>,
    tree: Vec<TreeEntry>,
    tree_error: Option<String>,
    tree_cut: bool,
    /// Folder whose artifacts are shown.
    folder: String,
    log: Vec<Line>,
    public_url: String,
}

impl RunPage {
    fn metric_link(&self, key: &str) -> String {
        metric_link(&self.run, key)
    }

    fn file_link(&self, path: &str) -> String {
        Query::default().with("path", Some(path)).with("run_uuid", Some(&self.run.info.id.to_string())).link("/get-artifact")
    }

    fn folder_link(&self, path: &str) -> String {
        format!("{}#artifacts", Query::default().with("path", Some(path)).link(&format!("/runs/{}", self.run.info.id)))
    }

    fn deleted(&self) -> bool {
        self.run.info.lifecycle == Lifecycle::Deleted
    }
}

fn metric_link(run: &Run, key: &str) -> String {
    Query::default().with("key", Some(key)).link(&format!("/runs/{}/metric", run.info.id))
}

/// What a chart shows, for those who do not see it.
pub(super) fn summary(metric: &MetricSummary) -> String {
    format!(
        "{}: {}, last {}, least {}, greatest {}",
        metric.key,
        show::count(&metric.count, "point", "points"),
        show::num(&metric.value),
        show::num(&metric.min),
        show::num(&metric.max)
    )
}

/// `GET /runs/{id}?metrics=TEXT&path=FOLDER`
pub async fn show(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let id = run_id(&id)?;
    let mut run = run::get_run(&app, &id.to_string()).await?;
    let experiment = experiments::get(&app, run.info.experiment_id).await?;
    let (job, versions) = view::relations(&app, id).await?;

    let metric_text = query.get("metrics").unwrap_or_default().trim().to_owned();
    let needle = metric_text.to_lowercase();
    let mut metrics: Vec<_> = std::mem::take(&mut run.metrics);
    metrics.retain(|metric| metric.key.to_lowercase().contains(&needle));
    let metric_total = metrics.len();
    metrics.truncate(METRICS);
    let mut charts: Vec<_> = metrics.iter().filter(|metric| metric.count > 1).cloned().collect();
    let charts_total = charts.len();
    charts.truncate(CHARTS);

    let note = run.tag("mlflow.note.content").map(str::to_owned);
    let (system_tags, tags): (Vec<_>, Vec<_>) = run.tags.clone().into_iter().partition(|tag| tag.key.starts_with("mlflow."));

    let folder = query.get("path").unwrap_or_default().to_owned();
    let (tree, tree_error) = match view::artifact_tree(&app, id, &folder).await {
        Ok(tree) => (tree, None),
        Err(error @ (sluice_app::Error::Internal(_) | sluice_app::Error::Unavailable(_))) => return Err(error.into()),
        Err(refused) => (Vec::new(), Some(refused.to_string())),
    };

    let mut topics = Vec::new();
    if run.info.status == RunStatus::Running {
        topics.push(format!("run:{id}"));
    }
    let mut log = Vec::new();
    if let Some(job) = &job {
        if matches!(&*job.status, "running" | "queued" | "pending") {
            topics.push(format!("job:{}", job.id));
        }
        let tail = jobs::log_tail(&app, job.id, job.attempt, 20).await?;
        log = ansi::lines(&tail.text, tail.skipped_lines + 1);
        log.drain(..log.len().saturating_sub(LOG_LINES));
    }

    let frame = Frame::new(&request, "experiments", run.info.name.clone()).live(topics);
    let page = RunPage {
        frame,
        experiment,
        job,
        versions,
        metric_text,
        metrics,
        metric_total,
        charts,
        charts_total,
        tags,
        system_tags,
        note,
        tree_cut: tree.len() > TREE,
        tree,
        tree_error,
        folder,
        log,
        public_url: app.settings.public_url.clone(),
        run,
    };
    page::html(&page.frame, &page)
}
