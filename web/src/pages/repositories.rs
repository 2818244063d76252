//! `/repositories` and `/repositories/{name}`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Form, Path},
};
use askama::Template;
use serde::Deserialize;
use sluice_app::{
    Actor, App,
    repository::create_repository,
    view::{
        operations::{self as view, RepositoryHead, RepositoryRow},
        pipelines::{self, PipelineFilter, PipelineItem},
    },
};

use super::pipelines::topics;
use crate::{
    assets,
    error::PageError,
    flash,
    page::{self, Frame},
    query, show,
};

#[derive(Template)]
#[template(path = "repositories.html")]
struct Repositories {
    frame: Frame,
    rows: Vec<RepositoryRow>,
    public_url: String,
}

/// `GET /repositories`
pub async fn list(request: HttpRequest, app: Data<App>) -> Result<HttpResponse, PageError> {
    let frame = Frame::new(&request, "repositories", "Repositories");
    let page = Repositories { frame, rows: view::repositories(&app).await?, public_url: app.settings.public_url.clone() };
    page::html(&page.frame, &page)
}

#[derive(Template)]
#[template(path = "repository.html")]
struct Repository {
    frame: Frame,
    head: RepositoryHead,
    items: Vec<PipelineItem>,
    git_url: String,
    more: Option<String>,
}

/// Pipelines on the page of a repository.
const PIPELINES: i64 = 20;

/// `GET /repositories/{name}`
pub async fn show(request: HttpRequest, app: Data<App>, name: Path<String>) -> Result<HttpResponse, PageError> {
    let head = view::repository(&app, &name).await?;
    let filter = PipelineFilter { repository: Some(name.to_string()), ..PipelineFilter::default() };
    let items = pipelines::list(&app, &filter, PIPELINES).await?;
    let more = (items.len() as i64 == PIPELINES).then(|| query::Query::default().with("repository", Some(&name)).link("/pipelines"));
    let frame = Frame::new(&request, "repositories", name.as_str()).live(topics(&items));
    let git_url = format!("{}/git/{}.git", app.settings.public_url, head.name);
    let page = Repository { frame, head, items, git_url, more };
    page::html(&page.frame, &page)
}

/// The form of a new repository.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRepository {
    name: String,
}

/// `POST /repositories`
pub async fn create(app: Data<App>, form: Form<NewRepository>) -> Result<HttpResponse, PageError> {
    match create_repository(&app, &Actor::anonymous(), form.name.trim(), None).await {
        Ok(made) => {
            Ok(flash::done(&format!("/repositories/{}", query::segment(&made.name)), "Created. Push a commit that has a .sluice.yml."))
        }
        Err(error) => flash::refused("/repositories", error),
    }
}
