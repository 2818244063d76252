//! `registered-models/…`: models, their tags and aliases.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use sluice_app::{
    App,
    registry::{self, Search},
};

use super::{
    Answer, Args, Bearer, caller, empty,
    model_versions::{optional_text, version_number},
    registry_wire::{ModelVersionView, RegisteredModelView},
    wire::read_key_values,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/registered-models/create", web::post().to(create))
        .route("/registered-models/get", web::get().to(get))
        .route("/registered-models/update", web::patch().to(update))
        .route("/registered-models/rename", web::post().to(rename))
        .route("/registered-models/delete", web::delete().to(delete))
        .route("/registered-models/search", web::get().to(search))
        .route("/registered-models/get-latest-versions", web::post().to(latest_versions))
        .route("/registered-models/get-latest-versions", web::get().to(latest_versions))
        .route("/registered-models/set-tag", web::post().to(set_tag))
        .route("/registered-models/delete-tag", web::delete().to(delete_tag))
        .service(
            web::resource("/registered-models/alias")
                .route(web::get().to(get_alias))
                .route(web::post().to(set_alias))
                .route(web::delete().to(delete_alias)),
        );
}

fn model_answer(model: &sluice_domain::registry::RegisteredModel) -> HttpResponse {
    HttpResponse::Ok().json(json!({ "registered_model": RegisteredModelView::from(model) }))
}

async fn create(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let tags = read_key_values(&args, "tags")?;
    let model = registry::create_model(&app, &caller(bearer), &name, &optional_text(&args, "description")?, tags).await?;
    Ok(model_answer(&model))
}

async fn get(app: web::Data<App>, args: Args) -> Answer {
    Ok(model_answer(&registry::get_model(&app, &args.required_text("name")?).await?))
}

async fn update(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let model = registry::update_model(&app, &caller(bearer), &name, &optional_text(&args, "description")?).await?;
    Ok(model_answer(&model))
}

async fn rename(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let new_name = args.required_text("new_name")?;
    Ok(model_answer(&registry::rename_model(&app, &caller(bearer), &name, &new_name).await?))
}

async fn delete(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    registry::delete_model(&app, &caller(bearer), &args.required_text("name")?).await?;
    Ok(empty())
}

#[derive(Serialize)]
struct SearchAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    registered_models: Vec<RegisteredModelView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn search(app: web::Data<App>, args: Args) -> Answer {
    let search = read_search(&args, 100)?;
    let page = registry::search_models(&app, &search).await?;
    Ok(HttpResponse::Ok().json(SearchAnswer {
        registered_models: page.items.iter().map(RegisteredModelView::from).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

/// The fields that both searches of the registry have.
pub(super) fn read_search(args: &Args, default_max_results: i64) -> sluice_app::Result<Search> {
    Ok(Search {
        filter: optional_text(args, "filter")?,
        order_by: args.texts("order_by")?,
        max_results: args.integer("max_results")?.unwrap_or(default_max_results),
        page_token: args.text("page_token")?,
    })
}

#[derive(Serialize)]
struct LatestAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_versions: Vec<ModelVersionView<'a>>,
}

async fn latest_versions(app: web::Data<App>, args: Args) -> Answer {
    let versions = registry::latest_versions(&app, &args.required_text("name")?, &args.texts("stages")?).await?;
    Ok(HttpResponse::Ok().json(LatestAnswer { model_versions: versions.iter().map(ModelVersionView::from).collect() }))
}

async fn set_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let key = args.required_text("key")?;
    registry::set_model_tag(&app, &caller(bearer), &name, &key, &optional_text(&args, "value")?).await?;
    Ok(empty())
}

async fn delete_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    registry::delete_model_tag(&app, &caller(bearer), &name, &args.required_text("key")?).await?;
    Ok(empty())
}

async fn get_alias(app: web::Data<App>, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let version = registry::get_version_by_alias(&app, &name, &args.required_text("alias")?).await?;
    Ok(HttpResponse::Ok().json(json!({ "model_version": ModelVersionView::from(&version) })))
}

async fn set_alias(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let alias = args.required_text("alias")?;
    let version = version_number(&args)?;
    registry::set_alias(&app, &caller(bearer), &name, &alias, version).await?;
    Ok(empty())
}

async fn delete_alias(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    registry::delete_alias(&app, &caller(bearer), &name, &args.required_text("alias")?).await?;
    Ok(empty())
}
