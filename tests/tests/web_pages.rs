//! Pages without a browser: they read without JavaScript, hold nothing inline, and treat user text as text.

use reqwest::Method;
use serde_json::json;
use sluice_tests::{Answer, TestServer, answer};

use crate::{
    pipeline_support::{Checkout, FakeRunner, start_pipeline},
    tracking_support::{new_experiment, new_run, ok},
};

const EVIL: &str = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";

async fn page(server: &TestServer, path: &str) -> String {
    let answer = server.get(path).await;
    let body = check(path, &answer);
    assert_eq!(answer.status, 200, "{path}: {body}");
    body
}

/// What holds for every page, good or bad.
fn check(path: &str, answer: &Answer) -> String {
    let body = answer.body.as_str().unwrap_or_else(|| panic!("{path} is not HTML: {}", answer.body)).to_owned();
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{path}");
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{path}: {policy}");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    for inline in [" style=", "<style", "javascript:", " onclick=", " onload=", " onerror=alert(1)>", "<script>"] {
        assert!(!body.contains(inline), "{path} holds {inline}");
    }
    for part in body.split("src=\"").skip(1).chain(body.split("<link ").skip(1).filter_map(|link| link.split("href=\"").nth(1))) {
        assert!(part.starts_with("/assets/"), "{path} asks for {}", &part[..part.len().min(60)]);
    }
    assert_eq!(body.matches("<h1").count(), 1, "{path} has one main heading");
    assert_eq!(body.matches("<table").count(), body.matches("<caption").count() + body.matches("<table class=\"plain\"").count(), "{path}");
    body
}

#[tokio::test]
async fn empty_pages_say_how_to_fill_them() {
    let server = TestServer::start().await;
    for (path, parts) in [
        ("/models", vec!["No models yet", "registered_model_name"]),
        ("/pipelines", vec!["No pipelines yet", "git push sluice main"]),
        ("/deployments", vec!["Nothing was deployed yet", "alias: champion"]),
        ("/runners", vec!["No runner has registered", "sluice runner --server"]),
        ("/repositories", vec!["No repositories yet", "git remote add sluice"]),
        ("/experiments/0", vec!["No runs yet", "mlflow.set_experiment"]),
        ("/audit", vec!["Audit"]),
        ("/", vec!["/experiments", "/models"]),
    ] {
        let body = page(&server, path).await;
        for part in parts {
            assert!(body.contains(part), "{path} lacks {part}");
        }
    }
}

#[tokio::test]
async fn user_text_is_text_on_every_page() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, EVIL).await;
    let run = new_run(&server, &experiment, EVIL).await;
    let metric = "loss";
    ok(&server, "runs/log-metric", json!({ "run_id": run, "key": metric, "value": 0.25, "timestamp": 1, "step": 7 })).await;
    ok(&server, "runs/log-metric", json!({ "run_id": run, "key": metric, "value": 0.125, "timestamp": 2, "step": 8 })).await;
    ok(&server, "runs/log-parameter", json!({ "run_id": run, "key": "note", "value": EVIL })).await;
    ok(&server, "runs/set-tag", json!({ "run_id": run, "key": "mlflow.note.content", "value": EVIL })).await;
    ok(&server, "registered-models/create", json!({ "name": "model <b>", "description": EVIL })).await;
    ok(
        &server,
        "model-versions/create",
        json!({ "name": "model <b>", "source": format!("mlflow-artifacts:/{experiment}/{run}/artifacts/m"), "run_id": run }),
    )
    .await;

    let file = "version: 1\non: { push: { branches: [main] } }\njobs:\n  train: { run: echo }\n";
    let pipeline = start_pipeline(&server, "evil", file).await;
    let checkout = Checkout::create(&server, "broken").await;
    checkout.commit("version: 1\njobs: { train: { rum: \"<script>alert(1)</script>\" } }\n", EVIL).await;
    checkout.push("main").await;
    let broken = server.get("/api/v1/pipelines?repository=broken").await.expect(200)["items"][0].clone();
    let runner = FakeRunner::register(&server, "one").await;
    let attempt = runner.must_claim().await;
    attempt.log(0, &format!("{EVIL}\n")).await.expect(200);

    let escaped = "&#60;script&#62;alert(&#39;x&#39;)&#60;/script&#62;";
    for (path, part) in [
        ("/experiments".to_owned(), escaped),
        (format!("/experiments/{experiment}"), escaped),
        (format!("/experiments/{experiment}?filter=%3Cscript%3E"), "&#60;script&#62;"),
        (format!("/runs/{run}"), escaped),
        (format!("/runs/{run}/metric?key={metric}"), "0.125"),
        ("/models".to_owned(), escaped),
        ("/models/model%20%3Cb%3E".to_owned(), escaped),
        ("/models/model%20%3Cb%3E/versions/1".to_owned(), "model &#60;b&#62; v1"),
        ("/pipelines".to_owned(), escaped),
        (format!("/pipelines/{}", pipeline["id"]), "train"),
        (format!("/pipelines/{}", broken["id"]), "line 2"),
        (format!("/jobs/{}", attempt.job_id()), escaped),
        ("/repositories/broken".to_owned(), escaped),
        ("/runners".to_owned(), "one"),
        ("/audit".to_owned(), "pipeline.started"),
        ("/nothing/%3Cscript%3E".to_owned(), "There is no page at"),
        ("/runs/%3Cscript%3E".to_owned(), "&#60;script&#62;"),
        (format!("/runs/{run}/metric?key=%3Cscript%3E"), "&#60;script&#62;"),
    ] {
        let answer = server.get(&path).await;
        let body = check(&path, &answer);
        assert!(body.contains(part), "{path} lacks {part}: {body}");
    }
    let raw = server.get(&format!("/jobs/{}/log.txt", attempt.job_id())).await;
    assert_eq!((raw.headers["content-type"].to_str().unwrap(), raw.status), ("text/plain; charset=utf-8", 200));
    assert_eq!(raw.body, json!(format!("{EVIL}\n")));
}

#[tokio::test]
async fn bad_addresses_and_forms_are_answered_with_pages() {
    let server = TestServer::start().await;
    for (path, status) in [
        ("/runs/nope", 404),
        ("/runs/00000000000000000000000000000000", 404),
        ("/experiments/x", 404),
        ("/experiments/99", 404),
        ("/experiments/99999999999999999999", 404),
        ("/pipelines/0", 404),
        ("/jobs/x", 404),
        ("/jobs/1?attempt=x", 404),
        ("/models/none", 404),
        ("/models/none/versions/1", 404),
        ("/models/none/versions/x", 404),
        ("/repositories/none", 404),
        ("/nope", 404),
        ("/experiments/0?filter=metrics.loss+%3E", 400),
        ("/experiments/0?order_by=nonsense", 400),
        ("/experiments/0?page=nonsense", 400),
    ] {
        let answer = server.get(path).await;
        check(path, &answer);
        assert_eq!(answer.status, status, "{path}");
    }
    let no_redirect = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for (path, body, location) in [
        ("/repositories", "name=..%2Fup", "/repositories"),
        ("/repositories", "name=good", "/repositories/good"),
        ("/repositories", "name=good", "/repositories"),
        ("/pipelines/77/cancel", "", "/pipelines/77"),
        ("/jobs/77/retry", "", "/jobs/77"),
        ("/models/none/rollback", "alias=champion", "/models/none"),
        ("/models/none/versions/1/approve", "alias=champion", "/models/none/versions/1"),
    ] {
        let request =
            no_redirect.post(format!("{}{path}", server.url)).header("content-type", "application/x-www-form-urlencoded").body(body);
        let answer = answer(request).await;
        assert_eq!((answer.status, answer.headers["location"].to_str().unwrap()), (303, location), "{path} {body}");
        assert!(answer.headers["set-cookie"].to_str().unwrap().contains("SameSite=Strict"));
    }
    let foreign = server.request(Method::POST, "/repositories").header("origin", "http://evil.example").body("name=stolen");
    assert_eq!(answer(foreign.header("content-type", "application/x-www-form-urlencoded")).await.status, 403);
    let names = server.get("/api/v1/repositories").await.expect(200);
    assert_eq!(names["items"].as_array().unwrap().len(), 1, "{names}");
}

#[tokio::test]
async fn assets_are_kept_for_ever_and_bound_to_their_digest() {
    let server = TestServer::start().await;
    let home = page(&server, "/experiments").await;
    let style = home.split("href=\"").find(|part| part.starts_with("/assets/sluice.") && part.contains(".css")).unwrap();
    let style = style.split('"').next().unwrap();
    let answer = server.get(style).await;
    assert_eq!((answer.status, answer.headers["content-type"].to_str().unwrap()), (200, "text/css; charset=utf-8"));
    assert!(answer.headers["cache-control"].to_str().unwrap().contains("immutable"));
    for missing in ["/assets/sluice.css", "/assets/sluice.000000000000.css", "/assets/LICENSE", "/assets/..%2Fsrc%2Flib.rs"] {
        assert_eq!(server.get(missing).await.status, 404, "{missing}");
    }
}
