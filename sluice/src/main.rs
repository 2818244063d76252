//! The `sluice` binary: composition root and command line. Rules live in the crates that it puts together.

mod cli;
mod config;
mod postgres;
mod runner;
mod serve;
mod server;
mod signals;
mod up;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::server::{Server, ServerArgs};

/// The production line for machine-learning models: track, run, judge, ship.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, propagate_version = true)]
struct Cli {
    /// Settings file; default: sluice.toml in the working folder, if there is one.
    #[arg(long, global = true, env = "SLUICE_CONFIG")]
    config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything on this machine: a private Postgres, the server and one runner.
    Up(up::UpArgs),
    /// Start only the server, on an existing database.
    Server {
        #[command(flatten)]
        args: ServerArgs,
        /// Postgres database, e.g. postgres://user:password@host/sluice.
        #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
        database_url: String,
    },
    /// Serve one ONNX file over the Open Inference Protocol (deployments start this).
    // its own --version is the model's
    #[command(disable_version_flag = true)]
    ServeModel(serve::ServeArgs),
    /// Start one runner: it leases jobs from a server and runs them.
    Runner(runner::RunnerArgs),
    /// Check pipeline files without a server.
    #[command(subcommand)]
    Ci(cli::CiCommand),
    /// Create and list repositories.
    Repo {
        #[command(flatten)]
        remote: cli::Remote,
        #[command(subcommand)]
        command: cli::RepoCommand,
    },
    /// List, show and cancel pipelines.
    Pipeline {
        #[command(flatten)]
        remote: cli::Remote,
        #[command(subcommand)]
        command: cli::PipelineCommand,
    },
    /// Read the log of a job, cancel it, run it again.
    Job {
        #[command(flatten)]
        remote: cli::Remote,
        #[command(subcommand)]
        command: cli::JobCommand,
    },
    /// List and show registered models.
    Model {
        #[command(flatten)]
        remote: cli::Remote,
        #[command(subcommand)]
        command: cli::ModelCommand,
    },
    /// Approve a model version that waits for a human; its gate is evaluated again.
    // its own version is the model's
    #[command(disable_version_flag = true)]
    Approve {
        #[command(flatten)]
        remote: cli::Remote,
        model: String,
        version: i32,
        #[arg(long, default_value = "champion")]
        alias: String,
        /// Why; kept with the approval.
        #[arg(long)]
        comment: Option<String>,
    },
    /// Return an alias and its deployment to the previous version.
    Rollback {
        #[command(flatten)]
        remote: cli::Remote,
        model: String,
        #[arg(long, default_value = "champion")]
        alias: String,
        /// Environment to redeploy; default: the one that the model is deployed to.
        #[arg(long)]
        environment: Option<String>,
    },
}

fn main() -> std::process::ExitCode {
    init_tracing();
    let outcome = parse().and_then(execute);
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Reads the command line, with the defaults of the settings file.
fn parse() -> anyhow::Result<Cli> {
    // the file must be known before the rest can be read; a wrong command line is reported below
    let named = Cli::command().ignore_errors(true).get_matches().get_one::<std::path::PathBuf>("config").cloned();
    let matches = config::apply(Cli::command(), named.as_deref())?.get_matches();
    Ok(Cli::from_arg_matches(&matches)?)
}

fn execute(cli: Cli) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(cli)))
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Up(args) => up::up(args).await,
        Command::Runner(args) => runner::runner(args).await,
        Command::ServeModel(args) => serve::serve(args).await,
        Command::Server { args, database_url } => {
            let mut signals = signals::Signals::new()?;
            let mut server = Server::start(&args, &database_url).await?;
            println!("Sluice server is up at {}", server.url);
            tokio::select! { _ = signals.next() => {}, () = server.ended() => {} }
            server.stop().await;
            Ok(())
        }
        Command::Ci(cli::CiCommand::Validate { file }) => cli::validate(&file),
        Command::Repo { remote, command } => cli::repo(&remote, command).await,
        Command::Pipeline { remote, command } => cli::pipeline(&remote, command).await,
        Command::Job { remote, command } => cli::job(&remote, command).await,
        Command::Model { remote, command } => cli::model(&remote, command).await,
        Command::Approve { remote, model, version, alias, comment } => {
            cli::approve(&remote, &model, version, &alias, comment.as_deref()).await
        }
        Command::Rollback { remote, model, alias, environment } => cli::rollback(&remote, &model, &alias, environment.as_deref()).await,
    }
}

fn init_tracing() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SLUICE_LOG").unwrap_or_else(|_| "info,sqlx=warn,actix_server=warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
    }
}
