//! `cargo xtask bench`: figures of a release build, on a private Postgres with its production settings.
//!
//! They are a baseline for later ratios, not a claim: absolute numbers depend on the machine.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_client::Client;

use crate::{
    setup,
    up::{Clone, Server},
};

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Write the figures to this file, as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Binary to measure; default: build this checkout in release mode.
    #[arg(long)]
    sluice: Option<PathBuf>,
}

/// Measures and prints the figures.
///
/// # Errors
/// When a server cannot be started or a request fails.
pub fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    setup::ensure_packages(&[setup::RUN])?;
    let sluice = match &args.sluice {
        Some(path) => path.clone(),
        None => {
            setup::cargo(&["build", "--release", "--package", "sluice"])?;
            setup::target("release").join("sluice")
        }
    };
    let data = tempfile::Builder::new().prefix("sluice-bench-").tempdir()?;
    let mut server = Server::start(&sluice, data.path(), "127.0.0.1:0")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.block_on(measure(&server));
    server.stop()?;
    let figures = measured?;
    for (name, value) in figures.as_object().into_iter().flatten() {
        println!("{name:<44} {value}");
    }
    if let Some(file) = &args.out {
        fs::write(file, serde_json::to_string_pretty(&figures)?).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

async fn measure(server: &Server) -> anyhow::Result<Value> {
    let client = Arc::new(Client::new(&server.url)?);
    let idle = memory(server.child.id())?;
    let run_id = create_run(&client, "bench").await?;

    let log_batch = log_batch(&client, &run_id).await?;
    let log_metric = log_metric(&client).await?;
    let (search_first, search_all) = search(&client).await?;
    let first_step = push_to_first_step(&client).await?;
    let runner = child_memory(server.child.id(), "runner")?;
    Ok(json!({
        "cpu_cores": std::thread::available_parallelism()?.get(),
        "log_batch_metrics_per_s": log_batch.round(),
        "log_metric_per_s_16_connections": log_metric.round(),
        "search_100_of_1000_runs_ms_median": round(search_first),
        "search_all_1000_runs_ms_median": round(search_all),
        "push_to_first_step_s_median": round(first_step),
        "server_idle_mib": round(idle),
        "server_after_load_mib": round(memory(server.child.id())?),
        "runner_mib": round(runner),
    }))
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

async fn create_run(client: &Client, name: &str) -> anyhow::Result<String> {
    let answer: Value =
        client.post_json("/api/2.0/mlflow/runs/create", &json!({ "experiment_id": "0", "run_name": name, "start_time": 1 })).await?;
    Ok(answer["run"]["info"]["run_id"].as_str().context("a run id")?.to_owned())
}

/// Metrics per second in batches of 1,000 over one connection: 10 keys, 100 steps each.
async fn log_batch(client: &Client, run_id: &str) -> anyhow::Result<f64> {
    let batches = 50;
    let began = Instant::now();
    for batch in 0..batches {
        let metrics: Vec<Value> = (0..1000)
            .map(|i| json!({ "key": format!("metric_{}", i % 10), "value": f64::from(i) * 0.5, "timestamp": 1_700_000_000_000_i64 + i64::from(batch), "step": batch * 100 + i / 10 }))
            .collect();
        let _: Value = client.post_json("/api/2.0/mlflow/runs/log-batch", &json!({ "run_id": run_id, "metrics": metrics })).await?;
    }
    Ok(f64::from(batches) * 1000.0 / began.elapsed().as_secs_f64())
}

/// Single `log-metric` calls per second from 16 connections, each with a run of its own.
async fn log_metric(client: &Arc<Client>) -> anyhow::Result<f64> {
    let calls = 200;
    let mut runs = Vec::new();
    for connection in 0..16 {
        runs.push(create_run(client, &format!("connection {connection}")).await?);
    }
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for run_id in runs {
        let client = Arc::clone(client);
        tasks.spawn(async move {
            for step in 0..calls {
                let body = json!({ "run_id": run_id, "key": "loss", "value": 1.0 / f64::from(step + 1), "timestamp": 1_700_000_000_000_i64, "step": step });
                let _: Value = client.post_json("/api/2.0/mlflow/runs/log-metric", &body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(16.0 * f64::from(calls) / began.elapsed().as_secs_f64())
}

/// Milliseconds (median of 9) to search an experiment of 1,000 runs by a metric, sorted: 100 runs, and all.
async fn search(client: &Client) -> anyhow::Result<(f64, f64)> {
    let made: Value = client.post_json("/api/2.0/mlflow/experiments/create", &json!({ "name": "search" })).await?;
    let experiment = made["experiment_id"].as_str().context("an experiment id")?.to_owned();
    for i in 0..1000 {
        let answer: Value =
            client.post_json("/api/2.0/mlflow/runs/create", &json!({ "experiment_id": experiment, "start_time": i })).await?;
        let run_id = &answer["run"]["info"]["run_id"];
        let metrics: Vec<Value> = (0..10)
            .map(|k| json!({ "key": format!("m{k}"), "value": f64::from((i * 7919 + k) % 1000) / 1000.0, "timestamp": 1, "step": 0 }))
            .collect();
        let params: Vec<Value> = (0..10).map(|k| json!({ "key": format!("p{k}"), "value": (i % (k + 2)).to_string() })).collect();
        let _: Value =
            client.post_json("/api/2.0/mlflow/runs/log-batch", &json!({ "run_id": run_id, "metrics": metrics, "params": params })).await?;
    }
    let mut medians = [0.0; 2];
    for (median, limit) in medians.iter_mut().zip([100, 1000]) {
        let mut times = Vec::new();
        for _ in 0..9 {
            let began = Instant::now();
            let body = json!({ "experiment_ids": [experiment], "filter": "metrics.m1 > 0.1 AND params.p1 != 'x'", "order_by": ["metrics.m2 DESC"], "max_results": limit });
            let answer: Value = client.post_json("/api/2.0/mlflow/runs/search", &body).await?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            ensure!(answer["runs"].as_array().is_some_and(|runs| runs.len() > limit.min(800) - 1), "the search found too little");
        }
        times.sort_by(f64::total_cmp);
        *median = times[4];
    }
    Ok(medians.into())
}

/// Seconds (median of 5) from the start of `git push` to the start of the first step, on an idle runner.
async fn push_to_first_step(client: &Client) -> anyhow::Result<f64> {
    let repository = client.create_repository("bench", None).await?;
    let folder = tempfile::tempdir()?;
    let clone = Clone::init(folder.path(), &repository.git_url)?;
    let mut times = Vec::new();
    for i in 0..5 {
        fs::write(folder.path().join(".sluice.yml"), format!("version: 1\njobs: {{ hello: {{ run: echo {i} }} }}\n"))?;
        clone.commit("bench")?;
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as i64;
        clone.push()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let started = loop {
            let newest = client.pipelines(Some("bench"), None, None, None, None).await?.items.into_iter().next().context("a pipeline")?;
            let pipeline = client.pipeline(newest.id).await?;
            if pipeline.status.is_final() {
                break pipeline
                    .jobs
                    .iter()
                    .flat_map(|job| &job.attempts)
                    .flat_map(|attempt| &attempt.steps)
                    .map(|step| step.started_at_ms)
                    .min()
                    .context("a step")?;
            }
            ensure!(Instant::now() < deadline, "the pipeline did not finish within 60 s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        times.push((started - began) as f64 / 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

/// Resident memory of a process in MiB.
fn memory(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| rest.trim().strip_suffix(" kB")).context("VmRSS")?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

/// Resident memory in MiB of the child of `parent` whose command line holds `word`.
fn child_memory(parent: u32, word: &str) -> anyhow::Result<f64> {
    let children = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    for pid in children {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let ppid = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if ppid == Some(parent) && line.split('\0').any(|part| part == word) {
            return memory(pid);
        }
    }
    anyhow::bail!("no {word} process below {parent}")
}
