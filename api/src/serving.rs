//! Predictions over the Open Inference Protocol (`/v2`), passed to the process that serves the model.
//!
//! `?environment=NAME` chooses where; the default is `production`. Errors are `{"error": TEXT}`, as the
//! protocol has it.

use actix_web::{
    FromRequest as _, HttpRequest, HttpResponse,
    http::StatusCode,
    web::{self, Bytes, PayloadConfig},
};
use serde_json::json;
use sluice_app::deployment::{Deployments, Endpoint, ServeError};

/// Largest inference request; the model server's own limit.
const BODY_LIMIT: usize = 16 * 1024 * 1024;
const DEFAULT_ENVIRONMENT: &str = "production";

/// Adds the `/v2` routes. The application data must hold `web::Data<Deployments>`.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(
        web::scope("/v2")
            .app_data(PayloadConfig::new(BODY_LIMIT))
            .service(web::resource("").route(web::get().to(server_metadata)))
            .service(web::resource("/health/live").route(web::get().to(async || HttpResponse::Ok().json(json!({ "live": true })))))
            .service(web::resource("/health/ready").route(web::get().to(server_ready)))
            .service(web::resource("/models/{name}").route(web::get().to(metadata)))
            .service(web::resource("/models/{name}/ready").route(web::get().to(ready)))
            .service(web::resource("/models/{name}/infer").route(web::post().to(infer)))
            .service(web::resource("/models/{name}/versions/{version}").route(web::get().to(metadata)))
            .service(web::resource("/models/{name}/versions/{version}/ready").route(web::get().to(ready)))
            .service(web::resource("/models/{name}/versions/{version}/infer").route(web::post().to(infer)))
            .default_service(web::to(async || failure(StatusCode::NOT_FOUND, "no such route"))),
    );
}

async fn server_metadata() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "name": "sluice", "version": env!("CARGO_PKG_VERSION"), "extensions": [] }))
}

async fn server_ready(deployments: web::Data<Deployments>) -> HttpResponse {
    match deployments.all_ready().await {
        Ok(true) => HttpResponse::Ok().json(json!({ "ready": true })),
        Ok(false) => HttpResponse::ServiceUnavailable().json(json!({ "ready": false })),
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn metadata(deployments: web::Data<Deployments>, request: HttpRequest) -> HttpResponse {
    forward(&deployments, &request, Endpoint::Metadata).await
}

async fn ready(deployments: web::Data<Deployments>, request: HttpRequest) -> HttpResponse {
    forward(&deployments, &request, Endpoint::Ready).await
}

async fn infer(deployments: web::Data<Deployments>, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    match Bytes::from_request(&request, &mut payload.into_inner()).await {
        Ok(body) => forward(&deployments, &request, Endpoint::Infer(body)).await,
        Err(error) if error.as_response_error().status_code() == StatusCode::PAYLOAD_TOO_LARGE => {
            failure(StatusCode::PAYLOAD_TOO_LARGE, &format!("the request body is larger than the limit of {BODY_LIMIT} bytes"))
        }
        Err(error) => failure(StatusCode::BAD_REQUEST, &format!("the request body cannot be read: {error}")),
    }
}

async fn forward(deployments: &Deployments, request: &HttpRequest, endpoint: Endpoint) -> HttpResponse {
    let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string()).map(web::Query::into_inner).unwrap_or_default();
    let environment = query.iter().find(|(key, _)| key == "environment").map_or(DEFAULT_ENVIRONMENT, |(_, value)| value);
    let model = request.match_info().get("name").unwrap_or_default();
    match deployments.serve(environment, model, request.match_info().get("version"), endpoint).await {
        Ok(served) => {
            let mut answer = HttpResponse::build(StatusCode::from_u16(served.status).unwrap_or(StatusCode::BAD_GATEWAY));
            answer.insert_header(("x-sluice-version", served.version.to_string())).insert_header(("x-sluice-sha256", served.sha256));
            answer.content_type(served.content_type.as_deref().unwrap_or("application/json")).body(served.body)
        }
        Err(error @ ServeError::NotFound(_)) => failure(StatusCode::NOT_FOUND, &error.to_string()),
        Err(error @ ServeError::NotReady(_)) => failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

fn failure(status: StatusCode, message: &str) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.insert_header(("Retry-After", "1"));
    }
    answer.json(json!({ "error": message }))
}
