//! The verbs that talk to a running server, and the offline check of pipeline files.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use sluice_client::{
    Client,
    view::{Job, Pipeline},
};
use sluice_domain::state::{JobStatus, PipelineStatus};

/// Which server.
#[derive(Debug, Clone, Args)]
pub struct Remote {
    /// URL of the server.
    #[arg(long, env = "SLUICE_URL", default_value = "http://127.0.0.1:5000", global = true)]
    server: String,
}

impl Remote {
    fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.server).with_context(|| format!("--server {}", self.server))
    }
}

/// `sluice ci …`: works offline.
#[derive(Debug, Subcommand)]
pub enum CiCommand {
    /// Check a pipeline file (and the gate file that it names) without a server.
    Validate {
        /// Pipeline file; gate files are looked up from its folder.
        #[arg(default_value = ".sluice.yml")]
        file: PathBuf,
    },
}

/// `sluice repo …`
#[derive(Debug, Subcommand)]
pub enum RepoCommand {
    /// Create a repository with a git remote to push to.
    Create { name: String },
    /// List repositories.
    List,
}

/// `sluice pipeline …`
#[derive(Debug, Subcommand)]
pub enum PipelineCommand {
    /// List the newest pipelines.
    List {
        #[arg(long)]
        repository: Option<String>,
    },
    /// Show a pipeline with its jobs and its verdict.
    Show { id: i64 },
    /// Cancel every unfinished job of a pipeline.
    Cancel { id: i64 },
}

/// `sluice job …`
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Print the log of a job.
    Logs {
        id: i64,
        /// Keep printing until the job ends.
        #[arg(short, long)]
        follow: bool,
    },
    /// Stop a job: SIGTERM, a grace time, SIGKILL.
    Cancel { id: i64 },
    /// Run a finished, unsuccessful job again.
    Retry { id: i64 },
}

/// `sluice model …`
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List models with their aliases.
    List,
    /// Show the versions of a model, and what each gate said.
    Show { name: String },
}

/// Checks a pipeline file with its gate file, or a gate file.
///
/// # Errors
/// When it cannot be read or is not valid.
pub fn validate(file: &Path) -> anyhow::Result<()> {
    let source = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let repository = folder.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).ok();
    let report = sluice_ci::check_files(&file.display().to_string(), &source, repository.as_deref().unwrap_or("repository"), &read);
    if report.errors.is_empty() {
        print!("{}", report.text);
        return Ok(());
    }
    eprint!("{}", report.text);
    bail!("{} is not valid", file.display())
}

/// Runs a `repo` verb.
///
/// # Errors
/// What the server says.
pub async fn repo(remote: &Remote, command: RepoCommand) -> anyhow::Result<()> {
    let client = remote.client()?;
    match command {
        RepoCommand::Create { name } => {
            let repository = client.create_repository(&name, None).await?;
            println!(
                "Created {}. Push to it with:\n  git remote add sluice {}\n  git push sluice HEAD:{}",
                repository.name, repository.git_url, repository.default_branch
            );
        }
        RepoCommand::List => {
            for repository in client.repositories().await?.items {
                println!("{:<24} {}", repository.name, repository.git_url);
            }
        }
    }
    Ok(())
}

/// Runs a `pipeline` verb.
///
/// # Errors
/// What the server says.
pub async fn pipeline(remote: &Remote, command: PipelineCommand) -> anyhow::Result<()> {
    let client = remote.client()?;
    match command {
        PipelineCommand::List { repository } => {
            for pipeline in client.pipelines(repository.as_deref(), None, None, None, None).await?.items {
                println!("{}", pipeline_line(&pipeline));
            }
        }
        PipelineCommand::Show { id } => show_pipeline(&client.pipeline(id).await?),
        PipelineCommand::Cancel { id } => show_pipeline(&client.cancel_pipeline(id).await?),
    }
    Ok(())
}

fn pipeline_line(pipeline: &Pipeline) -> String {
    let short = pipeline.sha.get(..8).unwrap_or(&pipeline.sha);
    format!("#{:<5} {:<17} {}@{} {short} {}", pipeline.id, pipeline.status, pipeline.repository, pipeline.branch, pipeline.commit_subject)
}

fn show_pipeline(pipeline: &Pipeline) {
    println!("{}", pipeline_line(pipeline));
    if !pipeline.status_reason.is_empty() {
        println!("  {}", pipeline.status_reason);
    }
    for job in &pipeline.jobs {
        println!("  {}", job_line(job));
    }
    if let Some(promotion) = &pipeline.promotion {
        let version = promotion.version.map_or(String::new(), |version| format!(" version {version}"));
        println!("  promotion of {}{version} to {}: {}  {}", promotion.model, promotion.alias, promotion.status, promotion.reason);
    }
    if let Some(deployment) = &pipeline.deployment {
        println!("  deployment to {}: {} {}", deployment.environment, deployment.status, deployment.message);
    }
    if pipeline.status == PipelineStatus::Running {
        println!("  {}", pipeline.url);
    }
}

fn job_line(job: &Job) -> String {
    let note = job.waiting_reason.as_deref().filter(|_| !job.status.is_final()).unwrap_or(&job.message);
    format!("job {:<5} {:<18} {:<10} {note}", job.id, job.name, job.status)
}

/// Runs a `job` verb.
///
/// # Errors
/// What the server says.
pub async fn job(remote: &Remote, command: JobCommand) -> anyhow::Result<()> {
    let client = remote.client()?;
    match command {
        JobCommand::Logs { id, follow } => logs(&client, id, follow).await?,
        JobCommand::Cancel { id } => println!("{}", job_line(&client.cancel_job(id).await?)),
        JobCommand::Retry { id } => println!("{}", job_line(&client.retry_job(id).await?)),
    }
    Ok(())
}

async fn logs(client: &Client, id: i64, follow: bool) -> anyhow::Result<()> {
    let mut from = 0;
    loop {
        let page = client.job_logs(id, None, from).await?;
        let mut out = std::io::stdout().lock();
        for chunk in &page.chunks {
            out.write_all(chunk.content.as_bytes())?;
        }
        out.flush()?;
        drop(out);
        let empty = page.chunks.is_empty();
        from = page.next;
        if empty && (!follow || page.finished) {
            return Ok(());
        }
        if empty {
            let job = client.job(id).await?;
            if matches!(job.status, JobStatus::Cancelled | JobStatus::Skipped) && job.attempts.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    }
}

/// Runs a `model` verb.
///
/// # Errors
/// What the server says.
pub async fn model(remote: &Remote, command: ModelCommand) -> anyhow::Result<()> {
    let client = remote.client()?;
    match command {
        ModelCommand::List => {
            for model in client.models().await?.items {
                let aliases: Vec<String> = model.aliases.iter().map(|(alias, version)| format!("{alias} → {version}")).collect();
                println!("{:<24} {}", model.name, aliases.join(", "));
            }
        }
        ModelCommand::Show { name } => {
            let model = client.model(&name).await?;
            for version in &model.versions {
                println!("{} version {}  {}", model.name, version.version, version.aliases.join(", "));
                for promotion in &version.promotions {
                    println!("  {} to {}: {}", promotion.status, promotion.alias, promotion.reason);
                }
            }
            for deployment in model.deployments.iter().filter(|deployment| deployment.ended_at.is_none()) {
                println!("{}: version {} {} {}", deployment.environment, deployment.version, deployment.status, deployment.message);
            }
        }
    }
    Ok(())
}

/// Approves a version for an alias.
///
/// # Errors
/// What the server says.
pub async fn approve(remote: &Remote, model: &str, version: i32, alias: &str, comment: Option<&str>) -> anyhow::Result<()> {
    let promotion = remote.client()?.approve(model, version, alias, comment).await?;
    println!("{model} version {version} for {alias}: {}  {}", promotion.status, promotion.reason);
    Ok(())
}

/// Returns an alias to its previous holder.
///
/// # Errors
/// What the server says.
pub async fn rollback(remote: &Remote, model: &str, alias: &str, environment: Option<&str>) -> anyhow::Result<()> {
    let done = remote.client()?.rollback(model, Some(alias), environment).await?;
    let from = done.from_version.map_or(String::new(), |version| format!(" (was {version})"));
    println!("{model}@{alias} is version {} again{from}", done.to_version);
    if let Some(deployment) = done.deployment {
        println!("{}: {} {}", deployment.environment, deployment.status, deployment.message);
    }
    Ok(())
}
