//! TensorRT engines, built by `trtexec` where a runner has it.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use sluice_domain::plan::TensorrtExportSpec;

use crate::{
    context::Context,
    environment::Environment,
    halt::{Halt, JobResultOf, io},
    process::Command,
};

/// Name of the engine's output.
const OUTPUT: &str = "engine";

/// `trtexec` on a search path: its presence is the capability `tensorrt`.
#[must_use]
pub fn find_trtexec(path: Option<&OsStr>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |file: &PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(path?).map(|folder| folder.join("trtexec")).find(is_program)
}

/// Arguments of `trtexec`.
///
/// # Errors
/// When the precision is none that it knows.
pub fn trtexec_arguments(precision: &str, onnx: &Path, engine: &Path) -> Result<Vec<OsString>, String> {
    let flag = match precision {
        "fp32" => None,
        "fp16" | "bf16" | "int8" | "fp8" => Some(format!("--{precision}")),
        other => return Err(format!("precision {other:?} must be fp32, fp16, bf16, int8 or fp8")),
    };
    let path = |name: &str, path: &Path| {
        let mut argument = OsString::from(name);
        argument.push(path);
        argument
    };
    let mut arguments = vec![path("--onnx=", onnx), path("--saveEngine=", engine)];
    arguments.extend(flag.map(OsString::from));
    Ok(arguments)
}

impl Context {
    /// Builds the engine where the job's output lies.
    pub async fn export_tensorrt(&self, spec: &TensorrtExportSpec, environment: &Environment) -> JobResultOf<()> {
        let path = environment.variables.get("PATH").map(OsString::as_os_str);
        let trtexec =
            find_trtexec(path).ok_or_else(|| Halt::infra("TensorRT is unavailable: there is no trtexec on this runner's PATH"))?;
        let folder = self.folders.inputs.join(&spec.from.job).join(&spec.from.output);
        let onnx = folder.join("model.onnx");
        if !onnx.is_file() {
            return Err(Halt::user(format!("{}.{} holds no model.onnx", spec.from.job, spec.from.output)));
        }
        let engine = self.output_file(OUTPUT)?;
        let args = trtexec_arguments(&spec.precision, &onnx, &engine).map_err(Halt::user)?;
        let cwd = self.folders.repo.clone();
        let command = Command { program: trtexec.into(), args, cwd, env: environment.variables.clone() };
        self.run("trtexec", command).await?;
        std::fs::metadata(&engine).map_err(io("trtexec left no engine"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_precision() {
        let arguments = |precision| trtexec_arguments(precision, Path::new("/in/model.onnx"), Path::new("/out/model.plan"));
        assert_eq!(arguments("fp32").unwrap(), ["--onnx=/in/model.onnx", "--saveEngine=/out/model.plan"]);
        assert_eq!(arguments("fp16").unwrap().last().unwrap(), "--fp16");
        assert!(arguments("fp64").unwrap_err().contains("fp64"));
    }

    #[test]
    fn trtexec_must_be_a_program() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trtexec");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find_trtexec(Some(folder.path().as_os_str())), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_trtexec(Some(folder.path().as_os_str())), Some(file));
        assert_eq!(find_trtexec(None), None);
    }
}
