//! Registered models: list, look, approve, roll back.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use sluice_app::{Actor, App, Error, model, promotion};

use crate::{
    extract::{Json, Page, Params, number},
    problem::Problem,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/models").route(web::get().to(list_models)))
        .service(web::resource("/models/{name}").route(web::get().to(get_model)))
        .service(web::resource("/models/{name}/versions/{version}").route(web::get().to(get_version)))
        .service(web::resource("/models/{name}/versions/{version}/approve").route(web::post().to(approve_version)))
        .service(web::resource("/models/{name}/rollback").route(web::post().to(rollback_model)));
}

async fn list_models(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut params = Params::of(&request)?;
    let (after, limit) = (params.text("after"), params.limit()?);
    params.done()?;
    let models = model::list_models(&app, after.as_deref(), limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(models, limit, |model| model.name.clone())))
}

async fn get_model(app: web::Data<App>, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(model::get_model(&app, &name).await?))
}

async fn get_version(app: web::Data<App>, path: web::Path<(String, String)>) -> Result<HttpResponse, Problem> {
    let (name, version) = path.into_inner();
    Ok(HttpResponse::Ok().json(model::get_version(&app, &name, number("version", &version)?).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Approve {
    alias: String,
    comment: Option<String>,
}

async fn approve_version(app: web::Data<App>, path: web::Path<(String, String)>, body: Json<Approve>) -> Result<HttpResponse, Problem> {
    let (name, version) = path.into_inner();
    let comment = body.0.comment.as_deref().unwrap_or_default();
    let version = number("version", &version)?;
    no_nul(&[("alias", &body.0.alias), ("comment", comment)])?;
    Ok(HttpResponse::Ok().json(promotion::approve(&app, &Actor::anonymous(), &name, version, &body.0.alias, comment).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    alias: Option<String>,
    environment: Option<String>,
}

async fn rollback_model(app: web::Data<App>, name: web::Path<String>, body: Json<Rollback>) -> Result<HttpResponse, Problem> {
    let alias = body.0.alias.as_deref().unwrap_or("champion");
    let environment = body.0.environment.as_deref();
    no_nul(&[("alias", alias), ("environment", environment.unwrap_or_default())])?;
    Ok(HttpResponse::Ok().json(promotion::rollback(&app, &Actor::anonymous(), &name, alias, environment).await?))
}

/// Postgres stores no NUL characters.
pub(super) fn no_nul(fields: &[(&str, &str)]) -> Result<(), Error> {
    match fields.iter().find(|(_, text)| text.contains('\0')) {
        Some((field, _)) => Err(Error::invalid(field, format!("{field} must not hold NUL characters"))),
        None => Ok(()),
    }
}
