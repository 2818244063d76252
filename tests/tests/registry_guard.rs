//! Foreign names and foreign pages.

use reqwest::{Method, header};
use serde_json::json;
use sluice_tests::{Answer, TestServer, answer};

async fn send(server: &TestServer, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    let mut request = server.request(method, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer(request.json(&json!({ "name": "from a page" }))).await
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let server = TestServer::start().await;
    const CREATE: &str = "/api/2.0/mlflow/registered-models/create";
    for host in ["evil.example", "localhost.evil.example:5000", "8.8.8.8", "127.0.0.1.nip.io"] {
        for path in ["/", "/api/v1/models", "/api/2.0/mlflow/experiments/search", "/git/x.git/info/refs", "/no/such/page"] {
            let refused = send(&server, Method::GET, path, &[("host", host)]).await;
            assert_eq!(refused.status, 403, "{host} {path}: {}", refused.body);
            assert_eq!(refused.body, "Invalid Host header - possible DNS rebinding attack detected");
        }
        assert_eq!(send(&server, Method::GET, "/health", &[("host", host)]).await.status, 200, "health checks have any name");
        assert_eq!(send(&server, Method::GET, "/version", &[("host", host)]).await.status, 200);
    }
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        for (method, path) in [
            (Method::POST, CREATE),
            (Method::POST, "/api/v1/repositories"),
            (Method::PUT, "/api/2.0/mlflow-artifacts/artifacts/0/x"),
            (Method::DELETE, "/api/2.0/mlflow-artifacts/artifacts/0/x"),
            (Method::PATCH, "/api/2.0/mlflow/registered-models/update"),
        ] {
            let refused = send(&server, method, path, &[("origin", origin)]).await;
            assert_eq!((refused.status, refused.body), (403, json!("Cross-origin request blocked")), "{origin} {path}");
        }
    }
    let refused = send(&server, Method::POST, CREATE, &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!((refused.status, refused.body), (403, json!("Cross-origin request blocked")));
    let models: i64 = sqlx::query_scalar("SELECT count(*) FROM registered_models").fetch_one(&server.pool).await.unwrap();
    assert_eq!(models, 0);

    let own = server.url.clone();
    let allowed = send(&server, Method::POST, CREATE, &[("origin", &own), ("sec-fetch-site", "same-origin")]).await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);
    assert_eq!(allowed.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(allowed.headers[header::X_FRAME_OPTIONS], "SAMEORIGIN");
    assert!(!allowed.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}
