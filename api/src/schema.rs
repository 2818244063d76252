//! `GET /schema/pipeline.json` and `GET /schema/gate.json`.

use actix_web::{HttpResponse, web};

/// Adds the two routes.
pub(crate) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/schema/pipeline.json", web::get().to(|| async { answer(sluice_app::schema::PIPELINE) }))
        .route("/schema/gate.json", web::get().to(|| async { answer(sluice_app::schema::GATE) }));
}

fn answer(schema: &'static str) -> HttpResponse {
    HttpResponse::Ok().content_type("application/schema+json").body(schema)
}

#[cfg(test)]
mod tests {
    use actix_web::{App, test};

    use super::*;

    #[actix_web::test]
    async fn the_schemas_are_served_as_json() {
        let app = test::init_service(App::new().configure(configure)).await;
        for path in ["/schema/pipeline.json", "/schema/gate.json"] {
            let answer = test::call_service(&app, test::TestRequest::get().uri(path).to_request()).await;
            assert_eq!(answer.headers().get("content-type").unwrap(), "application/schema+json");
            let schema: serde_json::Value = test::read_body_json(answer).await;
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{path}");
        }
    }
}
