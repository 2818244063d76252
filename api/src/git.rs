//! The built-in git remote: smart HTTP for stock git, bodies streamed both ways.

use std::{io::Write as _, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header,
    web::{self, Bytes, Data},
};
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt as _;
use sluice_app::{
    Actor, App, Error, Result,
    git::{
        self, pkt,
        service::{self, Process, Service},
    },
    repository, trigger,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{extract::Params, problem::Problem};

/// A client that sends nothing, and a git that takes nothing, for this long is given up.
const STALL: Duration = Duration::from_secs(120);

/// Compressed input is unpacked in bites of this size, so that a gzip bomb unfolds to at most 4 MiB at a time.
const BITE: usize = 4096;

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/git/{name}.git/info/refs", web::get().to(advertise))
        .route("/git/{name}.git/git-upload-pack", web::post().to(upload_pack))
        .route("/git/{name}.git/git-receive-pack", web::post().to(receive_pack));
}

type Answer = std::result::Result<HttpResponse, Problem>;

async fn advertise(app: Data<App>, name: web::Path<String>, request: HttpRequest) -> Answer {
    let folder = repository::git_folder(&app, &name).await?;
    let wanted = Params::of(&request)?.text("service").unwrap_or_default();
    // without a service this is the dumb protocol, which would serve files as they lie
    let service: Service = wanted
        .parse()
        .map_err(|()| Error::invalid("service", format!("service {wanted:?} must be git-upload-pack or git-receive-pack")))?;
    let body = service::advertise(service, &folder, protocol(&request)).await.map_err(internal)?;
    Ok(answer(service, "advertisement").body(body))
}

async fn upload_pack(app: Data<App>, name: web::Path<String>, request: HttpRequest, payload: web::Payload) -> Answer {
    let service = Service::UploadPack;
    let folder = repository::git_folder(&app, &name).await?;
    check_type(&request, service)?;
    let body = Body::new(&request, payload)?;
    let Process { mut child, mut stdin, mut stdout, stderr } =
        service::spawn(service, &folder, protocol(&request), false).map_err(internal)?;
    let (sender, receiver) = mpsc::channel(64);
    // git may answer before it has read everything, so both directions run at once
    let reading = Task::spawn(async move {
        let errors = tokio::spawn(stderr_text(stderr));
        while let Ok(Some(chunk)) = read_chunk(&mut stdout).await {
            if sender.send(chunk).await.is_err() {
                // the client has gone; dropping the child ends git
                return Ok(());
            }
        }
        finish(&mut child, errors, service).await
    });
    let last = pump(body, &mut stdin, |_| {}).await?;
    write(&mut stdin, &last).await?;
    drop(stdin);
    stream_answer(service, receiver, reading.detach()).await
}

/// The end of a push that has come in whole.
struct PushEnd {
    stdin: ChildStdin,
    last: Bytes,
    updates: Vec<pkt::BranchUpdate>,
}

async fn receive_pack(app: Data<App>, name: web::Path<String>, request: HttpRequest, payload: web::Payload) -> Answer {
    let service = Service::ReceivePack;
    let folder = repository::git_folder(&app, &name).await?;
    check_type(&request, service)?;
    let body = Body::new(&request, payload)?;
    let Process { mut child, mut stdin, mut stdout, stderr } =
        service::spawn(service, &folder, protocol(&request), false).map_err(internal)?;
    let (sender, receiver) = mpsc::channel(64);
    let (whole, end) = oneshot::channel::<PushEnd>();
    // A task of its own: once the whole push is here, it is done and its pipelines start even if the client
    // hangs up. Until then the task ends with the request, and git with it.
    let work = Task::spawn(async move {
        let errors = tokio::spawn(stderr_text(stderr));
        // Git cannot change a branch before it has the last piece, so the lock is held only while git works,
        // never while a slow client sends.
        let feed = async {
            let mut end = end.await.ok()?;
            let lock = repository::lock_pushes(&name).await;
            write(&mut end.stdin, &end.last).await.ok()?;
            Some((end.updates, lock))
        };
        let (banded, pushed) = tokio::join!(relay(&mut stdout, &sender), feed);
        let outcome = finish(&mut child, errors, service).await;
        let Some((updates, _lock)) = pushed else { return outcome };
        let lines = started(&app, &name, updates).await;
        if banded {
            for line in lines {
                let _ = sender.send(Bytes::from(pkt::message(&line))).await;
            }
            let _ = sender.send(Bytes::from_static(pkt::FLUSH)).await;
        }
        outcome
    });
    let mut sniffer = pkt::PushSniffer::default();
    let last = pump(body, &mut stdin, |chunk| sniffer.feed(chunk)).await?;
    let _ = whole.send(PushEnd { stdin, last, updates: sniffer.into_updates() });
    stream_answer(service, receiver, work.detach()).await
}

/// Answers with what git says. A git that fails without a word did not understand the request.
async fn stream_answer(service: Service, mut receiver: mpsc::Receiver<Bytes>, outcome: JoinHandle<Outcome>) -> Answer {
    let Some(first) = receiver.recv().await else {
        return match outcome.await {
            Ok(Ok(())) => Ok(answer(service, "result").finish()),
            // what git said names folders of this machine: it is in the log
            Ok(Err(_)) => Err(Error::invalid("body", format!("the body is not a request that {} understands", service.as_str())).into()),
            Err(error) => Err(Error::Internal(error.into()).into()),
        };
    };
    let rest = crate::sse::stream(receiver);
    Ok(answer(service, "result").streaming(futures_util::stream::once(std::future::ready(Ok(first))).chain(rest)))
}

/// Starts the pipelines of a push and gives the lines that tell about them. A fault here must not fail the
/// push, which is done: the next scan makes up for it.
async fn started(app: &App, name: &str, tips: Vec<pkt::BranchUpdate>) -> Vec<String> {
    let tips: Vec<(String, String)> = tips.into_iter().map(|tip| (tip.branch, tip.sha)).collect();
    let scanned = match trigger::scan(app, &Actor::anonymous(), name).await {
        Ok(_) => trigger::describe_push(app, name, &tips).await,
        Err(error) => Err(error),
    };
    scanned.unwrap_or_else(|error| {
        tracing::error!(repository.name = name, error = ?error, "push was not scanned");
        vec!["the push was taken, but its pipelines could not be started yet".to_owned()]
    })
}

/// Passes git's answer on, without the flush that ends a side-banded one. Gives whether it is side-banded, so
/// that messages may follow.
async fn relay(stdout: &mut ChildStdout, sender: &mpsc::Sender<Bytes>) -> bool {
    let mut buffer = Vec::new();
    let mut banded = false;
    loop {
        let Ok(Some(chunk)) = read_chunk(stdout).await else {
            if !buffer.is_empty() {
                let _ = sender.send(Bytes::from(buffer)).await;
            }
            return false;
        };
        buffer.extend_from_slice(&chunk);
        let mut whole = 0;
        loop {
            match pkt::head(&buffer[whole..]) {
                pkt::Head::Line(payload) if matches!(payload.first(), Some(1..=3)) => {
                    banded = true;
                    whole += payload.len() + 4;
                }
                pkt::Head::Partial => break,
                pkt::Head::Flush if banded => {
                    buffer.truncate(whole);
                    if !buffer.is_empty() {
                        let _ = sender.send(Bytes::from(buffer)).await;
                    }
                    // nothing follows the flush, but git must be able to finish
                    while let Ok(Some(_)) = read_chunk(stdout).await {}
                    return true;
                }
                // no side band: as it comes
                _ => {
                    let _ = sender.send(Bytes::from(std::mem::take(&mut buffer))).await;
                    while let Ok(Some(chunk)) = read_chunk(stdout).await {
                        let _ = sender.send(chunk).await;
                    }
                    return false;
                }
            }
        }
        let rest = buffer.split_off(whole);
        if !buffer.is_empty() {
            let _ = sender.send(Bytes::from(buffer)).await;
        }
        buffer = rest;
    }
}

/// Feeds a request body to git, but for the last piece, which is given back. `watch` sees every piece.
async fn pump(mut body: Body, stdin: &mut ChildStdin, mut watch: impl FnMut(&[u8])) -> Result<Bytes> {
    let mut last = Bytes::new();
    // git may refuse and exit early; the rest of the body is read all the same, so that the client gets the answer
    let mut open = true;
    while let Some(chunk) = body.next().await? {
        watch(&chunk);
        let ready = std::mem::replace(&mut last, chunk);
        open = open && write(stdin, &ready).await?;
    }
    Ok(last)
}

async fn write(stdin: &mut ChildStdin, bytes: &[u8]) -> Result<bool> {
    match tokio::time::timeout(STALL, stdin.write_all(bytes)).await {
        Ok(written) => Ok(written.is_ok()),
        Err(_) => Err(Error::Unavailable(std::io::Error::other("git does not read its input").into())),
    }
}

/// A request body, unpacked when it is compressed.
struct Body {
    payload: web::Payload,
    gunzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// What came in but is not unpacked yet.
    packed: Bytes,
}

impl Body {
    fn new(request: &HttpRequest, payload: web::Payload) -> Result<Self> {
        let encoding = request.headers().get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?"));
        let gunzip = match encoding {
            None | Some("identity") => None,
            Some("gzip" | "x-gzip") => Some(MultiGzDecoder::new(Vec::new())),
            Some(other) => return Err(Error::invalid("Content-Encoding", format!("Content-Encoding {other:?} must be gzip or identity"))),
        };
        Ok(Self { payload, gunzip, packed: Bytes::new() })
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let broken = |error: &dyn std::fmt::Display| Error::invalid("body", format!("the request body is broken: {error}"));
        loop {
            if let Some(gunzip) = &mut self.gunzip {
                while !self.packed.is_empty() {
                    let bite = self.packed.split_to(self.packed.len().min(BITE));
                    gunzip.write_all(&bite).and_then(|()| gunzip.flush()).map_err(|error| broken(&error))?;
                    if !gunzip.get_ref().is_empty() {
                        return Ok(Some(Bytes::from(std::mem::take(gunzip.get_mut()))));
                    }
                }
            }
            let chunk = tokio::time::timeout(STALL, self.payload.next()).await.map_err(|_| broken(&"nothing came for too long"))?;
            match (chunk, &mut self.gunzip) {
                (Some(chunk), Some(_)) => self.packed = chunk.map_err(|error| broken(&error))?,
                (Some(chunk), None) => return Ok(Some(chunk.map_err(|error| broken(&error))?)),
                (None, None) => return Ok(None),
                (None, Some(gunzip)) => {
                    gunzip.try_finish().map_err(|error| broken(&error))?;
                    let rest = std::mem::take(gunzip.get_mut());
                    self.gunzip = None;
                    return Ok((!rest.is_empty()).then(|| Bytes::from(rest)));
                }
            }
        }
    }
}

/// How git ended; the error is what it said.
type Outcome = std::result::Result<(), String>;

/// A task that is ended with the request unless it is detached.
struct Task(Option<JoinHandle<Outcome>>);

impl Task {
    fn spawn(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self(Some(tokio::spawn(work)))
    }

    fn detach(mut self) -> JoinHandle<Outcome> {
        self.0.take().unwrap_or_else(|| tokio::spawn(std::future::ready(Ok(()))))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn read_chunk(stdout: &mut ChildStdout) -> std::io::Result<Option<Bytes>> {
    let mut buffer = Vec::with_capacity(64 * 1024);
    Ok((stdout.read_buf(&mut buffer).await? > 0).then(|| Bytes::from(buffer)))
}

async fn stderr_text(mut stderr: ChildStderr) -> String {
    let mut text = Vec::new();
    let _ = (&mut stderr).take(8192).read_to_end(&mut text).await;
    // git must never wait for a reader of its complaints
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&text).trim().to_owned()
}

async fn finish(child: &mut Child, errors: JoinHandle<String>, service: Service) -> Outcome {
    let status = child.wait().await;
    let errors = errors.await.unwrap_or_default();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            // clients hang up and push nonsense: worth a note, no fault of ours
            tracing::info!(service = service.as_str(), %status, errors, "git ended with an error");
            Err(if errors.is_empty() { status.to_string() } else { errors })
        }
        Err(error) => Err(error.to_string()),
    }
}

fn answer(service: Service, what: &str) -> actix_web::HttpResponseBuilder {
    let mut answer = HttpResponse::Ok();
    answer
        .content_type(format!("application/x-{}-{what}", service.as_str()))
        .insert_header((header::CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"))
        .insert_header(header::ContentEncoding::Identity);
    answer
}

fn check_type(request: &HttpRequest, service: Service) -> Result<()> {
    let wanted = format!("application/x-{}-request", service.as_str());
    let given = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if given == wanted { Ok(()) } else { Err(Error::invalid("Content-Type", format!("Content-Type {given:?} must be {wanted}"))) }
}

fn protocol(request: &HttpRequest) -> Option<&str> {
    request.headers().get("Git-Protocol").and_then(|value| value.to_str().ok())
}

fn internal(error: git::Error) -> Error {
    Error::Internal(error.into())
}
