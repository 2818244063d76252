//! What every step of a job is given.

use std::{collections::BTreeMap, ffi::OsString, future::Future, path::PathBuf, sync::Arc};

use sluice_client::{Client, RetryPolicy, retry};
use sluice_domain::{
    runner::{Assignment, job_environment},
    state::Cause,
};

use crate::{
    RunnerConfig,
    diagnosis::{self, ErrorFile},
    halt::{Halt, JobResultOf, io},
    log::LogWriter,
    process::{Command, Ended, Scope},
    steps::Steps,
    stop::Stop,
    workspace::Folders,
};

/// One attempt while it runs.
#[derive(Debug)]
pub struct Context {
    pub config: Arc<RunnerConfig>,
    pub assignment: Assignment,
    /// Carries the attempt's token.
    pub client: Client,
    pub scope: Arc<Scope>,
    pub stop: Stop,
    pub log: LogWriter,
    pub steps: Arc<Steps>,
    pub folders: Folders,
}

impl Context {
    /// A call to the server: repeated while faults pass and the job is wanted.
    pub async fn call<T, F, Fut>(&self, what: &str, call: F) -> JobResultOf<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = sluice_client::Result<T>>,
    {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            reason = stop.wait() => Err(Halt::Stopped(reason)),
            answer = retry(RetryPolicy::forever(), what, call) => answer.map_err(|error| Halt::from_call(what, &error)),
        }
    }

    /// The environment of every process of the job: nothing of the runner's own beyond an explicit list.
    pub fn base_environment(&self) -> BTreeMap<String, OsString> {
        let mut env = self.config.host.common.clone();
        env.insert("HOME".to_owned(), self.folders.home.clone().into());
        env.insert("TMPDIR".to_owned(), self.folders.tmp.clone().into());
        let own = job_environment(&self.config.server_url, &self.assignment);
        env.extend(own.into_iter().map(|(name, value)| (name, value.into())));
        env
    }

    /// [`Self::base_environment`] with what the pipeline file adds. The file may change defaults such as
    /// `OMP_NUM_THREADS`, never what ties the job to its run.
    pub fn job_environment(&self) -> BTreeMap<String, OsString> {
        let mut env = self.base_environment();
        env.insert("SLUICE_INPUTS".to_owned(), self.folders.inputs.clone().into());
        let fixed =
            |name: &str| name.starts_with("SLUICE_") || matches!(name, "MLFLOW_TRACKING_URI" | "MLFLOW_TRACKING_TOKEN" | "MLFLOW_RUN_ID");
        let added = self.assignment.job.env.iter().filter(|(name, _)| !fixed(name));
        env.extend(added.map(|(name, value)| (name.clone(), value.into())));
        env
    }

    /// Runs a command of the job, with its output in the log. Anything but exit code 0 is a [`Halt`]; `title` begins
    /// the message then.
    pub async fn run(&self, title: &str, mut command: Command) -> JobResultOf<()> {
        let error_file = ErrorFile::new(self.folders.tmp.join("torchelastic-error.json"));
        error_file.clear();
        command.env.entry("TORCHELASTIC_ERROR_FILE".to_owned()).or_insert_with(|| error_file.path().into());
        self.log.clear_tail();
        let mut stop = self.stop.clone();
        let ended = command.run(&self.scope, &mut stop, self.config.grace, &self.log).await.map_err(io(title))?;
        match ended {
            Ended::Stopped(reason) => Err(Halt::Stopped(reason)),
            Ended::Exited { status, oom: _ } if status.success() => Ok(()),
            Ended::Exited { status, oom } => {
                let cause = if oom { Cause::Oom } else { Cause::User };
                let message = diagnosis::message(status, oom, &self.log.tail(), error_file.read().as_deref());
                Err(Halt::failed(cause, ended.code(), format!("{title}: {message}")))
            }
        }
    }

    /// Runs a short command and answers what it prints (both streams).
    pub async fn capture(&self, title: &str, command: Command) -> JobResultOf<String> {
        let (log, mut output) = LogWriter::channel(16);
        let collect = tokio::spawn(async move {
            let mut text = Vec::new();
            while let Some(bytes) = output.recv().await {
                text.extend(bytes);
            }
            text
        });
        let mut stop = self.stop.clone();
        let ended = command.run(&self.scope, &mut stop, self.config.grace, &log).await.map_err(io(title))?;
        drop(log);
        let text = String::from_utf8_lossy(&collect.await.unwrap_or_default()).into_owned();
        match ended {
            Ended::Stopped(reason) => Err(Halt::Stopped(reason)),
            Ended::Exited { status, .. } if status.success() => Ok(text),
            Ended::Exited { .. } => Err(Halt::infra(format!("{title} failed with {text}"))),
        }
    }

    /// A command line for the shell, as pipeline files give them.
    pub fn shell(&self, line: &str, env: BTreeMap<String, OsString>) -> Command {
        let args = ["-e", "-o", "pipefail", "-c", line].map(OsString::from);
        Command { program: "bash".into(), args: args.into(), cwd: self.folders.repo.clone(), env }
    }

    /// The interpreter that environments are made from.
    pub fn base_python(&self) -> PathBuf {
        self.config.python.clone().unwrap_or_else(|| PathBuf::from("python3"))
    }
}
