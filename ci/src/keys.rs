//! The fields that the two files know. A test holds the JSON Schemas to these lists.

pub(crate) const ROOT: &[&str] = &["version", "on", "setup", "env", "jobs", "promote", "deploy"];
pub(crate) const ON: &[&str] = &["push"];
pub(crate) const PUSH: &[&str] = &["branches"];
pub(crate) const JOB: &[&str] =
    &["needs", "experiment", "resources", "setup", "env", "run", "launch", "benchmark", "export", "timeout", "outputs"];
pub(crate) const RESOURCES: &[&str] = &["cpus"];
pub(crate) const LAUNCH: &[&str] = &["with", "processes", "script", "args"];
pub(crate) const BENCHMARK: &[&str] = &["command", "against", "repeats", "metrics"];
pub(crate) const AGAINST: &[&str] = &["model", "alias"];
pub(crate) const EXPORT: &[&str] = &["onnx", "tensorrt"];
pub(crate) const ONNX: &[&str] = &["from", "opset", "dynamic", "parity_batches", "latency_batches"];
pub(crate) const TENSORRT: &[&str] = &["from", "precision"];
pub(crate) const PROMOTE: &[&str] = &["model", "alias", "from", "gate"];
pub(crate) const DEPLOY: &[&str] = &["alias", "to"];

pub(crate) const GATE: &[&str] = &["checks"];
pub(crate) const CHECK: &[&str] = &["metric_threshold", "non_inferiority", "latency_budget", "onnx_parity"];
pub(crate) const METRIC_THRESHOLD: &[&str] = &["metric", "min", "max"];
pub(crate) const NON_INFERIORITY: &[&str] = &["metric", "test", "margin"];
pub(crate) const LATENCY_BUDGET: &[&str] = &["batch", "quantile", "max_ms"];
pub(crate) const ONNX_PARITY: &[&str] = &["atol", "rtol"];
