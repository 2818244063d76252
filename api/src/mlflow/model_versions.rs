//! `model-versions/…`: versions of registered models.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_app::{
    App, Error, Result,
    artifact::key_of_uri,
    registry::{self, CreateVersion},
};
use sluice_domain::registry::{ModelVersion, Stage};

use super::{
    Answer, Args, Bearer, caller, empty, file_answer::send_file, registered_models::read_search, registry_wire::ModelVersionView,
    wire::read_key_values,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/model-versions/create", web::post().to(create))
        .route("/model-versions/get", web::get().to(get))
        .route("/model-versions/update", web::patch().to(update))
        .route("/model-versions/transition-stage", web::post().to(transition_stage))
        .route("/model-versions/delete", web::delete().to(delete))
        .route("/model-versions/search", web::get().to(search))
        .route("/model-versions/get-download-uri", web::get().to(download_uri))
        .route("/model-versions/set-tag", web::post().to(set_tag))
        .route("/model-versions/delete-tag", web::delete().to(delete_tag));
}

/// Routes at the root of the server: download links of pages.
pub(super) fn configure_root(config: &mut web::ServiceConfig) {
    config.route("/model-versions/get-artifact", web::get().to(download));
}

/// The number of a version, which MLflow writes as text.
pub(super) fn version_number(args: &Args) -> Result<i32> {
    let text = match args.value("version")? {
        Some(Value::Number(number)) => number.to_string(),
        _ => args.required_text("version")?,
    };
    match text.parse::<i32>() {
        Ok(number) => Ok(number),
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            let name = args.text("name")?.unwrap_or_default();
            Err(Error::NotFound(format!("Model Version (name={name}, version={text}) not found")))
        }
        Err(_) => Err(Error::invalid("version", format!("Parameter 'version' must be an integer, got '{text}'."))),
    }
}

/// A text that may be absent, which is the same as empty.
pub(super) fn optional_text(args: &Args, name: &str) -> Result<String> {
    Ok(args.text(name)?.unwrap_or_default())
}

fn version_answer(version: &ModelVersion) -> HttpResponse {
    HttpResponse::Ok().json(json!({ "model_version": ModelVersionView::from(version) }))
}

async fn create(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let new = CreateVersion {
        name: args.required_text("name")?,
        source: args.required_text("source")?,
        run_id: args.text("run_id")?.filter(|id| !id.is_empty()),
        model_id: args.text("model_id")?.filter(|id| !id.is_empty()),
        run_link: optional_text(&args, "run_link")?,
        description: optional_text(&args, "description")?,
        tags: read_key_values(&args, "tags")?,
    };
    Ok(version_answer(&registry::create_version(&app, &caller(bearer), new).await?))
}

async fn get(app: web::Data<App>, args: Args) -> Answer {
    let name = args.required_text("name")?;
    Ok(version_answer(&registry::get_version(&app, &name, version_number(&args)?).await?))
}

async fn update(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let description = optional_text(&args, "description")?;
    let version = registry::update_version(&app, &caller(bearer), &name, version_number(&args)?, &description).await?;
    Ok(version_answer(&version))
}

async fn transition_stage(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let number = version_number(&args)?;
    let stage: Stage = args.required_text("stage")?.parse().map_err(|rule: String| Error::invalid("stage", rule))?;
    let archive = args.boolean("archive_existing_versions")?.unwrap_or(false);
    let version = registry::transition_stage(&app, &caller(bearer), &name, number, stage, archive).await?;
    Ok(version_answer(&version))
}

async fn delete(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    registry::delete_version(&app, &caller(bearer), &name, version_number(&args)?).await?;
    Ok(empty())
}

#[derive(Serialize)]
struct SearchAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_versions: Vec<ModelVersionView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn search(app: web::Data<App>, args: Args) -> Answer {
    let search = read_search(&args, 200_000)?;
    let page = registry::search_versions(&app, &search).await?;
    Ok(HttpResponse::Ok().json(SearchAnswer {
        model_versions: page.items.iter().map(ModelVersionView::from).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

async fn download_uri(app: web::Data<App>, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let uri = registry::version_storage(&app, &name, version_number(&args)?).await?;
    Ok(HttpResponse::Ok().json(json!({ "artifact_uri": uri })))
}

async fn set_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let key = args.required_text("key")?;
    let value = optional_text(&args, "value")?;
    registry::set_version_tag(&app, &caller(bearer), &name, version_number(&args)?, &key, &value).await?;
    Ok(empty())
}

async fn delete_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let key = args.required_text("key")?;
    registry::delete_version_tag(&app, &caller(bearer), &name, version_number(&args)?, &key).await?;
    Ok(empty())
}

async fn download(app: web::Data<App>, request: HttpRequest, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let path = args.required_text("path")?;
    let root = key_of_uri(&registry::version_storage(&app, &name, version_number(&args)?).await?)?;
    Ok(send_file(&app, &request, &root.join(&path).map_err(Error::from)?).await?)
}
