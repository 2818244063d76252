//! The gate decides about the alias: it never passes on absence, and judges against whoever holds the alias.

use serde_json::json;

use crate::promotion_line::{Candidate, audit, champion, decision, finish_pipeline, predict, server, ship};

#[tokio::test]
async fn the_first_version_waits_for_an_approval_and_then_serves() {
    let server = server().await;
    let pipeline = finish_pipeline(&server, &Candidate::new(2.0, None)).await;
    let (status, reason, version) = decision(&server, pipeline).await;
    assert_eq!((status.as_str(), version), ("waiting_approval", Some(1)));
    assert_eq!(reason, "no champion to compare with: run `sluice approve digits 1`");
    assert_eq!(champion(&server).await, None);
    let page = server.get(&format!("/api/v1/pipelines/{pipeline}")).await.expect(200);
    assert_eq!((page["status"].as_str(), &page["promotion"]["reason"]), (Some("waiting_approval"), &json!(reason)));

    let path = "/api/v1/models/digits/versions/1/approve";
    let promotion = server.post(path, &json!({ "alias": "champion", "comment": "looks right" })).await.expect(200);
    assert_eq!(promotion["status"], "promoted");
    assert_eq!(promotion["gate_record"]["verdict"], "pass");
    assert_eq!(promotion["gate_record"]["approved_by"], json!(["anonymous"]));
    crate::promotion_line::serving(&server, 1).await;
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));

    let page = server.get(&format!("/api/v1/pipelines/{pipeline}")).await.expect(200);
    assert_eq!((page["status"].as_str(), page["deployment"]["status"].as_str()), (Some("succeeded"), Some("serving")));

    let again = server.post(path, &json!({ "alias": "champion" })).await.expect(200);
    assert_eq!(again["gate_record"]["id"], promotion["gate_record"]["id"], "approving twice is approving once");
    assert_eq!(
        audit(&server).await,
        [
            "version.registered",
            "gate.evaluated",
            "approval.recorded",
            "gate.evaluated",
            "alias.moved",
            "deployment.started",
            "deployment.serving"
        ]
    );
    let version = server.get("/api/v1/models/digits/versions/1").await.expect(200);
    assert_eq!(version["gate_records"].as_array().map(Vec::len), Some(2));
    assert_eq!(version["approvals"][0]["comment"], "looks right");
    assert_eq!(version["pipeline_id"], pipeline);
    let record = &version["gate_records"][0];
    let served = server.get("/v2/models/digits").await.expect(200);
    assert_eq!(served["sluice_sha256"], record["artifact_sha256"], "the gated bytes are the served ones");
}

#[tokio::test]
async fn a_worse_candidate_is_blocked_and_changes_nothing() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let worse = Candidate { accuracy: Some(0.9), ..Candidate::new(3.0, Some(1)) };
    let pipeline = finish_pipeline(&server, &worse).await;
    let (status, reason, version) = decision(&server, pipeline).await;
    assert_eq!((status.as_str(), version), ("blocked", Some(2)));
    for part in ["accuracy", "0.9", "0.95"] {
        assert!(reason.contains(part), "{reason:?} names {part}");
    }
    assert!(!reason.contains('\n'), "{reason:?} is one line");
    assert_eq!(champion(&server).await, Some(1));
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));

    let refused = server.post("/api/v1/models/digits/versions/2/approve", &json!({ "alias": "champion" })).await;
    assert_eq!(refused.expect(409)["code"], "conflict", "an approval does not override a failed check");
    assert_eq!(champion(&server).await, Some(1));

    let better = ship(&server, &Candidate::new(4.0, Some(1))).await;
    assert_eq!((better, champion(&server).await), (3, Some(3)));
    assert_eq!(predict(&server).await, (40.0, "3".to_owned()));
}

#[tokio::test]
async fn a_gate_never_passes_on_absence() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let good = || Candidate::new(3.0, Some(1));
    let cases = [
        ("a metric that was never logged", Candidate { accuracy: None, ..good() }, "error"),
        ("a metric that is NaN", Candidate { accuracy: Some(f64::NAN), ..good() }, "error"),
        ("a metric that is infinite", Candidate { accuracy: Some(f64::INFINITY), ..good() }, "error"),
        ("no benchmark", Candidate { benchmark: None, ..good() }, "error"),
        ("no samples of the champion", Candidate { benchmark: Some((vec![0.97, 0.97, 0.97], vec![])), ..good() }, "error"),
        ("one repeat", Candidate { benchmark: Some((vec![0.97], vec![0.95])), ..good() }, "error"),
        ("a champion that was not measured", Candidate { champion: None, ..good() }, "error"),
        ("no ONNX file", Candidate { has_export: false, ..good() }, "error"),
        ("evidence about other bytes", Candidate { other_digest: Some("0".repeat(64)), ..good() }, "error"),
        ("outputs that differ", Candidate { parity: 0.5, ..good() }, "fail"),
        ("repeats that cannot tell", Candidate { benchmark: Some((vec![0.9, 1.0, 0.95], vec![0.96, 0.9, 1.0])), ..good() }, "inconclusive"),
    ];
    for (what, candidate, verdict) in cases {
        let pipeline = finish_pipeline(&server, &candidate).await;
        let (status, reason, version) = decision(&server, pipeline).await;
        assert_eq!(status, "blocked", "{what}: {reason}");
        assert!(!reason.is_empty(), "{what} has a reason");
        let version = server.get(&format!("/api/v1/models/digits/versions/{}", version.expect("a version"))).await.expect(200);
        assert_eq!(version["gate_records"][0]["verdict"], verdict, "{what}: {reason}");
        assert_eq!(champion(&server).await, Some(1), "{what}");
    }
    assert_eq!(predict(&server).await, (20.0, "1".to_owned()));
}

#[tokio::test]
async fn a_failed_job_ends_the_promotion_without_a_version() {
    let server = server().await;
    let pipeline = finish_pipeline(&server, &Candidate { bench_status: "failed", ..Candidate::new(2.0, None) }).await;
    let (status, reason, version) = decision(&server, pipeline).await;
    assert_eq!((status.as_str(), reason.as_str(), version), ("cancelled", "job bench failed", None));
    assert_eq!(server.get(&format!("/api/v1/pipelines/{pipeline}")).await.expect(200)["status"], "failed");
}

#[tokio::test]
async fn a_comparison_counts_only_against_the_present_champion() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    ship(&server, &Candidate::new(3.0, Some(1))).await;
    let late = finish_pipeline(&server, &Candidate::new(4.0, Some(1))).await;
    let (status, reason, _) = decision(&server, late).await;
    assert_eq!(status, "blocked");
    assert!(reason.contains("champion changed"), "{reason}");
    assert_eq!(champion(&server).await, Some(2));
}

#[tokio::test]
async fn of_candidates_that_beat_the_same_champion_at_once_one_is_promoted() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let mut pipelines = Vec::new();
    for factor in 3u8..9 {
        pipelines.push(finish_pipeline(&server, &Candidate::new(factor.into(), Some(1))).await);
    }
    let mut promoted = 0;
    for pipeline in pipelines {
        let (status, reason, _) = decision(&server, pipeline).await;
        match status.as_str() {
            "promoted" => promoted += 1,
            other => assert!(other == "blocked" && reason.contains("champion changed"), "{other}: {reason}"),
        }
    }
    assert_eq!(promoted, 1);
    let moves: i64 = sqlx::query_scalar("SELECT count(*) FROM model_alias_moves").fetch_one(&server.pool).await.expect("moves");
    assert_eq!(moves, 2);
}

#[tokio::test]
async fn of_first_versions_approved_at_once_one_becomes_champion() {
    let server = server().await;
    for factor in [2.0, 3.0, 4.0, 5.0] {
        let pipeline = finish_pipeline(&server, &Candidate::new(factor, None)).await;
        assert_eq!(decision(&server, pipeline).await.0, "waiting_approval");
    }
    let approve = async |version: i32| {
        let path = format!("/api/v1/models/digits/versions/{version}/approve");
        let promotion = server.post(&path, &json!({ "alias": "champion" })).await.expect(200);
        promotion["status"].as_str().expect("status").to_owned()
    };
    let (a, b, c, d) = tokio::join!(approve(1), approve(2), approve(3), approve(4));
    let mut outcomes = [a, b, c, d];
    outcomes.sort();
    // the others were compared with nobody, and would have to be compared with the first
    assert_eq!(outcomes, ["blocked", "blocked", "blocked", "promoted"]);
    let moves: i64 = sqlx::query_scalar("SELECT count(*) FROM model_alias_moves").fetch_one(&server.pool).await.expect("moves");
    assert_eq!(moves, 1);
}

#[tokio::test]
async fn bad_requests_name_what_is_wrong() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let posts = [
        ("/api/v1/models/digits/versions/9/approve", json!({ "alias": "champion" }), 404, ""),
        ("/api/v1/models/nobody/versions/1/approve", json!({ "alias": "champion" }), 404, ""),
        ("/api/v1/models/digits/versions/1/approve", json!({ "alias": "other" }), 404, ""),
        ("/api/v1/models/digits/versions/x/approve", json!({ "alias": "champion" }), 400, "version"),
        ("/api/v1/models/digits/versions/99999999999/approve", json!({ "alias": "champion" }), 400, "version"),
        ("/api/v1/models/digits/versions/1/approve", json!({}), 400, "alias"),
        ("/api/v1/models/digits/versions/1/approve", json!({ "alias": 1 }), 400, "alias"),
        ("/api/v1/models/digits/versions/1/approve", json!({ "alias": "a\0b" }), 400, "alias"),
        ("/api/v1/models/digits/versions/1/approve", json!({ "alias": "champion", "comment": "x".repeat(5000) }), 400, "comment"),
        ("/api/v1/models/digits/versions/1/approve", json!({ "alias": "champion", "force": true }), 400, "force"),
        ("/api/v1/models/digits/rollback", json!({ "to": 1 }), 400, "to"),
        ("/api/v1/models/digits/rollback", json!({ "environment": "staging" }), 409, ""),
        ("/api/v1/models/digits/rollback", json!({ "alias": "other" }), 409, ""),
        ("/api/v1/models/digits/rollback", json!({}), 409, ""),
        ("/api/v1/models/nobody/rollback", json!({}), 404, ""),
        ("/api/v1/deployments", json!({ "model": "digits", "alias": "champion" }), 400, "environment"),
        ("/api/v1/deployments", json!({ "model": "digits", "alias": "champion", "environment": "a/b" }), 400, "environment"),
        ("/api/v1/deployments", json!({ "model": "digits", "alias": "other", "environment": "production" }), 409, ""),
        ("/api/v1/deployments", json!({ "model": "nobody", "alias": "champion", "environment": "production" }), 404, ""),
    ];
    for (path, body, status, field) in posts {
        check(path, server.post(path, &body).await, status, field);
    }
    let gets = [
        ("/api/v1/models/nobody", 404, ""),
        ("/api/v1/models/digits/versions/7", 404, ""),
        ("/api/v1/models?limit=0", 400, "limit"),
        ("/api/v1/models?color=red", 400, "color"),
        ("/api/v1/deployments?limit=501", 400, "limit"),
        ("/api/v1/deployments?after=x", 400, "after"),
        ("/api/v1/audit?after=x", 400, "after"),
        ("/api/v1/gate-records/99", 404, ""),
        ("/api/v1/gate-records/x", 400, "id"),
        ("/api/v1/deployments/99", 404, ""),
    ];
    for (path, status, field) in gets {
        check(path, server.get(path).await, status, field);
    }
    for (path, status) in [
        ("/v2/models/nobody", 404),
        ("/v2/models/digits/versions/7", 404),
        ("/v2/models/digits?environment=staging", 404),
        ("/v2/nothing", 404),
    ] {
        let said = server.get(path).await.expect(status);
        assert!(said["error"].is_string(), "{path}: {said}");
    }
    let said = server.post("/v2/models/digits/infer", &json!({ "inputs": [] })).await.expect(400);
    assert!(said["error"].is_string(), "{said}");
}

fn check(path: &str, said: sluice_tests::Answer, status: u16, field: &str) {
    assert_eq!(said.status, status, "{path}: {}", said.body);
    if !field.is_empty() {
        assert_eq!(said.body["errors"][0]["field"], field, "{path}: {}", said.body);
    }
}
