//! The step `run`: one module per kind of work.

mod bench_result;
mod benchmark;
mod export_onnx;
mod machine;
mod tensorrt;

use std::ffi::OsString;

use sluice_domain::{evidence::Evidence, plan::Work};
pub use tensorrt::find_trtexec;

use crate::{context::Context, environment::Environment, halt::JobResultOf, process::Command};

impl Context {
    /// Does the work; answers what it measured.
    pub async fn do_work(&self, environment: &Environment) -> JobResultOf<Vec<Evidence>> {
        match &self.assignment.job.work {
            Work::Run { command } => {
                self.log.line(&format!("sluice: {command}")).await;
                self.run("run", self.shell(command, environment.variables.clone())).await?;
                Ok(Vec::new())
            }
            Work::Torchrun { processes, script, args } => {
                let arguments = torchrun_arguments(*processes, script, args);
                self.log.line(&format!("sluice: torchrun {}", arguments[2..].join(" "))).await;
                let command = Command {
                    program: environment.python.clone().into(),
                    args: arguments.into_iter().map(OsString::from).collect(),
                    cwd: self.folders.repo.clone(),
                    env: environment.variables.clone(),
                };
                self.run("torchrun", command).await?;
                Ok(Vec::new())
            }
            Work::Benchmark(spec) => Ok(vec![Evidence::Benchmark(self.benchmark(spec, environment).await?)]),
            Work::ExportOnnx(spec) => Ok(vec![Evidence::Onnx(self.export_onnx(spec, environment).await?)]),
            Work::ExportTensorrt(spec) => {
                self.export_tensorrt(spec, environment).await?;
                Ok(Vec::new())
            }
        }
    }
}

/// Arguments of the interpreter. No restarts by the launcher: a failed attempt is the platform's to repeat, from the
/// checkpoint and with a token of its own.
fn torchrun_arguments(processes: u32, script: &str, args: &[String]) -> Vec<String> {
    let launcher =
        ["-m".to_owned(), "torch.distributed.run".to_owned(), "--standalone".to_owned(), format!("--nproc-per-node={processes}")];
    launcher.into_iter().chain([script.to_owned()]).chain(args.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchrun_gets_its_arguments_in_order() {
        let arguments = torchrun_arguments(2, "train.py", &["--epochs".to_owned(), "3".to_owned()]);
        assert_eq!(arguments, ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", "--epochs", "3"]);
    }
}
