//! `/models/{name}/versions/{version}`: the gate panel, approvals, history.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Form, Path},
};
use askama::Template;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use sluice_app::{
    Actor, App,
    promotion::{GateRecord, Promotion, approve},
    view::models::{self as view, VersionPage},
};
use sluice_domain::state::{DeploymentStatus, PromotionStatus};

use super::number;
use crate::{
    assets,
    error::PageError,
    flash,
    gate_view::{self, BenchmarkRow, CheckView, WIDTH},
    page::{self, Frame},
    query, show,
};

#[derive(Template)]
#[template(path = "version.html")]
struct Version {
    frame: Frame,
    page: VersionPage,
    /// The newest evaluation, with its checks.
    gate: Option<(GateRecord, Vec<CheckView>)>,
    earlier: Vec<(GateRecord, Vec<CheckView>)>,
    benchmark: Vec<BenchmarkRow>,
    latency: Vec<(u32, String, usize)>,
    timeline: Vec<Event>,
    serving: Vec<String>,
    width: f64,
    public_url: String,
}

/// One line of the history.
struct Event {
    at: DateTime<Utc>,
    look: &'static str,
    text: String,
    by: String,
}

impl Version {
    fn name(&self) -> &str {
        &self.page.detail.version.name
    }

    fn path(&self) -> String {
        format!("/models/{}/versions/{}", query::segment(self.name()), self.page.detail.version.version)
    }

    fn model_path(&self) -> String {
        format!("/models/{}", query::segment(self.name()))
    }

    fn promotion(&self) -> Option<&Promotion> {
        self.page.detail.promotions.first()
    }

    fn needs_approval(&self, promotion: &Promotion) -> bool {
        promotion.status == PromotionStatus::WaitingApproval
    }

    fn tone(&self, promotion: &Promotion) -> &'static str {
        show::badge(&promotion.status).tone
    }
}

/// `GET /models/{name}/versions/{version}`
pub async fn show(request: HttpRequest, app: Data<App>, path: Path<(String, String)>) -> Result<HttpResponse, PageError> {
    let (name, version) = path.into_inner();
    let page = view::version(&app, &name, number("version", &version)?).await?;
    let with_checks = |record: GateRecord| {
        let checks = record.checks.iter().map(CheckView::from).collect();
        (record, checks)
    };
    let mut records = page.detail.gate_records.clone().into_iter().map(with_checks);
    let gate = records.next();
    let earlier: Vec<_> = records.collect();
    let benchmark = gate.as_ref().and_then(|(record, _)| record.evidence.benchmark.as_ref()).map(gate_view::benchmark_rows);
    let latency = gate.as_ref().and_then(|(record, _)| record.evidence.onnx.as_ref()).map(gate_view::latency_rows);
    let serving = page.deployments.iter().filter(|deployment| deployment.status == DeploymentStatus::Serving);
    let serving = serving.map(|deployment| deployment.environment.clone()).collect();

    let mut topics: Vec<_> = page.detail.promotions.iter().take(5).map(|promotion| format!("promotion:{}", promotion.id)).collect();
    topics.extend(page.deployments.iter().take(5).map(|deployment| format!("deployment:{}", deployment.id)));
    let page = Version {
        frame: Frame::new(&request, "models", format!("{name} v{version}")).live(topics),
        timeline: timeline(&page),
        gate,
        earlier,
        benchmark: benchmark.unwrap_or_default(),
        latency: latency.unwrap_or_default(),
        serving,
        width: WIDTH,
        public_url: app.settings.public_url.clone(),
        page,
    };
    page::html(&page.frame, &page)
}

/// Everything that happened to a version, newest first.
fn timeline(page: &VersionPage) -> Vec<Event> {
    let version = page.detail.version.version;
    let mut events = vec![Event {
        at: page.detail.version.created_at,
        look: "idle",
        text: "registered".to_owned(),
        by: page.detail.version.user.clone(),
    }];
    for record in &page.detail.gate_records {
        let passed = record.checks.iter().filter(|check| check.verdict.as_str() == "pass").count();
        let against = record.champion_version.map_or_else(|| "no champion".to_owned(), |champion| format!("champion v{champion}"));
        let text = format!(
            "gate for {} evaluated against {against}: {}, {passed} of {} checks pass",
            record.alias,
            show::badge(&record.verdict).word,
            record.checks.len()
        );
        events.push(Event { at: record.created_at, look: record.verdict.as_str(), text, by: format!("gate record {}", record.id) });
    }
    for approval in &page.detail.approvals {
        let comment = if approval.comment.is_empty() { String::new() } else { format!(": {}", approval.comment) };
        events.push(Event {
            at: approval.created_at,
            look: "waiting_approval",
            text: format!("approved for {}{comment}", approval.alias),
            by: approval.actor.clone(),
        });
    }
    for step in &page.moves {
        let (look, what) = match (step.from_version, step.to_version) {
            (Some(from), Some(to)) if to == version => ("promoted", format!("{} moved here from v{from}", step.alias)),
            (None, Some(to)) if to == version => ("promoted", format!("{} set to this version", step.alias)),
            (Some(_), Some(to)) => ("superseded", format!("{} moved on to v{to}", step.alias)),
            _ => ("superseded", format!("{} removed", step.alias)),
        };
        events.push(Event { at: step.moved_at, look, text: format!("{what}: {}", step.reason), by: step.actor.clone() });
    }
    for deployment in &page.deployments {
        let by = deployment.actor.clone();
        let environment = &deployment.environment;
        events.push(Event {
            at: deployment.created_at,
            look: "starting",
            text: format!("deployment to {environment} began"),
            by: by.clone(),
        });
        if let Some(at) = deployment.ready_at {
            events.push(Event { at, look: "serving", text: format!("began to serve in {environment}"), by: by.clone() });
        }
        if let Some(at) = deployment.ended_at {
            let (look, text) = if deployment.status == DeploymentStatus::Failed {
                ("failed", format!("deployment to {environment} failed: {}", deployment.message))
            } else {
                ("superseded", format!("stopped serving in {environment}"))
            };
            events.push(Event { at, look, text, by });
        }
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    events
}

/// The approval form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    alias: String,
    #[serde(default)]
    comment: String,
}

/// `POST /models/{name}/versions/{version}/approve`
pub async fn approve_version(app: Data<App>, path: Path<(String, String)>, form: Form<Approval>) -> Result<HttpResponse, PageError> {
    let (name, version) = path.into_inner();
    let version: i32 = number("version", &version)?;
    let page = format!("/models/{}/versions/{version}", query::segment(&name));
    match approve(&app, &Actor::anonymous(), &name, version, &form.alias, form.comment.trim()).await {
        Ok(promotion) => {
            Ok(flash::done(&page, format!("Approved for {}. The promotion is now: {}.", form.alias, show::badge(&promotion.status).word)))
        }
        Err(error) => flash::refused(&page, error),
    }
}
