//! The verbs of the command line, against a real server.

use std::process::Output;

use sluice_tests::{TestServer, sluice_binary};
use tokio::process::Command;

use crate::promotion_line::{Candidate, decision, finish_pipeline, predict, server, serving, ship};

async fn sluice(server: &TestServer, args: &[&str]) -> Output {
    Command::new(sluice_binary()).args(args).env("SLUICE_URL", &server.url).output().await.expect("run sluice")
}

/// What a verb printed, after checking that it succeeded.
async fn said(server: &TestServer, args: &[&str]) -> String {
    let output = sluice(server, args).await;
    assert!(output.status.success(), "sluice {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a verb printed as its error, after checking that it failed.
async fn refused(server: &TestServer, args: &[&str]) -> String {
    let output = sluice(server, args).await;
    assert!(!output.status.success(), "sluice {} should fail", args.join(" "));
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[tokio::test]
async fn approve_and_rollback_work_from_the_terminal() {
    let server = server().await;
    let pipeline = finish_pipeline(&server, &Candidate::new(2.0, None)).await;
    assert_eq!(decision(&server, pipeline).await.0, "waiting_approval");
    let pipeline = pipeline.to_string();
    assert!(said(&server, &["pipeline", "show", &pipeline]).await.contains("sluice approve digits 1"), "the page says what to do");
    assert!(said(&server, &["approve", "digits", "1", "--comment", "first"]).await.contains("promoted"));
    serving(&server, 1).await;
    ship(&server, &Candidate::new(3.0, Some(1))).await;
    assert_eq!(predict(&server).await.1, "2");
    assert!(said(&server, &["rollback", "digits"]).await.contains("digits@champion is version 1 again (was 2)"));
    assert_eq!(predict(&server).await.1, "1");
    assert!(said(&server, &["model", "show", "digits"]).await.contains("digits version 1  champion"));
    assert!(refused(&server, &["rollback", "digits"]).await.contains("digits"), "there is nothing left to return to");
    assert!(refused(&server, &["approve", "nothing", "1"]).await.contains("nothing"));
}

#[tokio::test]
async fn repositories_are_made_and_listed() {
    let server = TestServer::start().await;
    assert!(said(&server, &["repo", "create", "one"]).await.contains("/git/one.git"));
    assert!(said(&server, &["repo", "list"]).await.contains("/git/one.git"));
    assert!(refused(&server, &["repo", "create", "one"]).await.contains("one"));
    assert!(refused(&server, &["repo", "create", "../one"]).await.contains("name"));
    assert!(refused(&server, &["job", "logs", "7"]).await.contains('7'));
}

#[tokio::test]
async fn pipeline_files_are_checked_offline() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join(".sluice.yml");
    std::fs::write(&file, "version: 1\njobs:\n  a:\n    run: x\n    tmeout: 3\n").expect("write");
    let validate = || Command::new(sluice_binary()).args(["ci", "validate"]).arg(&file).output();
    let output = validate().await.expect("run");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(".sluice.yml:5:5: error: jobs.a.tmeout: unknown field"), "{text}");
    std::fs::write(&file, "version: 1\njobs:\n  a:\n    run: x\n").expect("write");
    assert!(validate().await.expect("run").status.success());
}
