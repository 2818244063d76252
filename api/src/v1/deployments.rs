//! Deployments: list, and deploy an alias's holder again.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use sluice_app::{Actor, App, deployment};

use super::{
    input::{JsonBody, Page, limit, number, query},
    models::no_nul,
};
use crate::problem::Problem;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/deployments").route(web::get().to(list_deployments)).route(web::post().to(create_deployment)))
        .service(web::resource("/deployments/{id}").route(web::get().to(get_deployment)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    model: Option<String>,
    after: Option<String>,
    limit: Option<String>,
}

async fn list_deployments(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let wanted: List = query(&request)?;
    no_nul(&[("model", wanted.model.as_deref().unwrap_or_default())])?;
    let limit = limit(wanted.limit.as_deref())?;
    let before = wanted.after.as_deref().map(|after| number("after", after)).transpose()?;
    let found = deployment::list_deployments(&app, wanted.model.as_deref(), before, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::cut(found, limit, |deployment| deployment.id.to_string())))
}

async fn get_deployment(app: web::Data<App>, id: web::Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(deployment::get_deployment(&app, number("id", &id)?).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    model: String,
    alias: String,
    environment: String,
}

async fn create_deployment(app: web::Data<App>, body: JsonBody<Create>) -> Result<HttpResponse, Problem> {
    let Create { model, alias, environment } = body.0;
    no_nul(&[("model", &model), ("alias", &alias)])?;
    Ok(HttpResponse::Accepted().json(deployment::deploy_alias(&app, &Actor::anonymous(), &model, &alias, &environment).await?))
}
