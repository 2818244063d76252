//! MLflow's REST surface, below `/api/` and `/ajax-api/` alike. `args` reads requests; one module per aggregate
//! adds its routes to the scope `…/2.0/mlflow` in its `configure`.

pub mod args;
pub mod artifacts;
mod experiments;
pub mod file_answer;
mod logged_models;
mod logging;
mod metrics;
mod model_versions;
mod registered_models;
mod registry_wire;
mod runs;
pub mod wire;

use actix_web::{FromRequest, HttpRequest, HttpResponse, dev::Payload, http::header, web};
use futures_util::future::{Ready, ready};
use serde_json::json;
use sluice_app::{Actor, change::Caller};

pub use self::args::Args;
use crate::problem::MlflowError;

/// Answer of a handler on this surface.
pub type Answer = Result<HttpResponse, MlflowError>;

/// The version of MLflow whose wire format this is. Clients parse it.
pub const VERSION: &str = "3.18.0";

/// Adds the routes of this surface.
pub fn configure(config: &mut web::ServiceConfig) {
    for prefix in ["/api", "/ajax-api"] {
        config
            .service(
                web::scope(&format!("{prefix}/2.0/mlflow"))
                    // one line per module of routes, relative to `/api/2.0/mlflow`
                    .configure(artifacts::configure)
                    .configure(experiments::configure)
                    .configure(logged_models::configure)
                    .configure(logging::configure)
                    .configure(metrics::configure)
                    .configure(model_versions::configure)
                    .configure(registered_models::configure)
                    .configure(runs::configure)
                    .default_service(web::to(unknown_endpoint)),
            )
            .service(
                web::scope(&format!("{prefix}/3.0/mlflow"))
                    .route("/server-info", web::get().to(server_info))
                    .default_service(web::to(unknown_endpoint)),
            )
            .service(artifacts::proxy(prefix))
            .service(web::scope(&format!("{prefix}/2.0")).default_service(web::to(unknown_endpoint)))
            .service(web::scope(&format!("{prefix}/3.0")).default_service(web::to(unknown_endpoint)));
    }
    config.configure(artifacts::configure_root).configure(model_versions::configure_root);
    config.route("/health", web::get().to(health)).route("/version", web::get().to(version));
}

/// The bearer token of a request, if it has one: `MLFLOW_TRACKING_TOKEN` of the client.
#[derive(Debug, Clone, Default)]
pub struct Bearer(pub Option<String>);

impl Bearer {
    /// The token.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl FromRequest for Bearer {
    type Error = MlflowError;
    type Future = Ready<Result<Self, MlflowError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let token = match header.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Some(token.trim().to_owned()),
            _ => None,
        };
        ready(Ok(Self(token)))
    }
}

/// Who acts when there are no logins.
#[must_use]
pub fn actor() -> Actor {
    Actor::anonymous()
}

/// Who calls: nobody in particular, or the job whose token the request carries.
#[must_use]
pub fn caller(bearer: Bearer) -> Caller {
    Caller { actor: actor(), token: bearer.0 }
}

/// The answer of calls that return nothing: `{}`.
#[must_use]
pub fn empty() -> HttpResponse {
    HttpResponse::Ok().json(json!({}))
}

async fn unknown_endpoint(request: HttpRequest) -> HttpResponse {
    HttpResponse::NotFound().json(json!({
        "error_code": "ENDPOINT_NOT_FOUND",
        "message": format!("No API endpoint {} {}", request.method(), request.path()),
    }))
}

async fn health() -> &'static str {
    "OK"
}

async fn version() -> &'static str {
    VERSION
}

/// What the client may use. Everything it could switch on and that is absent here is false.
async fn server_info() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "store_type": "SqlStore",
        "workspaces_enabled": false,
        "trace_archival_enabled": false,
        "multipart_uploads_enabled": false,
        "multipart_downloads_enabled": false,
        "artifact_serving_enabled": true,
        "presigned_upload_run_id_supported": false,
        "presigned_upload_model_id_supported": false,
        "model_artifact_presigned_downloads_supported": false,
        "features_enabled": {},
        "tracking_auth": "",
        "artifacts_presigned_only": false,
    }))
}
