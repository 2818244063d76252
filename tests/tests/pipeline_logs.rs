//! Logs and notices, followed live.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sluice_tests::{TestServer, answer};

use crate::pipeline_support::{FakeRunner, TWO_JOBS, start_pipeline};

#[tokio::test]
async fn logs_are_followed_live_and_resumed() {
    let server = TestServer::start().await;
    start_pipeline(&server, "logs", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let train = runner.must_claim().await;
    train.log(0, "one\n").await.expect(200);
    let path = format!("/api/v1/jobs/{}/logs", train.job_id());

    let mut stream = server.request(Method::GET, &format!("{path}?follow=1")).send().await.expect("stream");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "\"one\\n\"").await;
    train.post("logs", &json!({ "chunks": [{ "seq": 0, "content": "one\n" }, { "seq": 1, "content": "tw\u{0}o\n" }] })).await.expect(200);
    read_until(&mut stream, &mut text, "tw\u{fffd}o").await;
    train.result("failed", Some("user")).await.expect(200);
    read_until(&mut stream, &mut text, "event: end").await;
    assert_eq!(text.matches("event: chunk").count(), 2, "{text}");
    assert!(text.contains("id: 1\nevent: chunk\ndata: {\"seq\":1,"), "{text}");

    let resumed = answer(server.request(Method::GET, &format!("{path}?follow=1")).header("Last-Event-ID", "0")).await;
    let resumed = resumed.body.as_str().expect("text").to_owned();
    assert!(!resumed.contains("\"seq\":0") && resumed.contains("\"seq\":1") && resumed.contains("event: end"), "{resumed}");
    let page = server.get(&path).await.expect(200);
    assert_eq!((&page["attempt"], &page["next"], &page["finished"]), (&json!(1), &json!(2), &json!(true)));
}

#[tokio::test]
async fn events_tell_what_changed() {
    let server = TestServer::start().await;
    let pipeline = start_pipeline(&server, "events", TWO_JOBS).await;
    let runner = FakeRunner::register(&server, "one").await;
    let path = format!("/api/v1/events?topics=pipeline:{}", pipeline["id"]);
    let mut stream = server.request(Method::GET, &path).send().await.expect("stream");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "event: ready").await;
    runner.must_claim().await;
    read_until(&mut stream, &mut text, &format!("event: change\ndata: pipeline:{}\n", pipeline["id"])).await;
}

async fn read_until(stream: &mut reqwest::Response, text: &mut String, wanted: &str) {
    while !text.contains(wanted) {
        let chunk = tokio::time::timeout(Duration::from_secs(30), stream.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("waited in vain for {wanted:?} after {text}")).expect("a chunk");
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap_or_else(|| panic!("the stream ended before {wanted:?}: {text}"))));
    }
}
