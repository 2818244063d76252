//! `sluice serve-model`: what it serves, and what it refuses.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use sluice_tests::{Answer, answer, repository_root, sluice_binary, wait_for};
use tokio::process::{Child, Command};

use crate::promotion_line::onnxruntime;

const LIMIT: Duration = Duration::from_secs(60);
/// SHA-256 of `fixtures/types.onnx`: y = x + 1, above = x > 1, picked = [10.5, 20.5, 30.5][n], kept = n where mask.
const DIGEST: &str = "d0ea98e7603cd53430bb0077c7e8939eea8cd00e119a02deb4bc82059eb8bd74";

fn model_file() -> PathBuf {
    repository_root().join("tests/fixtures/types.onnx")
}

fn command(model: &Path, digest: &str, ready_file: &Path) -> Command {
    let mut command = Command::new(sluice_binary());
    command
        .args(["serve-model", "--name", "types", "--version", "3", "--sha256", digest, "--model-file"])
        .arg(model)
        .arg("--onnxruntime")
        .arg(onnxruntime())
        .arg("--ready-file")
        .arg(ready_file)
        .stdin(Stdio::piped())
        .kill_on_drop(true);
    command
}

struct Served {
    url: String,
    child: Child,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let ready_file = folder.path().join("ready");
        let child = command(&model_file(), DIGEST, &ready_file).spawn().expect("start");
        let ready = wait_for("the ready file", LIMIT, || async { std::fs::read_to_string(&ready_file).ok() }).await;
        let ready: Value = serde_json::from_str(&ready).expect("JSON");
        Self { url: format!("http://127.0.0.1:{}", ready["port"]), child, http: reqwest::Client::new(), _folder: folder }
    }

    async fn get(&self, path: &str) -> Answer {
        answer(self.http.get(format!("{}{path}", self.url))).await
    }

    async fn infer(&self, body: impl Into<reqwest::Body>) -> Answer {
        answer(self.http.post(format!("{}/v2/models/types/infer", self.url)).body(body)).await
    }

    async fn infer_json(&self, body: &Value) -> Answer {
        self.infer(body.to_string()).await
    }
}

fn request() -> Value {
    json!({
        "id": "a-1",
        "inputs": [
            { "name": "mask", "shape": [2], "datatype": "BOOL", "data": [true, false] },
            { "name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[0.5, 1.5], [2, -1]] },
            { "name": "n", "shape": [2], "datatype": "INT64", "data": [2, 0] },
        ],
    })
}

#[tokio::test]
async fn open_inference_protocol_is_spoken() {
    let served = Served::start().await;
    assert_eq!(served.get("/v2").await.expect(200)["name"], "sluice");
    assert_eq!(served.get("/v2/health/live").await.expect(200)["live"], true);
    assert_eq!(served.get("/v2/health/ready").await.expect(200)["ready"], true);
    for path in ["/v2/models/types/ready", "/v2/models/types/versions/3/ready"] {
        assert_eq!(served.get(path).await.expect(200)["ready"], true);
    }
    for path in ["/v2/models/types", "/v2/models/types/versions/3"] {
        let meta = served.get(path).await.expect(200);
        assert_eq!(meta["versions"], json!(["3"]));
        assert_eq!(meta["sluice_sha256"], DIGEST);
        assert_eq!(meta["inputs"][0], json!({ "name": "x", "datatype": "FP32", "shape": [-1, 2] }));
        assert_eq!(meta["inputs"][1], json!({ "name": "n", "datatype": "INT64", "shape": [-1] }));
        assert_eq!(meta["outputs"][2], json!({ "name": "picked", "datatype": "FP64", "shape": [-1] }));
    }

    let answered = served.infer_json(&request()).await.expect(200);
    assert_eq!(answered["id"], "a-1");
    assert_eq!((&answered["model_name"], &answered["model_version"]), (&json!("types"), &json!("3")));
    let expected = json!([
        { "name": "y", "datatype": "FP32", "shape": [2, 2], "data": [1.5, 2.5, 3.0, 0.0] },
        { "name": "above", "datatype": "BOOL", "shape": [2, 2], "data": [false, true, true, false] },
        { "name": "picked", "datatype": "FP64", "shape": [2], "data": [30.5, 10.5] },
        { "name": "kept", "datatype": "INT64", "shape": [2], "data": [2, 0] },
    ]);
    assert_eq!(answered["outputs"], expected);

    let mut some = request();
    some["outputs"] = json!([{ "name": "picked" }, { "name": "y" }]);
    let answered = served.infer_json(&some).await.expect(200);
    assert_eq!(answered["outputs"], json!([expected[2], expected[0]]));
}

#[tokio::test]
async fn bad_requests_are_refused_with_the_input_named() {
    let served = Served::start().await;
    let with = |path: &str, value: Value| {
        let mut body = request();
        *body.pointer_mut(path).expect(path) = value;
        body
    };
    let cases = [
        (with("/inputs", json!([])), "input \"x\" is missing"),
        (with("/inputs/0/name", json!("nope")), "input \"nope\""),
        (with("/inputs/1/name", json!("mask")), "input \"mask\" is given twice"),
        (with("/inputs/1/datatype", json!("FP64")), "input \"x\" has datatype \"FP64\""),
        (with("/inputs/1/shape", json!([4])), "input \"x\" has shape [4]"),
        (with("/inputs/1/shape", json!([2, 3])), "input \"x\" has shape [2, 3]"),
        (with("/inputs/2/shape", json!([3])), "input \"n\" has 2 values in data"),
        (with("/inputs/2/data", json!([1.5, 0])), "input \"n\": 1.5 is not an INT64"),
        (with("/inputs/0/data", json!([1, 0])), "input \"mask\": 1 is not a BOOL"),
        // fit each on its own, not together
        (
            with("/inputs/2", json!({ "name": "n", "shape": [3], "datatype": "INT64", "data": [0, 1, 2] })),
            "the model cannot run these inputs",
        ),
        (with("/inputs/2/data", json!([0, 7])), "the model cannot run these inputs"),
    ];
    for (body, expected) in cases {
        let refused = served.infer_json(&body).await.expect(400);
        let message = refused["error"].as_str().expect("a message");
        assert!(message.contains(expected), "{body}\n  said: {message}\n  not:  {expected}");
    }
    assert!(served.infer("{").await.expect(400)["error"].is_string());
    assert!(served.infer(vec![b' '; 16 * 1024 * 1024 + 1]).await.expect(413)["error"].is_string());
    for path in ["/v2/models/other", "/v2/models/types/versions/4", "/v2/models/types/versions/4/ready", "/v3"] {
        assert!(served.get(path).await.expect(404)["error"].is_string());
    }
    assert!(served.get("/v2/models/types/infer").await.expect(405)["error"].is_string());
    // and it still serves
    served.infer_json(&request()).await.expect(200);
}

#[tokio::test]
async fn server_ends_when_its_parent_is_gone_and_on_sigterm() {
    let mut served = Served::start().await;
    drop(served.child.stdin.take());
    let status = tokio::time::timeout(LIMIT, served.child.wait()).await.expect("ends").expect("status");
    assert!(status.success(), "{status}");

    let mut served = Served::start().await;
    let pid = rustix::process::Pid::from_raw(served.child.id().expect("runs").cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
    // held, so that only the signal can have ended it
    let _stdin = served.child.stdin.take();
    let status = tokio::time::timeout(LIMIT, served.child.wait()).await.expect("ends").expect("status");
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn other_bytes_and_other_addresses_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let ready_file = folder.path().join("ready");
    let refused = async |model: &Path, digest: &str, listen: &str| {
        let Output { status, stderr, .. } = command(model, digest, &ready_file).args(["--listen", listen]).output().await.expect("start");
        assert!(!status.success(), "{status}");
        assert!(!ready_file.exists(), "a refused model must not look ready");
        String::from_utf8_lossy(&stderr).into_owned()
    };
    let mut bytes = std::fs::read(model_file()).expect("fixture");
    *bytes.last_mut().expect("bytes") ^= 1;
    let other = folder.path().join("other.onnx");
    std::fs::write(&other, bytes).expect("write");
    let said = refused(&other, DIGEST, "127.0.0.1:0").await;
    assert!(said.contains("digest mismatch") && said.contains(DIGEST), "{said}");
    let said = refused(&model_file(), DIGEST, "0.0.0.0:0").await;
    assert!(said.contains("only loopback"), "{said}");
    let said = refused(&folder.path().join("missing.onnx"), DIGEST, "127.0.0.1:0").await;
    assert!(said.contains("missing.onnx"), "{said}");
}
