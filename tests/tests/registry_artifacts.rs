//! The artifact proxy: streamed, whole or not at all, inside of its folder, and never a page of this server.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use reqwest::{Method, header};
use serde_json::json;
use sluice_tests::{Answer, TestServer, answer, wait_for};

use crate::{
    tracking_fence::{TOKENS, begin_attempt, job_of},
    tracking_support::{assert_refused, get, new_experiment, new_run},
};

const PROXY: &str = "/api/2.0/mlflow-artifacts/artifacts";

async fn put(server: &TestServer, path: &str, content: impl Into<reqwest::Body>) -> Answer {
    answer(server.request(Method::PUT, &format!("{PROXY}/{path}")).body(content)).await
}

async fn read(server: &TestServer, path: &str, range: Option<&str>) -> (u16, header::HeaderMap, Vec<u8>) {
    let mut request = server.request(Method::GET, path);
    if let Some(range) = range {
        request = request.header(header::RANGE, range);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap().to_vec())
}

/// Files below a folder, staged uploads included, by their names.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// Sends a request line and headers as they are, without the normalisation of an HTTP library.
fn raw(server: &TestServer, head: &str) -> String {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "{head}\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[tokio::test]
async fn artifacts_are_stored_listed_read_in_parts_and_deleted() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "artifacts").await;
    let run = new_run(&server, &experiment, "r").await;
    let root = format!("{experiment}/{run}/artifacts");
    put(&server, &format!("{root}/d/b.bin"), "0123456789").await.expect(200);
    put(&server, &format!("{root}/a.txt"), "old").await.expect(200);
    put(&server, &format!("{root}/a.txt"), "new").await.expect(200);
    put(&server, &format!("{root}/empty"), "").await.expect(200);

    let list = server.get(&format!("{PROXY}?path={root}")).await.expect(200);
    assert_eq!(
        list,
        json!({ "files": [
            { "path": "a.txt", "is_dir": false, "file_size": 3 },
            { "path": "d", "is_dir": true },
            { "path": "empty", "is_dir": false },
        ] })
    );
    let list = get(&server, &format!("artifacts/list?run_id={run}&path=d")).await.expect(200);
    assert_eq!(list["root_uri"], format!("mlflow-artifacts:/{root}"));
    assert_eq!(list["files"], json!([{ "path": "d/b.bin", "is_dir": false, "file_size": 10 }]));
    assert_eq!(server.get(&format!("{PROXY}?path={root}/none")).await.expect(200), json!({}));

    let file = format!("{PROXY}/{root}/d/b.bin");
    let (status, headers, bytes) = read(&server, &file, None).await;
    assert_eq!((status, bytes.as_slice()), (200, b"0123456789".as_slice()));
    assert_eq!(headers[header::CONTENT_LENGTH], "10");
    for (range, content_range, expected) in [
        ("bytes=2-4", "bytes 2-4/10", "234"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=8-99", "bytes 8-9/10", "89"),
    ] {
        let (status, headers, bytes) = read(&server, &file, Some(range)).await;
        assert_eq!((status, bytes.as_slice()), (206, expected.as_bytes()), "{range}");
        assert_eq!(headers[header::CONTENT_RANGE], content_range);
    }
    let (status, headers, _) = read(&server, &file, Some("bytes=10-")).await;
    assert_eq!((status, headers[header::CONTENT_RANGE].to_str().unwrap()), (416, "bytes */10"));
    assert_eq!(read(&server, &file, Some("bytes=1-2,4-5")).await.0, 200);
    assert_eq!(read(&server, &format!("/get-artifact?run_id={run}&path=a.txt"), None).await.2, b"new");

    assert_refused(&server.get(&format!("{PROXY}/{root}/none")).await, 404, "RESOURCE_DOES_NOT_EXIST", "No such artifact");
    assert_refused(&server.get(&format!("{PROXY}/{root}/d")).await, 400, "INVALID_PARAMETER_VALUE", "is a folder");
    assert_refused(&put(&server, &format!("{root}/a.txt/b"), "x").await, 400, "INVALID_PARAMETER_VALUE", "a file, not a folder");
    assert_refused(&put(&server, &format!("{root}/d"), "x").await, 400, "INVALID_PARAMETER_VALUE", "folder");

    answer(server.request(Method::DELETE, &format!("{PROXY}/{root}/d"))).await.expect(200);
    answer(server.request(Method::DELETE, &format!("{PROXY}/{root}/d"))).await.expect(200);
    assert_eq!(files(&server.data.path().join("artifacts")), ["a.txt", "empty"]);

    for path in ["/mpu/create/x", "/mpu/complete/x", "/mpu/abort/x"] {
        let refused = server.post(&format!("/api/2.0/mlflow-artifacts{path}"), &json!({ "path": "x" })).await;
        assert_refused(&refused, 501, "NOT_IMPLEMENTED", "Multipart upload is not supported");
    }
    assert_refused(&server.get("/api/2.0/mlflow-artifacts/presigned/x").await, 501, "NOT_IMPLEMENTED", "Multipart download");
}

#[tokio::test]
async fn paths_that_climb_are_refused_and_touch_nothing() {
    let server = TestServer::start().await;
    let secret = server.data.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    put(&server, "0/ok", "x").await.expect(200);
    let bad = [
        "../secret",
        "0/../../secret",
        "%2e%2e/secret",
        "0/%2e%2e/%2e%2e/secret",
        "%252e%252e/secret",
        "%25252e%25252e/secret",
        "..%2fsecret",
        "..%5csecret",
        "0\\..\\secret",
        "%2Fetc/passwd",
        "/etc/passwd",
        "0//x",
        "0/./x",
        "0/x/",
        "0/a%23b",
        "0/a%00b",
        "0/a%0d%0ab",
        "C:/x",
        "c%3A%2Fx",
        "%ff",
        "",
    ];
    for path in bad {
        for method in ["PUT", "GET", "DELETE"] {
            let body = if method == "PUT" { "\r\nContent-Length: 0" } else { "" };
            let text = raw(&server, &format!("{method} {PROXY}/{path} HTTP/1.1{body}"));
            let status = text.split(' ').nth(1).unwrap_or_default();
            assert_eq!(status, "400", "{method} {path}: {text}");
            assert!(!text.contains("secret\n") && !text.contains("root:"), "{method} {path}: {text}");
        }
        if !path.is_empty() && !path.contains('\\') && path != "%ff" {
            let list = raw(&server, &format!("GET {PROXY}?path={path} HTTP/1.1"));
            // a slash at the end of a folder is fine, and one at its start is not
            assert!(list.contains(" 400 ") || path == "0/x/", "{path}: {list}");
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(files(&server.data.path().join("artifacts")), ["ok"]);

    let experiment = new_experiment(&server, "climb").await;
    let run = new_run(&server, &experiment, "r").await;
    for path in ["../../../0/ok", "..%2F..%2F..%2F0%2Fok", "a/../../x", "%252e%252e/x"] {
        let refused = server.get(&format!("/get-artifact?run_id={run}&path={path}")).await;
        assert_refused(&refused, 400, "INVALID_PARAMETER_VALUE", "path");
        assert_eq!(get(&server, &format!("artifacts/list?run_id={run}&path={path}")).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn no_artifact_runs_as_a_page() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "pages").await;
    let run = new_run(&server, &experiment, "r").await;
    let script = "<script>document.title = 'ran'</script>";
    for (name, content) in [
        ("page.html", script.to_owned()),
        ("page.xhtml", format!("<html xmlns=\"http://www.w3.org/1999/xhtml\">{script}</html>")),
        ("image.svg", format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{script}</svg>")),
        ("data.xml", format!("<x>{script}</x>")),
        ("noextension", script.to_owned()),
        ("a\"; filename=\"b.html", script.to_owned()),
    ] {
        let key = format!("{experiment}/{run}/artifacts/{}", name.replace('"', "%22").replace(' ', "%20"));
        put(&server, &key, content.clone()).await.expect(200);
        let encoded = name.replace('"', "%22").replace(' ', "%20");
        for url in [format!("{PROXY}/{key}"), format!("/get-artifact?run_id={run}&path={encoded}")] {
            let (status, headers, bytes) = read(&server, &url, None).await;
            assert_eq!((status, bytes.as_slice()), (200, content.as_bytes()), "{url}");
            let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            assert!(value("content-disposition").starts_with("attachment"), "{url}: {headers:?}");
            assert!(!value("content-disposition").contains("\"b.html"), "{url}: {headers:?}");
            assert_eq!(value("x-content-type-options"), "nosniff");
            assert_eq!(value("content-security-policy"), "sandbox; default-src 'none'");
            assert_eq!(headers.get_all("content-security-policy").iter().count(), 1);
        }
    }
}

#[tokio::test]
async fn a_broken_upload_leaves_nothing() {
    let mut server = TestServer::start().await;
    put(&server, "0/model.bin", "whole").await.expect(200);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let folder = server.data.path().join("artifacts");
    let begin_upload = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "PUT {PROXY}/0/model.bin HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000000\r\n\r\nhalf").unwrap();
        stream.flush().unwrap();
        stream
    };
    let staged = || async { (files(&folder) == ["model.bin", "model.bin#1"]).then_some(()) };
    let gone = || async { (files(&folder) == ["model.bin"]).then_some(()) };
    let limit = Duration::from_secs(20);

    let stream = begin_upload();
    wait_for("the staged upload", limit, staged).await;
    assert_eq!(read(&server, &format!("{PROXY}/0/model.bin"), None).await.2, b"whole");
    drop(stream);
    wait_for("the end of the staged upload", limit, gone).await;

    let _stream = begin_upload();
    wait_for("the second staged upload", limit, staged).await;
    server.kill9().await;
    let left = std::fs::File::options().write(true).open(folder.join("0/model.bin#1")).unwrap();
    left.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    server.restart().await;
    wait_for("the sweep of what was left", limit, gone).await;
    assert_eq!(read(&server, &format!("{PROXY}/0/model.bin"), None).await.2, b"whole");
}

#[tokio::test]
async fn a_stale_attempt_changes_no_artifact_and_no_model() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "fenced artifacts").await;
    let run = new_run(&server, &experiment, "job").await;
    let job = job_of(&server, &run).await;
    let url = format!("{PROXY}/{experiment}/{run}/artifacts/m.bin");
    let put_as = |token: &str, content: &'static str| answer(server.request(Method::PUT, &url).bearer_auth(token).body(content));
    put_as(TOKENS[0], "first").await.expect(200);

    // the upload begins under the lease and ends after another attempt took over
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<&'static [u8], std::io::Error>>(1);
    sender.send(Ok(b"zomb")).await.unwrap();
    let body = futures_stream(receiver);
    let request = server.request(Method::PUT, &url).bearer_auth(TOKENS[0]).body(reqwest::Body::wrap_stream(body));
    let upload = tokio::spawn(answer(request));
    let folder = server.data.path().join("artifacts");
    wait_for("the staged upload", Duration::from_secs(20), || async { (files(&folder).len() == 2).then_some(()) }).await;
    begin_attempt(&server, job, 2).await;
    sender.send(Ok(b"ie")).await.unwrap();
    drop(sender);
    assert_refused(&upload.await.unwrap(), 409, "RESOURCE_CONFLICT", "may not write any more");
    assert_eq!(read(&server, &url, None).await.2, b"first");

    assert_refused(&put_as(TOKENS[0], "x").await, 409, "RESOURCE_CONFLICT", "attempt 2 took over");
    let deletion = answer(server.request(Method::DELETE, &url).bearer_auth(TOKENS[0])).await;
    assert_refused(&deletion, 409, "RESOURCE_CONFLICT", "attempt 2 took over");
    assert_refused(&put_as("sluice_job_nobody", "x").await, 401, "UNAUTHENTICATED", "token");
    for (path, body) in [
        ("registered-models/create", json!({ "name": "zombie" })),
        ("logged-models", json!({ "experiment_id": experiment, "name": "zombie" })),
        ("runs/log-inputs", json!({ "run_id": run, "datasets": [], "models": [] })),
    ] {
        let refused = server.post_as(TOKENS[0], &format!("/api/2.0/mlflow/{path}"), &body).await;
        assert_refused(&refused, 409, "RESOURCE_CONFLICT", "attempt 2 took over");
    }
    put_as(TOKENS[1], "second").await.expect(200);
    assert_eq!(files(&folder), ["m.bin"]);
}

/// A channel as the stream that a request body takes.
fn futures_stream(
    receiver: tokio::sync::mpsc::Receiver<Result<&'static [u8], std::io::Error>>,
) -> impl futures_util::Stream<Item = Result<&'static [u8], std::io::Error>> {
    futures_util::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|chunk| (chunk, receiver)) })
}
