//! `/pipelines`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Data, Path},
};
use sluice_app::{
    Actor, App, job,
    pipeline::{self, PipelineFilter},
};

use super::Answer;
use crate::extract::{Page, Params, id};

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/pipelines", web::get().to(list))
        .route("/pipelines/{id}", web::get().to(get))
        .route("/pipelines/{id}/cancel", web::post().to(cancel));
}

async fn list(app: Data<App>, request: HttpRequest) -> Answer {
    let mut params = Params::of(&request)?;
    let filter = PipelineFilter {
        repository: params.text("repository"),
        branch: params.text("branch"),
        status: params.parse("status")?,
        before_id: params.number("after")?,
    };
    let limit = params.limit()?;
    params.done()?;
    let items = pipeline::list_pipelines(&app, &filter, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(items, limit, |last| last.id.to_string())))
}

async fn get(app: Data<App>, path: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(pipeline::get_pipeline(&app, id(&path, "pipeline")?).await?))
}

async fn cancel(app: Data<App>, path: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(job::cancel_pipeline(&app, &Actor::anonymous(), id(&path, "pipeline")?).await?))
}
