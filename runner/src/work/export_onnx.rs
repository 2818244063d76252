//! Export of an MLflow PyTorch model to ONNX, by a script in the job's own environment.

use std::ffi::OsString;

use serde_json::json;
use sluice_domain::{evidence::OnnxEvidence, plan::OnnxExportSpec};

use crate::{
    context::Context,
    environment::Environment,
    files::{blocking, sha256_of},
    halt::{Halt, JobResultOf, io},
    process::Command,
};

const SCRIPT: &str = include_str!("../export_onnx.py");
/// Relative tolerances whose excess is recorded: gate policies choose among them.
const RTOLS: [f64; 4] = [1e-3, 1e-4, 1e-5, 0.0];

impl Context {
    /// Exports to where the job's output lies, and answers what was found. Outputs that differ are evidence for the gate to judge;
    /// only what cannot be exported at all fails here.
    pub async fn export_onnx(&self, spec: &OnnxExportSpec, environment: &Environment) -> JobResultOf<OnnxEvidence> {
        let folder = self.folders.tmp.join("export");
        std::fs::create_dir_all(&folder).map_err(io("export"))?;
        let (script, request, result) = (folder.join("export_onnx.py"), folder.join("spec.json"), folder.join("result.json"));
        let file = self.output_file(&spec.output)?;
        let model_dir = self.folders.inputs.join(&spec.from.job).join(&spec.from.output);
        let body = json!({
            "model_dir": model_dir,
            "output": file,
            "opset": spec.opset,
            "dynamic": spec.dynamic,
            "parity_batches": spec.parity_batches,
            "latency_batches": spec.latency_batches,
            "rtols": RTOLS,
        });
        std::fs::write(&script, SCRIPT).map_err(io("export"))?;
        std::fs::write(&request, body.to_string()).map_err(io("export"))?;
        self.log.line(&format!("sluice: ONNX export of {}.{}, opset {}", spec.from.job, spec.from.output, spec.opset)).await;
        let args: Vec<OsString> = [&script, &request, &result].into_iter().map(OsString::from).collect();
        let mut env = environment.variables.clone();
        // A script's own folder comes first on the path; the model's code lies in the checkout.
        env.insert("PYTHONPATH".to_owned(), python_path(env.get("PYTHONPATH"), self.folders.repo.as_os_str().to_owned()));
        let command = Command { program: environment.python.clone().into(), args, cwd: self.folders.repo.clone(), env };
        self.run("ONNX export", command).await?;
        let text = std::fs::read_to_string(&result).map_err(|error| Halt::user(format!("ONNX export left no result: {error}")))?;
        let evidence: OnnxEvidence =
            serde_json::from_str(&text).map_err(|error| Halt::user(format!("ONNX export left a broken result: {error}")))?;
        let (sha256, _) = blocking("ONNX export", move || sha256_of(&file)).await?;
        // What is gated must be what was measured.
        if sha256 != evidence.sha256 {
            return Err(Halt::user(format!("the exported file has SHA-256 {sha256}, but {} was measured", evidence.sha256)));
        }
        Ok(evidence)
    }
}

fn python_path(given: Option<&OsString>, repo: OsString) -> OsString {
    let mut path = repo;
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        path.push(":");
        path.push(given);
    }
    path
}
