//! `/repositories`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Data, Path},
};
use serde::Deserialize;
use sluice_app::{Actor, App, repository};

use super::Answer;
use crate::extract::{Json, Page, Params};

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/repositories", web::post().to(create))
        .route("/repositories", web::get().to(list))
        .route("/repositories/{name}", web::get().to(get));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateRepository {
    name: String,
    default_branch: Option<String>,
}

async fn create(app: Data<App>, Json(body): Json<CreateRepository>) -> Answer {
    let made = repository::create_repository(&app, &Actor::anonymous(), &body.name, body.default_branch.as_deref()).await?;
    Ok(HttpResponse::Created().json(made))
}

async fn list(app: Data<App>, request: HttpRequest) -> Answer {
    let mut params = Params::of(&request)?;
    let (after, limit) = (params.number("after")?.unwrap_or(0), params.limit()?);
    params.done()?;
    let items = repository::list_repositories(&app, after, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(items, limit, |last| last.id.to_string())))
}

async fn get(app: Data<App>, name: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(repository::get_repository(&app, &name).await?))
}
