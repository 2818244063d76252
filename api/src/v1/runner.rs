//! The runner protocol (see `sluice_domain::runner`).

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Data, Path},
};
use serde_json::json;
use sluice_app::{
    App, Error, Result,
    attempt::{self, AttemptRef},
    job_output, runner,
};
use sluice_domain::runner::{AppendLogs, Claim, Claimed, JobResult, RegisterRunner, Renew};

use super::Answer;
use crate::extract::{Json, Page, Params, bearer, id};

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/runners", web::post().to(register))
        .route("/runners", web::get().to(list))
        .route("/runner/claim", web::post().to(claim))
        .service(
            web::scope("/runner/jobs/{job}/attempts/{attempt}")
                .route("/renew", web::post().to(renew))
                .route("/logs", web::post().to(logs))
                .route("/outputs/{name}/{path:.*}", web::put().to(put_output))
                .route("/result", web::post().to(result)),
        );
}

async fn register(app: Data<App>, Json(body): Json<RegisterRunner>) -> Answer {
    Ok(HttpResponse::Ok().json(runner::register_runner(&app, &body).await?))
}

async fn list(app: Data<App>, request: HttpRequest) -> Answer {
    let mut params = Params::of(&request)?;
    let (after, limit) = (params.text("after").unwrap_or_default(), params.limit()?);
    params.done()?;
    let items = runner::list_runners(&app, &after, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(items, limit, |last| last.name.clone())))
}

async fn claim(app: Data<App>, request: HttpRequest, Json(body): Json<Claim>) -> Answer {
    let assignment = runner::claim(&app, &bearer(&request)?, &body).await?;
    Ok(HttpResponse::Ok().json(Claimed { assignment }))
}

async fn renew(app: Data<App>, path: Path<(String, String)>, request: HttpRequest, Json(body): Json<Renew>) -> Answer {
    Ok(HttpResponse::Ok().json(attempt::renew(&app, &who(&path, &request)?, &body).await?))
}

async fn logs(app: Data<App>, path: Path<(String, String)>, request: HttpRequest, Json(body): Json<AppendLogs>) -> Answer {
    let next = attempt::append_logs(&app, &who(&path, &request)?, body).await?;
    Ok(HttpResponse::Ok().json(json!({ "next": next })))
}

async fn put_output(app: Data<App>, path: Path<(String, String)>, request: HttpRequest, payload: web::Payload) -> Answer {
    // decoded here, once, because a framework may keep some escapes
    let raw = request.uri().path().split_once("/outputs/").unwrap_or_default().1;
    let (name, file) = raw.split_once('/').unwrap_or((raw, ""));
    let decode = |field: &str, text: &str| {
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        decoded.map(std::borrow::Cow::into_owned).map_err(|_| Error::invalid(field, format!("{field} must be UTF-8 text, percent-encoded")))
    };
    let (name, file) = (decode("name", name)?, decode("path", file)?);
    let stored = job_output::put_output(&app, &who(&path, &request)?, &name, &file, payload).await?;
    Ok(HttpResponse::Ok().json(stored))
}

async fn result(app: Data<App>, path: Path<(String, String)>, request: HttpRequest, Json(body): Json<JobResult>) -> Answer {
    attempt::finish(&app, &who(&path, &request)?, &body).await?;
    Ok(HttpResponse::Ok().json(json!({})))
}

/// Whom the path names and the token proves.
fn who(path: &(String, String), request: &HttpRequest) -> Result<AttemptRef> {
    Ok(AttemptRef { job_id: id(&path.0, "job")?, attempt: id(&path.1, "attempt")?, token: bearer(request)? })
}
