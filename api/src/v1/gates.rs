//! Gate records and the audit log.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use sluice_app::{App, model, promotion};

use super::{
    input::{Page, limit, number, query},
    models::no_nul,
};
use crate::problem::Problem;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/gate-records/{id}").route(web::get().to(get_gate_record)))
        .service(web::resource("/audit").route(web::get().to(list_audit)));
}

async fn get_gate_record(app: web::Data<App>, id: web::Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(promotion::get_gate_record(&app, number("id", &id)?).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Audit {
    subject: Option<String>,
    after: Option<String>,
    limit: Option<String>,
}

async fn list_audit(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let wanted: Audit = query(&request)?;
    no_nul(&[("subject", wanted.subject.as_deref().unwrap_or_default())])?;
    let limit = limit(wanted.limit.as_deref())?;
    let before = wanted.after.as_deref().map(|after| number("after", after)).transpose()?;
    let rows = model::list_audit(&app, wanted.subject.as_deref(), before, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::cut(rows, limit, |row| row.id.to_string())))
}
