//! The artifact proxy and the listings of a run's artifacts.

use actix_web::{HttpRequest, HttpResponse, Scope, web};
use serde_json::{Map, Value, json};
use sluice_app::{
    App, Error, Result, artifact,
    artifact::{Entry, Key},
};
use sluice_domain::id::RunId;

use super::{Answer, Args, Bearer, caller, empty, file_answer::send_file};

/// The proxy below `{prefix}/2.0/mlflow-artifacts`.
pub fn proxy(prefix: &str) -> Scope {
    web::scope(&format!("{prefix}/2.0/mlflow-artifacts"))
        .service(web::resource("/artifacts").route(web::get().to(list_proxied)))
        .service(
            web::resource("/artifacts/{path:.*}")
                .route(web::get().to(download))
                .route(web::put().to(upload))
                .route(web::delete().to(delete)),
        )
        .service(web::resource("/mpu/{verb}/{path:.*}").route(web::post().to(no_multipart_upload)))
        .service(web::resource("/presigned/{path:.*}").route(web::get().to(no_multipart_download)))
}

/// Routes relative to `/api/2.0/mlflow`.
pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/artifacts/list", web::get().to(list_of_run))
        .route("/artifacts/presigned-upload-url", web::post().to(no_presigned_url))
        .route("/artifacts/presigned-download-url", web::post().to(no_presigned_url));
}

/// Routes at the root of the server: download links of pages.
pub fn configure_root(config: &mut web::ServiceConfig) {
    config.route("/get-artifact", web::get().to(download_of_run));
}

/// The key that the path of a proxy URL names. The URL is taken as it was sent: nothing was decoded yet.
fn requested_key(request: &HttpRequest) -> Result<Key> {
    let path = request.uri().path();
    let (_, raw) = path.split_once("/mlflow-artifacts/artifacts/").unwrap_or_default();
    Ok(Key::parse(raw)?)
}

async fn upload(app: web::Data<App>, request: HttpRequest, bearer: Bearer, payload: web::Payload) -> Answer {
    let key = requested_key(&request)?;
    let caller = caller(bearer);
    artifact::upload(&app, &key, payload, async || caller.check(&app).await).await?;
    Ok(HttpResponse::Ok().finish())
}

async fn download(app: web::Data<App>, request: HttpRequest) -> Answer {
    let key = requested_key(&request)?;
    Ok(send_file(&app, &request, &key).await?)
}

async fn delete(app: web::Data<App>, request: HttpRequest, bearer: Bearer) -> Answer {
    let key = requested_key(&request)?;
    let caller = caller(bearer);
    artifact::delete(&app, &key, async || caller.check(&app).await).await?;
    Ok(empty())
}

async fn list_proxied(app: web::Data<App>, args: Args) -> Answer {
    let path = args.text("path")?.unwrap_or_default();
    let path = path.trim_end_matches('/');
    let folder = if path.is_empty() { None } else { Some(Key::parse(path).map_err(Error::from)?) };
    let entries = artifact::list_folder(&app, folder.as_ref()).await?;
    Ok(HttpResponse::Ok().json(files_json(&entries)))
}

async fn list_of_run(app: web::Data<App>, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    let path = args.text("path")?.unwrap_or_default();
    let (root_uri, entries) = artifact::list_run_artifacts(&app, parse_run_id(&run_id)?, &path).await?;
    let mut body = files_json(&entries);
    body.insert("root_uri".to_owned(), root_uri.into());
    Ok(HttpResponse::Ok().json(body))
}

async fn download_of_run(app: web::Data<App>, request: HttpRequest, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    let path = args.required_text("path")?;
    let (_, root) = artifact::run_folder(&app, parse_run_id(&run_id)?).await?;
    let key = root.join(&path).map_err(Error::from)?;
    Ok(send_file(&app, &request, &key).await?)
}

async fn no_multipart_upload() -> Answer {
    Err(Error::NotImplemented("Multipart upload is not supported for the current artifact repository".to_owned()).into())
}

async fn no_multipart_download() -> Answer {
    Err(Error::NotImplemented("Multipart download is not supported for the current artifact repository".to_owned()).into())
}

async fn no_presigned_url() -> Answer {
    Err(Error::invalid("path", "Artifacts of this server go through its proxy: presigned URLs are not available.").into())
}

/// A run id; one that is malformed cannot exist.
pub(super) fn parse_run_id(text: &str) -> Result<RunId> {
    text.parse().map_err(|_| Error::NotFound(format!("Run with id={text} not found")))
}

/// `files` as MLflow lists them: left out when empty, no size for folders and empty files.
pub(super) fn files_json(entries: &[Entry]) -> Map<String, Value> {
    let mut body = Map::new();
    if !entries.is_empty() {
        let files = entries.iter().map(|entry| {
            let mut file = json!({ "path": entry.name, "is_dir": entry.is_dir });
            if entry.bytes > 0 {
                file["file_size"] = entry.bytes.into();
            }
            file
        });
        body.insert("files".to_owned(), files.collect());
    }
    body
}
