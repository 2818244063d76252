//! `/models` and `/models/{name}`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Form, Path},
};
use askama::Template;
use serde::Deserialize;
use sluice_app::{
    Actor, App,
    promotion::rollback,
    view::models::{self as view, ModelRow},
};
use sluice_domain::state::DeploymentStatus;

use crate::{
    assets,
    error::PageError,
    flash,
    page::{self, Frame},
    query::{self, Query},
    show,
};

#[derive(Template)]
#[template(path = "models.html")]
struct Models {
    frame: Frame,
    text: String,
    rows: Vec<ModelRow>,
    next: Option<String>,
    public_url: String,
}

/// Splits `name=version` as the store joins aliases and environments.
fn pair(text: &str) -> (&str, &str) {
    text.rsplit_once('=').unwrap_or((text, ""))
}

/// `GET /models?q=&after=`
pub async fn list(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let text = query.get("q").map(str::trim).unwrap_or_default().to_owned();
    let rows = view::list(&app, (!text.is_empty()).then_some(&text), query.get("after")).await?;
    let full = rows.len() as i64 == view::PAGE;
    let next = rows.last().filter(|_| full).map(|row| query.with("after", Some(&row.name)).link("/models"));
    let frame = Frame::new(&request, "models", "Models");
    let page = Models { text, rows, next, public_url: app.settings.public_url.clone(), frame };
    page::html(&page.frame, &page)
}

#[derive(Template)]
#[template(path = "model.html")]
struct Model {
    frame: Frame,
    page: view::ModelPage,
    /// Alias and holder.
    aliases: Vec<(String, i32)>,
    serving: Vec<(String, i32)>,
    next: Option<String>,
    public_url: String,
}

impl Model {
    fn path(&self) -> String {
        format!("/models/{}", query::segment(&self.page.head.name))
    }

    /// Whether an alias had another holder before.
    fn has_history(&self, alias: &str) -> bool {
        self.page.moves.iter().any(|step| step.alias == alias && step.from_version.is_some())
    }
}

/// `GET /models/{name}?before=`
pub async fn show(request: HttpRequest, app: Data<App>, name: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let page = view::get(&app, &name, query.parsed("before")).await?;
    let model = sluice_app::model::get_model(&app, &name).await?;
    let full = page.versions.len() as i64 == view::PAGE;
    let path = format!("/models/{}", query::segment(&name));
    let next = page.versions.last().filter(|_| full).map(|row| query.with("before", Some(&row.version.to_string())).link(&path));
    let serving = page.deployments.iter().filter(|deployment| deployment.status == DeploymentStatus::Serving);
    let serving = serving.map(|deployment| (deployment.environment.clone(), deployment.version)).collect();
    let starting = page.deployments.iter().filter(|deployment| deployment.status == DeploymentStatus::Starting);
    let topics: Vec<_> = starting.map(|deployment| format!("deployment:{}", deployment.id)).collect();
    let page = Model {
        frame: Frame::new(&request, "models", name.as_str()).live(topics),
        aliases: model.aliases.into_iter().collect(),
        serving,
        next,
        public_url: app.settings.public_url.clone(),
        page,
    };
    page::html(&page.frame, &page)
}

/// The rollback form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    alias: String,
}

/// `POST /models/{name}/rollback`
pub async fn roll_back(app: Data<App>, name: Path<String>, form: Form<Rollback>) -> Result<HttpResponse, PageError> {
    let page = format!("/models/{}", query::segment(&name));
    match rollback(&app, &Actor::anonymous(), &name, &form.alias, None).await {
        Ok(done) => {
            let deployed = match &done.deployment {
                Some(deployment) => format!(", and {} serves it", deployment.environment),
                None => String::new(),
            };
            Ok(flash::done(&page, format!("{} went back from v{} to v{}{deployed}.", done.alias, done.from_version, done.to_version)))
        }
        Err(error) => flash::refused(&page, error),
    }
}
