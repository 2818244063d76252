//! `sluice serve-model`: one ONNX file, served over the Open Inference Protocol from ONNX Runtime.
//!
//! It is a process of its own, so that a crash in native code takes nothing else with it. The bytes that were
//! hashed are the bytes that are loaded: the file is read once.

mod protocol;

use std::{
    fs,
    io::{self, Read},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    http::{Method, StatusCode, header},
    web,
};
use anyhow::{Context, bail, ensure};
use clap::Args;
use ort::{
    environment::Environment,
    logging::LogLevel,
    session::{Session, SessionInputValue},
    value::{DynValue, Outlet, TensorElementType, ValueType},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use self::protocol::{BadRequest, CheckedRequest, Datatype, ModelMeta, Tensor, TensorMeta, Values};

/// Largest request body.
const BODY_LIMIT: usize = 16 * 1024 * 1024;
/// Requests that may wait for the model or run on it; further ones are told to come back.
const IN_FLIGHT: usize = 64;
/// What a request that is running gets when the process is asked to end.
const SHUTDOWN_SECS: u64 = 10;

/// Arguments of `sluice serve-model`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The ONNX file.
    #[arg(long)]
    pub model_file: PathBuf,
    /// Name of the model in URLs.
    #[arg(long)]
    pub name: String,
    /// Version of the model in URLs and answers.
    #[arg(long)]
    pub version: String,
    /// SHA-256 that the file must have, in hex. Another file is not served.
    #[arg(long)]
    pub sha256: String,
    /// Address to listen on; a loopback one. Port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The ONNX Runtime library, e.g. `…/site-packages/onnxruntime/capi/libonnxruntime.so.1.32.0`.
    #[arg(long)]
    pub onnxruntime: PathBuf,
    /// Written once the model is loaded and the port is open: `{"port": N, "pid": N}`.
    #[arg(long)]
    pub ready_file: PathBuf,
}

/// Loads the model and serves it until SIGTERM or SIGINT, or until standard input ends when that is a pipe (the
/// parent is gone).
pub async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    ensure!(args.listen.ip().is_loopback(), "--listen {}: only loopback addresses are served", args.listen);
    let model = web::Data::new(Model::load(&args)?);
    let listener = TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let port = listener.local_addr()?.port();
    let server = HttpServer::new(move || App::new().app_data(model.clone()).configure(routes))
        .workers(1)
        .shutdown_timeout(SHUTDOWN_SECS)
        .listen(listener)?
        .run();
    if stdin_is_pipe() {
        let (handle, runtime) = (server.handle(), tokio::runtime::Handle::current());
        std::thread::spawn(move || {
            wait_for_end(io::stdin().lock());
            runtime.spawn(handle.stop(true));
        });
    }
    write_ready_file(&args.ready_file, port)?;
    tracing::info!(model = args.name, version = args.version, port, "model is served");
    server.await?;
    Ok(())
}

/// A loaded model.
struct Model {
    name: String,
    version: String,
    sha256: String,
    meta: ModelMeta,
    session: Mutex<Session>,
    slots: Semaphore,
    /// Sessions need it alive.
    _environment: Environment,
}

impl Model {
    fn load(args: &ServeArgs) -> anyhow::Result<Self> {
        let file = args.model_file.display();
        let bytes = fs::read(&args.model_file).with_context(|| format!("cannot read {file}"))?;
        let found = hex(&Sha256::digest(&bytes));
        let wanted = args.sha256.to_ascii_lowercase();
        ensure!(found == wanted, "digest mismatch: {file} has SHA-256 {found}, expected {wanted}");
        let environment = ort::init_from(&args.onnxruntime)
            .map_err(|error| anyhow::anyhow!("cannot load ONNX Runtime from {}: {error}", args.onnxruntime.display()))?
            .with_name("sluice")
            .with_telemetry(false)
            .build()
            .map_err(|error| anyhow::anyhow!("cannot start ONNX Runtime: {}", error.message()))?;
        let session = open(&environment, &bytes).map_err(|message| anyhow::anyhow!("{file} cannot be loaded: {message}"))?;
        let describe = |kind: &str, outlets: &[Outlet]| outlets.iter().map(|outlet| tensor_meta(kind, outlet)).collect();
        let inputs: anyhow::Result<_> = describe("input", session.inputs());
        let outputs: anyhow::Result<_> = describe("output", session.outputs());
        Ok(Self {
            name: args.name.clone(),
            version: args.version.clone(),
            sha256: found,
            meta: ModelMeta { inputs: inputs?, outputs: outputs? },
            session: Mutex::new(session),
            slots: Semaphore::new(IN_FLIGHT),
            _environment: environment,
        })
    }

    fn run(&self, request: CheckedRequest) -> Result<serde_json::Value, BadRequest> {
        let not_runnable = |message: String| BadRequest(format!("the model cannot run these inputs: {message}"));
        let mut inputs = Vec::with_capacity(request.inputs.len());
        for tensor in request.inputs {
            let name = tensor.name.clone();
            let value = to_ort(tensor).map_err(|error| BadRequest(format!("input {name:?}: {}", one_line(error.message()))))?;
            inputs.push((name, SessionInputValue::from(value)));
        }
        // A panic while the lock was held leaves the session as it was: runs do not change it.
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        // The request fits the model's description, so what goes wrong now lies in its values (an index that is
        // out of range) or in how its shapes go together: the caller's matter.
        let found = session.run(inputs).map_err(|error| not_runnable(one_line(error.message())))?;
        let mut outputs = Vec::with_capacity(request.outputs.len());
        for name in &request.outputs {
            let value = found.get(name).ok_or_else(|| not_runnable(format!("no output {name:?}")))?;
            let (datatype, shape, values) = from_ort(value).map_err(not_runnable)?;
            outputs.push(json!({ "name": name, "datatype": datatype, "shape": shape, "data": values }));
        }
        let mut answer = json!({ "model_name": self.name, "model_version": self.version, "outputs": outputs });
        if let Some(id) = request.id {
            answer["id"] = id.into();
        }
        Ok(answer)
    }
}

fn open(environment: &Environment, bytes: &[u8]) -> Result<Session, String> {
    // One thread, as in the gate's latency check.
    Session::builder(environment)
        .map_err(|error| one_line(error.message()))?
        .with_intra_threads(1)
        .map_err(|error| one_line(error.message()))?
        // A caller's bad input is the caller's to read about, in the answer.
        .with_log_level(LogLevel::Fatal)
        .map_err(|error| one_line(error.message()))?
        .commit_from_memory(bytes)
        .map_err(|error| one_line(error.message()))
}

/// ONNX Runtime's messages may have several lines; whoever reads this process's errors wants one.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn tensor_meta(kind: &str, outlet: &Outlet) -> anyhow::Result<TensorMeta> {
    let name = outlet.name().to_owned();
    let &ValueType::Tensor { ty, ref shape, .. } = outlet.dtype() else { bail!("{kind} {name:?} is not a tensor") };
    let datatype = datatype(ty).with_context(|| format!("{kind} {name:?} has element type {ty}, which is not served"))?;
    Ok(TensorMeta { name, datatype, shape: shape.to_vec() })
}

fn datatype(ty: TensorElementType) -> Option<Datatype> {
    Some(match ty {
        TensorElementType::Bool => Datatype::Bool,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        _ => return None,
    })
}

fn to_ort(tensor: Tensor) -> ort::Result<DynValue> {
    let Tensor { shape, values, .. } = tensor;
    macro_rules! tensor {
        ($values:expr) => {
            ort::value::Tensor::from_array((shape, $values))?.into_dyn()
        };
    }
    Ok(match values {
        Values::Bool(values) => tensor!(values),
        Values::Uint8(values) => tensor!(values),
        Values::Uint16(values) => tensor!(values),
        Values::Uint32(values) => tensor!(values),
        Values::Uint64(values) => tensor!(values),
        Values::Int8(values) => tensor!(values),
        Values::Int16(values) => tensor!(values),
        Values::Int32(values) => tensor!(values),
        Values::Int64(values) => tensor!(values),
        Values::Fp32(values) => tensor!(values),
        Values::Fp64(values) => tensor!(values),
    })
}

fn from_ort(value: &DynValue) -> Result<(Datatype, Vec<i64>, Values), String> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else { return Err("an output is not a tensor".to_owned()) };
    let datatype = datatype(*ty).ok_or_else(|| format!("an output has element type {ty}, which is not served"))?;
    macro_rules! values {
        ($variant:ident) => {
            Values::$variant(value.try_extract_tensor().map_err(|error| error.message().to_owned())?.1.to_vec())
        };
    }
    let values = match datatype {
        Datatype::Bool => values!(Bool),
        Datatype::Uint8 => values!(Uint8),
        Datatype::Uint16 => values!(Uint16),
        Datatype::Uint32 => values!(Uint32),
        Datatype::Uint64 => values!(Uint64),
        Datatype::Int8 => values!(Int8),
        Datatype::Int16 => values!(Int16),
        Datatype::Int32 => values!(Int32),
        Datatype::Int64 => values!(Int64),
        Datatype::Fp32 => values!(Fp32),
        Datatype::Fp64 => values!(Fp64),
    };
    Ok((datatype, shape.to_vec(), values))
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(BODY_LIMIT))
        .service(resource("/v2").route(web::get().to(server_metadata)))
        .service(resource("/v2/health/live").route(web::get().to(live)))
        .service(resource("/v2/health/ready").route(web::get().to(ready)));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        config
            .service(resource(model).route(web::get().to(model_metadata)))
            .service(resource(&format!("{model}/ready")).route(web::get().to(model_ready)))
            .service(resource(&format!("{model}/infer")).route(web::post().to(infer)));
    }
    config.default_service(web::to(|| async { problem(StatusCode::NOT_FOUND, "there is nothing at this path") }));
}

fn resource(path: &str) -> actix_web::Resource {
    web::resource(path).default_service(web::to(|request: HttpRequest| async move {
        let allowed = if request.path().ends_with("/infer") { Method::POST } else { Method::GET };
        problem(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}"))
    }))
}

fn problem(status: StatusCode, message: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "error": message }))
}

async fn server_metadata() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "name": "sluice", "version": env!("CARGO_PKG_VERSION"), "extensions": [] }))
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "live": true }))
}

/// The port opens after the model is loaded: who gets an answer at all gets this one.
async fn ready() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "ready": true }))
}

async fn model_ready(request: HttpRequest, model: web::Data<Model>) -> HttpResponse {
    match wrong_address(&request, &model) {
        Some(refused) => refused,
        None => HttpResponse::Ok().json(json!({ "name": model.name, "version": model.version, "ready": true })),
    }
}

async fn model_metadata(request: HttpRequest, model: web::Data<Model>) -> HttpResponse {
    if let Some(refused) = wrong_address(&request, &model) {
        return refused;
    }
    HttpResponse::Ok().json(json!({
        "name": model.name,
        "versions": [model.version],
        "platform": "onnxruntime_onnx",
        "inputs": model.meta.inputs,
        "outputs": model.meta.outputs,
        "sluice_sha256": model.sha256,
    }))
}

async fn infer(request: HttpRequest, model: web::Data<Model>, body: Result<web::Bytes, actix_web::Error>) -> HttpResponse {
    if let Some(refused) = wrong_address(&request, &model) {
        return refused;
    }
    if request.headers().contains_key("inference-header-content-length") {
        return problem(StatusCode::BAD_REQUEST, "Inference-Header-Content-Length: binary tensors are not supported, send JSON data");
    }
    let body = match body {
        Ok(body) => body,
        Err(error) if error.as_response_error().status_code() == StatusCode::PAYLOAD_TOO_LARGE => {
            return problem(StatusCode::PAYLOAD_TOO_LARGE, &format!("the request body is larger than {BODY_LIMIT} bytes"));
        }
        Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("the request body cannot be read: {error}")),
    };
    let Ok(slot) = model.slots.try_acquire() else {
        let mut refused = problem(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting");
        refused.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        return refused;
    };
    let worker = model.clone();
    let answer = web::block(move || protocol::check(&body, &worker.meta).and_then(|request| worker.run(request))).await;
    drop(slot);
    match answer {
        Ok(Ok(answer)) => HttpResponse::Ok().json(answer),
        Ok(Err(BadRequest(message))) => problem(StatusCode::BAD_REQUEST, &message),
        Err(error) => {
            tracing::error!(%error, "inference did not end");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "the inference did not end")
        }
    }
}

/// The refusal of a request for a model or version that is not the one served here.
fn wrong_address(request: &HttpRequest, model: &Model) -> Option<HttpResponse> {
    let (name, version) = (request.match_info().query("model"), request.match_info().get("version"));
    if name != model.name {
        return Some(problem(StatusCode::NOT_FOUND, &format!("model {name:?} is not served here")));
    }
    match version {
        Some(version) if version != model.version => {
            Some(problem(StatusCode::NOT_FOUND, &format!("version {version:?} of model {name:?} is not served here")))
        }
        _ => None,
    }
}

fn stdin_is_pipe() -> bool {
    rustix::fs::fstat(io::stdin()).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_fifo())
}

fn wait_for_end(mut input: impl Read) {
    let mut buffer = [0; 256];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}

/// Whoever sees the file sees all of it.
fn write_ready_file(path: &Path, port: u16) -> anyhow::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".part");
    let content = json!({ "port": port, "pid": std::process::id() }).to_string();
    fs::write(&partial, content).and_then(|()| fs::rename(&partial, path)).with_context(|| format!("cannot write {}", path.display()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
