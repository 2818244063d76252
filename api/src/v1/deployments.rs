//! Deployments: list, and deploy an alias's holder again.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use sluice_app::{Actor, App, deployment};

use super::models::no_nul;
use crate::{
    extract::{Json, Page, Params, number},
    problem::Problem,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/deployments").route(web::get().to(list_deployments)).route(web::post().to(create_deployment)))
        .service(web::resource("/deployments/{id}").route(web::get().to(get_deployment)));
}

async fn list_deployments(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut params = Params::of(&request)?;
    let (model, before, limit) = (params.text("model"), params.number("after")?, params.limit()?);
    params.done()?;
    let found = deployment::list_deployments(&app, model.as_deref(), before, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(found, limit, |deployment| deployment.id.to_string())))
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

async fn create_deployment(app: web::Data<App>, body: Json<Create>) -> Result<HttpResponse, Problem> {
    let Create { model, alias, environment } = body.0;
    no_nul(&[("model", &model), ("alias", &alias)])?;
    Ok(HttpResponse::Accepted().json(deployment::deploy_alias(&app, &Actor::anonymous(), &model, &alias, &environment).await?))
}
