//! `cargo xtask demo`: a fresh machine, three pushes, three verdicts.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use sluice_client::{
    Client,
    view::{Job, Pipeline},
};
use sluice_domain::state::{DeploymentStatus, JobStatus, PipelineStatus, Verdict};

use crate::{
    setup,
    up::{Clone, Server},
};

const MODEL: &str = "digits";
const ALIAS: &str = "champion";

/// One of the held-out digits, a 0: 8 × 8 pixels from 0 to 16.
const IMAGE: [u8; 64] = [
    0, 0, 5, 13, 11, 1, 0, 0, 0, 3, 16, 11, 8, 12, 0, 0, 0, 5, 16, 0, 0, 13, 3, 0, 0, 5, 13, 0, 0, 6, 7, 0, 0, 7, 10, 0, 0, 8, 7, 0, 0, 4,
    13, 0, 1, 14, 5, 0, 0, 1, 15, 5, 12, 10, 0, 0, 0, 0, 7, 16, 10, 1, 0, 0,
];
const LABEL: usize = 0;

/// Options of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Address to listen on; when it is taken, a free port is used.
    #[arg(long, default_value = "127.0.0.1:5000")]
    listen: String,
    /// Data folder. It is emptied first: the demo always starts from nothing.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Stop the server at the end instead of leaving it running.
    #[arg(long)]
    exit: bool,
    /// Write what happened to this file, as JSON.
    #[arg(long)]
    summary: Option<PathBuf>,
}

/// What happened, for `--summary`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    url: String,
    setup_seconds: f64,
    start_seconds: f64,
    pushes_seconds: f64,
    pushes: Vec<Push>,
}

/// One push.
#[derive(Debug, Default, Clone, Serialize)]
struct Push {
    commit: String,
    pipeline: i64,
    /// `promoted` or `blocked`; anything else is an error of the demo.
    outcome: String,
    approved_by_demo: bool,
    reason: String,
    failing_check: Option<String>,
    value: Option<f64>,
    limit: Option<f64>,
    champion_version: Option<i32>,
    served_version: Option<String>,
    served_sha256: Option<String>,
    prediction: Option<usize>,
    scores: Vec<f64>,
    first_step_seconds: Option<f64>,
    seconds: f64,
}

/// Runs the demo.
///
/// # Errors
/// When a step fails or ends otherwise than promoted, blocked, promoted.
pub fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    println!("Sluice demo: a good model, a worse one, a better one\n");
    println!("[1/5] System packages");
    setup::ensure_packages(&[setup::RUN])?;
    println!("[2/5] Building sluice (the first time takes minutes)");
    setup::cargo(&["build", "--package", "sluice"])?;
    let sluice = setup::target("debug").join("sluice");
    println!("[3/5] Python environment of the demo project: torch, mlflow, onnxruntime (once, then reused)");
    let environment = Instant::now();
    setup::demo_environment(&sluice)?;
    println!("      ready in {:.0} s", environment.elapsed().as_secs_f64());
    let mut summary = Summary { setup_seconds: began.elapsed().as_secs_f64(), ..Summary::default() };

    println!("[4/5] Starting");
    let started = Instant::now();
    let data = data_folder(args)?;
    let mut server = Server::start(&sluice, &data, &listen_address(&args.listen))?;
    summary.start_seconds = started.elapsed().as_secs_f64();
    summary.url.clone_from(&server.url);
    println!("      {} (in {:.1} s)", server.url, summary.start_seconds);

    println!("[5/5] Three pushes");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(pushes(&server.url, &mut summary));
    if let Some(file) = &args.summary {
        fs::write(file, serde_json::to_string_pretty(&summary)?).with_context(|| format!("writing {}", file.display()))?;
    }
    if let Err(error) = outcome {
        server.stop()?;
        return Err(error);
    }
    println!("\nDone: three pushes in {:.0} s, after {:.0} s of set-up.", summary.pushes_seconds, summary.setup_seconds);
    for (what, path) in
        [("experiment", "experiments"), ("pipelines", "pipelines"), ("model", "models/digits"), ("deployments", "deployments")]
    {
        println!("  {what:<12} {}/{path}", server.url);
    }
    if args.exit {
        return server.stop();
    }
    println!("\nThe server is running. Stop it with Ctrl-C; start it again with:\n  {} up --data {}", sluice.display(), data.display());
    server.child.wait()?;
    Ok(())
}

fn data_folder(args: &DemoArgs) -> anyhow::Result<PathBuf> {
    let data = args.data.clone().unwrap_or_else(|| {
        let beside = setup::target("demo");
        if reachable(&beside) { beside } else { PathBuf::from("/var/tmp/sluice-demo") }
    });
    let marker = data.join(".sluice-demo");
    if data.exists() && data.read_dir()?.next().is_some() {
        ensure!(marker.exists(), "{} is not empty and was not made by the demo: choose another --data", data.display());
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir_all(&data)?;
    fs::write(marker, "Made by `cargo xtask demo`, which empties it at each start.\n")?;
    Ok(data)
}

/// Whether every user may pass through the parents: Postgres runs as another user when this is root.
fn reachable(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    folder.ancestors().skip(1).all(|parent| fs::metadata(parent).map_or(true, |meta| meta.permissions().mode() & 0o001 != 0))
}

fn listen_address(wanted: &str) -> String {
    if std::net::TcpListener::bind(wanted).is_ok() {
        return wanted.to_owned();
    }
    println!("      {wanted} is taken; using a free port");
    "127.0.0.1:0".to_owned()
}

async fn pushes(url: &str, summary: &mut Summary) -> anyhow::Result<()> {
    let client = Client::new(url)?;
    let repository = client.create_repository(MODEL, None).await?;
    let folder = tempfile::tempdir()?;
    let clone = Clone::init(folder.path(), &repository.git_url)?;
    let began = Instant::now();
    for (number, (part, expected)) in [("project", "promoted"), ("worse", "blocked"), ("better", "promoted")].into_iter().enumerate() {
        let push = push(&client, &clone, part, number + 1).await?;
        println!("      ⇒ {} in {:.0} s\n", push.outcome, push.seconds);
        summary.pushes.push(push.clone());
        summary.pushes_seconds = began.elapsed().as_secs_f64();
        ensure!(push.outcome == expected, "push {} ended {} and not {expected}: {}", number + 1, push.outcome, push.reason);
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else if entry.file_name() != ".message" {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

async fn push(client: &Client, clone: &Clone<'_>, part: &str, number: usize) -> anyhow::Result<Push> {
    let began = Instant::now();
    let source = setup::root().join("demo").join(part);
    copy(&source, clone.folder)?;
    let commit = fs::read_to_string(source.join(".message"))?.trim().to_owned();
    clone.commit(&commit)?;
    println!("  push {number} of 3: {commit}");
    let said = clone.push()?;
    for line in said.lines().filter(|line| line.starts_with("remote:")) {
        println!("      {line}");
    }
    let newest =
        client.pipelines(Some(MODEL), None, None, None, None).await?.items.into_iter().next().context("the push started no pipeline")?;
    let mut push = Push { commit, pipeline: newest.id, ..Push::default() };
    let pipeline = follow(client, newest.id, &mut push).await?;
    judge(client, &pipeline, &mut push).await?;
    served(client, &pipeline, &mut push).await?;
    push.seconds = began.elapsed().as_secs_f64();
    Ok(push)
}

/// Prints each job as it changes; approves the first model; returns the finished pipeline.
async fn follow(client: &Client, id: i64, push: &mut Push) -> anyhow::Result<Pipeline> {
    let mut seen: Vec<(i64, JobStatus)> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        let pipeline = client.pipeline(id).await?;
        for job in &pipeline.jobs {
            if !seen.contains(&(job.id, job.status)) {
                seen.push((job.id, job.status));
                report(job);
            }
        }
        match pipeline.status {
            PipelineStatus::Running => {}
            PipelineStatus::WaitingApproval => {
                ensure!(!push.approved_by_demo, "approved, and still waiting: {}", pipeline.status_reason);
                let version = pipeline.promotion.as_ref().and_then(|promotion| promotion.version).context("no version to approve")?;
                println!("      gate: {}", pipeline.promotion.as_ref().map_or("", |promotion| promotion.reason.as_str()));
                println!("      the demo approves its first model:  sluice approve {MODEL} {version}");
                client.approve(MODEL, version, ALIAS, Some("first model of the demo")).await?;
                push.approved_by_demo = true;
            }
            PipelineStatus::Succeeded | PipelineStatus::Blocked => {
                let deployed = pipeline.deployment.as_ref().is_none_or(|deployment| deployment.status != DeploymentStatus::Starting);
                if deployed && (pipeline.status == PipelineStatus::Blocked || pipeline.deployment.is_some()) {
                    return Ok(pipeline);
                }
            }
            PipelineStatus::Failed | PipelineStatus::Cancelled => {
                for job in pipeline.jobs.iter().filter(|job| job.status == JobStatus::Failed) {
                    print_log_tail(client, job).await;
                }
                bail!("pipeline #{id} {}: {}", pipeline.status, pipeline.status_reason);
            }
        }
        ensure!(Instant::now() < deadline, "pipeline #{id} did not finish within 15 minutes");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

fn report(job: &Job) {
    let mark = match job.status {
        JobStatus::Succeeded => "✔",
        JobStatus::Failed | JobStatus::Cancelled | JobStatus::Skipped => "✖",
        JobStatus::Running => "…",
        JobStatus::Pending | JobStatus::Queued => return,
    };
    let steps: Vec<String> = job
        .attempts
        .last()
        .iter()
        .flat_map(|attempt| &attempt.steps)
        .filter_map(|step| Some(format!("{} {:.1} s", step.name, (step.finished_at_ms? - step.started_at_ms) as f64 / 1000.0)))
        .collect();
    println!("      {mark} {:<8} {:<10} {}", job.name, job.status, steps.join(", "));
    let _ = std::io::stdout().flush();
}

async fn print_log_tail(client: &Client, job: &Job) {
    let Ok(page) = client.job_logs(job.id, None, 0).await else { return };
    let text: String = page.chunks.into_iter().map(|chunk| chunk.content).collect();
    let lines: Vec<&str> = text.lines().collect();
    println!("      last lines of job {}:", job.name);
    for line in &lines[lines.len().saturating_sub(25)..] {
        println!("        {line}");
    }
}

async fn judge(client: &Client, pipeline: &Pipeline, push: &mut Push) -> anyhow::Result<()> {
    let promotion = pipeline.promotion.as_ref().context("the pipeline has no promotion")?;
    push.reason.clone_from(&promotion.reason);
    push.outcome = if pipeline.status == PipelineStatus::Blocked { "blocked".to_owned() } else { promotion.status.to_string() };
    let record = client.gate_record(promotion.record_id().context("the promotion has no gate record")?).await?;
    for check in &record.checks {
        let mark = match check.verdict {
            Verdict::Pass => "✔",
            Verdict::NoBaseline => "◌",
            Verdict::Fail | Verdict::Error | Verdict::Inconclusive => "✖",
        };
        println!("      {mark} {}", check.reason);
    }
    if let Some(check) = record.checks.iter().find(|check| matches!(check.verdict, Verdict::Fail | Verdict::Error | Verdict::Inconclusive))
    {
        push.failing_check = Some(check.name.clone());
        push.value = check.value;
        push.limit = check.limit;
        println!("      blocked: {}", check.reason);
    }
    push.champion_version = client.model(MODEL).await?.aliases.get(ALIAS).copied();
    let first_step =
        pipeline.jobs.iter().flat_map(|job| &job.attempts).flat_map(|attempt| &attempt.steps).map(|step| step.started_at_ms).min();
    let created = pipeline.created_at.as_deref().and_then(|at| at.parse::<chrono::DateTime<chrono::Utc>>().ok());
    push.first_step_seconds = first_step.zip(created).map(|(step, at)| (step - at.timestamp_millis()) as f64 / 1000.0);
    Ok(())
}

async fn served(client: &Client, pipeline: &Pipeline, push: &mut Push) -> anyhow::Result<()> {
    if let Some(deployment) = &pipeline.deployment {
        ensure!(deployment.status == DeploymentStatus::Serving, "deployment {}: {}", deployment.status, deployment.message);
    }
    let metadata = client.served_model(MODEL).await?;
    push.served_sha256 = metadata["sluice_sha256"].as_str().map(str::to_owned);
    push.served_version = metadata["versions"][0].as_str().map(str::to_owned);
    let pixels: Vec<f32> = IMAGE.iter().map(|&pixel| f32::from(pixel) / 16.0).collect();
    let input = metadata["inputs"][0]["name"].as_str().context("the served model has no inputs")?;
    let request = serde_json::json!({ "inputs": [{ "name": input, "shape": [1, 64], "datatype": "FP32", "data": pixels }] });
    let answer = client.infer(MODEL, &request).await?;
    push.scores = serde_json::from_value(answer["outputs"][0]["data"].clone()).context("scores of the prediction")?;
    let best = push.scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(digit, _)| digit);
    push.prediction = best;
    let version = push.served_version.as_deref().unwrap_or("?");
    let digest = push.served_sha256.as_deref().and_then(|digest| digest.get(..12)).unwrap_or("?");
    println!(
        "      served: {MODEL} version {version} (sha256 {digest}…) says {} for an image of a {LABEL}",
        best.map_or("nothing".to_owned(), |digit| digit.to_string())
    );
    Ok(())
}
