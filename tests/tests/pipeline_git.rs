//! The built-in git remote, and pipelines of what is pushed to it.

use std::{path::PathBuf, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use sluice_tests::{TestServer, answer, wait_for};

use crate::pipeline_support::{Checkout, git, git_ok};

const ONE_JOB: &str = "version: 1\non: { push: { branches: [main, \"exp/**\"] } }\njobs:\n  train:\n    run: echo hello\n";

async fn pipelines(server: &TestServer) -> Vec<Value> {
    server.get("/api/v1/pipelines?limit=500").await.expect(200)["items"].as_array().expect("items").clone()
}

#[tokio::test]
async fn a_push_starts_one_pipeline_and_prints_its_url() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "digits").await;
    let sha = checkout.commit(ONE_JOB, "Train on digits").await;
    let said = checkout.push("main").await;
    let url = format!("{}/pipelines/1", server.url);
    assert!(said.contains(&format!("remote: pipeline #1  {url}")), "{said}");

    let pipeline = server.get("/api/v1/pipelines/1").await.expect(200);
    for (field, value) in [
        ("repository", json!("digits")),
        ("branch", json!("main")),
        ("sha", json!(sha)),
        ("commit_subject", json!("Train on digits")),
        ("commit_author", json!("Ada <ada@example.org>")),
        ("status", json!("running")),
        ("file_errors", Value::Null),
        ("url", json!(url)),
    ] {
        assert_eq!(pipeline[field], value, "{field}");
    }
    assert_eq!(pipeline["jobs"][0]["name"], "train");
    assert_eq!(pipeline["jobs"][0]["status"], "queued");
    assert_eq!(pipeline["jobs"][0]["waiting_reason"], "no runner is online");

    // nothing new: no pipeline; a branch that the file does not name: none either
    assert!(!checkout.push("main").await.contains("pipeline #"));
    assert!(!checkout.push("main:refs/heads/other").await.contains("pipeline #"));
    assert!(!checkout.push("main:refs/tags/v1").await.contains("pipeline #"));
    assert!(checkout.push("main:refs/heads/exp/a/b").await.contains("pipeline #2"));
    git_ok(checkout.folder.path(), &["rm", "-q", ".sluice.yml"]).await;
    checkout.commit_all("No pipeline file").await;
    assert!(!checkout.push("main").await.contains("pipeline #"));
    checkout.push(":refs/heads/exp/a/b").await;
    assert_eq!(pipelines(&server).await.len(), 2);

    // what was pushed comes back
    let elsewhere = Checkout::of(&checkout.url).await;
    git_ok(elsewhere.folder.path(), &["fetch", "-q", "origin"]).await;
    let branches = git_ok(elsewhere.folder.path(), &["branch", "-r", "--format=%(refname:short) %(objectname)"]).await;
    assert!(branches.contains(&format!("origin/other {sha}")), "{branches}");
    assert!(!branches.contains("exp/a/b"), "{branches}");
    // a commit that no branch holds any more can still be fetched by a runner
    git_ok(elsewhere.folder.path(), &["fetch", "-q", "--depth", "1", "origin", &sha]).await;
}

#[tokio::test]
async fn a_broken_file_fails_its_pipeline_with_line_and_column() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "broken").await;
    checkout.commit("version: 1\njobs:\n  train:\n    run: echo hello\n    rum: 5\n", "Typo").await;
    let said = checkout.push("main").await;
    assert!(said.contains("remote: pipeline #1  "), "{said}");
    assert!(said.contains("remote: pipeline #1 failed: .sluice.yml:5:5: jobs.train.rum"), "{said}");
    let pipeline = server.get("/api/v1/pipelines/1").await.expect(200);
    assert_eq!(pipeline["status"], "failed");
    assert_eq!(pipeline["jobs"], json!([]));
    assert!(pipeline["finished_at"].is_string());
    let error = &pipeline["file_errors"][0];
    assert_eq!((&error["file"], &error["line"], &error["column"]), (&json!(".sluice.yml"), &json!(5), &json!(5)), "{error}");
    assert!(error["message"].as_str().expect("message").contains("rum"), "{error}");
    assert!(error["snippet"].as_str().expect("snippet").contains("rum: 5"), "{error}");

    for (bytes, word) in [(b"version: 1\0".to_vec(), "NUL"), (vec![0xff, 0xfe], "UTF-8"), (vec![b'#'; 2_000_000], "at most")] {
        std::fs::write(checkout.folder.path().join(".sluice.yml"), bytes).expect("write");
        checkout.commit_all(word).await;
        checkout.push("main").await;
        let last = &pipelines(&server).await[0];
        assert_eq!(last["status"], "failed");
        assert!(last["status_reason"].as_str().expect("reason").contains(word), "{last}");
    }
    assert_eq!(pipelines(&server).await.len(), 4);
}

#[tokio::test]
async fn a_pack_of_100_mb_streams_through_flat_memory() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "large").await;
    checkout.commit(ONE_JOB, "First").await;
    checkout.push("main").await;
    // random, so that git cannot make it smaller
    let mut random = std::fs::File::open("/dev/urandom").expect("urandom");
    let mut file = std::fs::File::create(checkout.folder.path().join("weights.bin")).expect("create");
    std::io::copy(&mut std::io::Read::take(&mut random, 100_000_000), &mut file).expect("write");
    drop(file);
    let sha = checkout.commit_all("Weights").await;

    let before = peak_memory_kib(&server);
    assert!(checkout.push("main").await.contains("pipeline #2"));
    let clone = Checkout::of(&checkout.url).await;
    git_ok(clone.folder.path(), &["fetch", "-q", "origin"]).await;
    let grown = peak_memory_kib(&server) - before;
    assert!(grown < 32 * 1024, "a push and a fetch of 100 MB took {grown} KiB more memory");
    // fetch checks every object's digest
    assert_eq!(git_ok(clone.folder.path(), &["rev-parse", "origin/main"]).await, sha);
}

fn peak_memory_kib(server: &TestServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("number")
}

#[tokio::test]
async fn concurrent_pushes_start_one_pipeline_per_tip() {
    let server = TestServer::start().await;
    let first = Checkout::create(&server, "busy").await;
    let mut tips = vec![first.commit(ONE_JOB, "Root").await];
    first.push("main").await;
    let mut checkouts = Vec::new();
    for number in 0..6 {
        let checkout = Checkout::of(&first.url).await;
        git_ok(checkout.folder.path(), &["pull", "-q", "origin", "main"]).await;
        let mut shas = Vec::new();
        for step in 0..2 {
            shas.push(checkout.commit_all(&format!("Change {number}.{step}")).await);
        }
        tips.extend(shas.iter().cloned());
        checkouts.push((checkout, number, shas));
    }
    let mut pushes = tokio::task::JoinSet::new();
    for (checkout, number, shas) in checkouts {
        pushes.spawn(async move {
            // two tips of one branch right after each other, beside those of other branches
            for sha in shas {
                let said = checkout.push(&format!("{sha}:refs/heads/exp/{number}")).await;
                assert!(said.contains("remote: pipeline #"), "{said}");
            }
        });
    }
    while let Some(pushed) = pushes.join_next().await {
        pushed.expect("push");
    }
    let mut started: Vec<String> =
        pipelines(&server).await.iter().map(|pipeline| pipeline["sha"].as_str().expect("sha").to_owned()).collect();
    started.sort();
    tips.sort();
    assert_eq!(started, tips);
}

#[tokio::test]
async fn a_crash_between_push_and_trigger_loses_and_doubles_nothing() {
    let mut server = TestServer::start().await;
    let checkout = Checkout::create(&server, "crash").await;
    checkout.commit(ONE_JOB, "First").await;
    checkout.push("main").await;
    server.kill9().await;
    // the push arrived, but its server did not live to see it
    let sha = checkout.commit_all("Second").await;
    let bare = bare_folder(&server, "crash");
    git_ok(checkout.folder.path(), &["push", "-q", bare.to_str().expect("UTF-8"), "main"]).await;
    server.restart().await;
    let limit = Duration::from_secs(30);
    let found = wait_for("the missed pipeline", limit, || async {
        let list = pipelines(&server).await;
        (list.len() == 2).then_some(list)
    })
    .await;
    assert_eq!(found[0]["sha"], sha);
    server.kill9().await;
    server.restart().await;
    checkout.push("main:refs/heads/exp/later").await;
    assert_eq!(pipelines(&server).await.len(), 3);
}

fn bare_folder(server: &TestServer, name: &str) -> PathBuf {
    server.data.path().join(format!("repositories/{name}.git"))
}

#[tokio::test]
async fn pushes_run_no_hook_and_bad_objects_are_refused() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "safe").await;
    let (folder, bare) = (checkout.folder.path(), bare_folder(&server, "safe"));
    let trace = server.data.path().join("hook-ran");
    for hook in ["pre-receive", "update", "post-receive", "post-update"] {
        use std::os::unix::fs::PermissionsExt as _;
        let file = bare.join("hooks").join(hook);
        std::fs::create_dir_all(bare.join("hooks")).expect("hooks folder");
        std::fs::write(&file, format!("#!/bin/sh\ntouch {}\n", trace.display())).expect("write");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    checkout.commit(ONE_JOB, "First").await;
    checkout.push("main").await;
    assert!(!trace.exists(), "a push ran a hook");

    // a tree with an entry named `.git` would let a checkout write into its own repository
    std::fs::write(folder.join("payload"), "x").expect("write");
    let blob = git_ok(folder, &["hash-object", "-w", "payload"]).await;
    let mut tree = b"100644 .git\0".to_vec();
    tree.extend((0..20).map(|at| u8::from_str_radix(&blob[at * 2..at * 2 + 2], 16).expect("hex")));
    std::fs::write(folder.join("tree"), tree).expect("write");
    let tree = git_ok(folder, &["hash-object", "-t", "tree", "-w", "--literally", "tree"]).await;
    let commit = git_ok(folder, &["commit-tree", "-m", "Evil", &tree]).await;
    let refused = git(folder, &["push", "origin", &format!("{commit}:refs/heads/exp/evil")]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("hasDotgit"), "{said}");
    assert_eq!(pipelines(&server).await.len(), 1);
}

#[tokio::test]
async fn requests_packed_with_gzip_are_understood() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "many").await;
    // many wants make git compress its request
    let mut references = Vec::new();
    for number in 0..60 {
        let sha = checkout.commit_all(&format!("Commit {number}")).await;
        references.push(format!("{sha}:refs/heads/b{number}"));
    }
    let mut arguments = vec!["push", "-q", "origin"];
    arguments.extend(references.iter().map(String::as_str));
    git_ok(checkout.folder.path(), &arguments).await;
    let clone = Checkout::of(&checkout.url).await;
    let mut fetched = tokio::process::Command::new("git");
    fetched.args(["fetch", "-q", "origin"]).env("GIT_TRACE_CURL", "1").current_dir(clone.folder.path());
    let traced = String::from_utf8_lossy(&fetched.output().await.expect("run git").stderr).to_ascii_lowercase();
    assert!(traced.contains("content-encoding: gzip"), "git did not compress its request: this test shows nothing");
    let count = git_ok(clone.folder.path(), &["branch", "-r"]).await.lines().count();
    assert_eq!(count, 60);

    let wrong = server.request(Method::POST, "/git/many.git/git-upload-pack").header("Content-Encoding", "gzip");
    let wrong = wrong.header("Content-Type", "application/x-git-upload-pack-request").body("not gzip");
    let refused = answer(wrong).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["field"]), (400, &json!("body")), "{}", refused.body);
}

#[tokio::test]
async fn nonsense_at_the_remote_is_refused() {
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "digits").await;
    checkout.commit(ONE_JOB, "First").await;
    checkout.push("main").await;
    let upload = "application/x-git-upload-pack-request";
    let receive = "application/x-git-receive-pack-request";
    // method, path, content type, body, status, field
    let rows = [
        ("GET", "/git/digits.git/info/refs", "", "", 400, "service"),
        ("GET", "/git/digits.git/info/refs?service=git-shell", "", "", 400, "service"),
        ("GET", "/git/digits.git/info/refs?service=upload-pack", "", "", 400, "service"),
        ("GET", "/git/digits.git/info/refs?service=git-upload-pack&service=git-receive-pack", "", "", 400, "service"),
        ("GET", "/git/none.git/info/refs?service=git-upload-pack", "", "", 404, ""),
        ("GET", "/git/..%2fdigits.git/info/refs?service=git-upload-pack", "", "", 404, ""),
        ("GET", "/git/digits.git/HEAD", "", "", 404, ""),
        ("GET", "/git/digits.git/objects/info/packs", "", "", 404, ""),
        ("GET", "/git/digits.git/config", "", "", 404, ""),
        ("POST", "/git/none.git/git-receive-pack", receive, "0000", 404, ""),
        ("POST", "/git/digits.git/git-upload-pack", "text/plain", "0000", 400, "Content-Type"),
        ("POST", "/git/digits.git/git-receive-pack", upload, "0000", 400, "Content-Type"),
        ("POST", "/git/digits.git/git-receive-pack", receive, "rubbish that is no pkt-line", 400, "body"),
        ("POST", "/git/digits.git/git-upload-pack", upload, "rubbish that is no pkt-line", 400, "body"),
        ("POST", "/git/digits.git/git-upload-archive", upload, "0000", 404, ""),
    ];
    for (method, path, content_type, body, status, field) in rows {
        let request = server.request(method.parse().expect("method"), path).header("Content-Type", content_type).body(body);
        let answer = answer(request).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        if !field.is_empty() {
            assert_eq!(answer.body["errors"][0]["field"], field, "{method} {path}: {}", answer.body);
        }
    }
    let heads = git_ok(checkout.folder.path(), &["ls-remote", "origin"]).await;
    assert_eq!(heads.lines().count(), 2, "{heads}");
    assert_eq!(pipelines(&server).await.len(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_takes_git_with_it() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = TestServer::start().await;
    let checkout = Checkout::create(&server, "gone").await;
    checkout.commit(ONE_JOB, "First").await;
    std::fs::write(checkout.folder.path().join("weights.bin"), vec![7_u8; 1_000_000]).expect("write");
    checkout.commit_all("Weights").await;
    checkout.push("main").await;
    let host = server.url.strip_prefix("http://").expect("http");
    let limit = Duration::from_secs(20);

    // in the middle of a push
    let mut push = tokio::net::TcpStream::connect(host).await.expect("connect");
    let head = format!(
        "POST /git/gone.git/git-receive-pack HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-git-receive-pack-request\r\nContent-Length: 1000000\r\n\r\n0000"
    );
    push.write_all(head.as_bytes()).await.expect("write");
    wait_for("git to be started", limit, || async { (!git_children(&server).is_empty()).then_some(()) }).await;
    drop(push);
    wait_for("git to end after the push broke off", limit, || async { git_children(&server).is_empty().then_some(()) }).await;

    // in the middle of a request to fetch, after the answer has begun
    let mut fetch = tokio::net::TcpStream::connect(host).await.expect("connect");
    let body = "0011command=fetch0001000fno-progress";
    let head = format!(
        "POST /git/gone.git/git-upload-pack HTTP/1.1\r\nHost: {host}\r\nGit-Protocol: version=2\r\nContent-Type: application/x-git-upload-pack-request\r\nContent-Length: 5000\r\n\r\n{body}"
    );
    fetch.write_all(head.as_bytes()).await.expect("write");
    wait_for("git to be started", limit, || async { (!git_children(&server).is_empty()).then_some(()) }).await;
    let mut nothing = [0; 1];
    let waited = tokio::time::timeout(Duration::from_millis(10), fetch.read(&mut nothing)).await;
    assert!(waited.is_err(), "an answer to half a request");
    drop(fetch);
    wait_for("git to end after the fetch broke off", limit, || async { git_children(&server).is_empty().then_some(()) }).await;
    assert_eq!(pipelines(&server).await.len(), 1);
}

/// Processes named git whose parent is the server.
fn git_children(server: &TestServer) -> Vec<String> {
    let parent = format!(" {} ", server.pid());
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats.filter(|stat| stat.contains("(git)") && !stat.contains(") Z ") && stat.contains(&parent)).collect()
}
