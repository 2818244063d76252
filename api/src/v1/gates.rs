//! Gate records and the audit log.

use actix_web::{HttpRequest, HttpResponse, web};
use sluice_app::{App, model, promotion};

use crate::{
    extract::{Page, Params, number},
    problem::Problem,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/gate-records/{id}").route(web::get().to(get_gate_record)))
        .service(web::resource("/audit").route(web::get().to(list_audit)));
}

async fn get_gate_record(app: web::Data<App>, id: web::Path<String>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(promotion::get_gate_record(&app, number("id", &id)?).await?))
}

async fn list_audit(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut params = Params::of(&request)?;
    let (subject, before, limit) = (params.text("subject"), params.number("after")?, params.limit()?);
    params.done()?;
    let rows = model::list_audit(&app, subject.as_deref(), before, limit + 1).await?;
    Ok(HttpResponse::Ok().json(Page::new(rows, limit, |row| row.id.to_string())))
}
