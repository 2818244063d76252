//! `experiments/…`

use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use sluice_app::{
    App,
    experiment::{self, ExperimentSearch},
    tracking::View,
};
use sluice_domain::{state::Lifecycle, tracking::KeyValue};

use super::{
    Answer, Args, Bearer, actor, empty,
    wire::{ExperimentView, read_key_values},
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/experiments/create", web::post().to(create))
        .route("/experiments/get", web::get().to(get))
        .route("/experiments/get-by-name", web::get().to(get_by_name))
        .route("/experiments/search", web::get().to(search))
        .route("/experiments/search", web::post().to(search))
        .route("/experiments/update", web::post().to(update))
        .route("/experiments/delete", web::post().to(delete))
        .route("/experiments/restore", web::post().to(restore))
        .route("/experiments/set-experiment-tag", web::post().to(set_tag))
        .route("/experiments/delete-experiment-tag", web::post().to(delete_tag));
}

async fn create(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let name = args.required_text("name")?;
    let location = args.text("artifact_location")?;
    let tags = read_key_values(&args, "tags")?;
    let id = experiment::create_experiment(&app, &actor(), bearer.token(), &name, location.as_deref(), &tags).await?;
    Ok(HttpResponse::Ok().json(json!({ "experiment_id": id.to_string() })))
}

async fn get(app: web::Data<App>, args: Args) -> Answer {
    let experiment = experiment::get_experiment(&app, &args.required_text("experiment_id")?).await?;
    Ok(HttpResponse::Ok().json(json!({ "experiment": ExperimentView::from(&experiment) })))
}

async fn get_by_name(app: web::Data<App>, args: Args) -> Answer {
    let experiment = experiment::get_experiment_by_name(&app, &args.required_text("experiment_name")?).await?;
    Ok(HttpResponse::Ok().json(json!({ "experiment": ExperimentView::from(&experiment) })))
}

#[derive(Serialize)]
struct SearchAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experiments: Vec<ExperimentView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn search(app: web::Data<App>, args: Args) -> Answer {
    let search = ExperimentSearch {
        view: view_type(&args, "view_type")?,
        filter: args.text("filter")?.unwrap_or_default(),
        order_by: args.texts("order_by")?,
        max_results: args.integer("max_results")?.unwrap_or(0),
        page_token: args.text("page_token")?.filter(|token| !token.is_empty()),
    };
    let page = experiment::search_experiments_page(&app, &search).await?;
    Ok(HttpResponse::Ok().json(SearchAnswer {
        experiments: page.items.iter().map(ExperimentView::from).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

async fn update(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_text("experiment_id")?;
    let name = args.required_text("new_name")?;
    experiment::rename_experiment(&app, &actor(), bearer.token(), &id, &name).await?;
    Ok(empty())
}

async fn delete(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_text("experiment_id")?;
    experiment::set_experiment_lifecycle(&app, &actor(), bearer.token(), &id, Lifecycle::Deleted).await?;
    Ok(empty())
}

async fn restore(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_text("experiment_id")?;
    experiment::set_experiment_lifecycle(&app, &actor(), bearer.token(), &id, Lifecycle::Active).await?;
    Ok(empty())
}

async fn set_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_text("experiment_id")?;
    let tag = KeyValue { key: args.required_text("key")?, value: args.text("value")?.unwrap_or_default() };
    experiment::set_experiment_tag(&app, bearer.token(), &id, tag).await?;
    Ok(empty())
}

async fn delete_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_text("experiment_id")?;
    experiment::delete_experiment_tag(&app, bearer.token(), &id, &args.required_text("key")?).await?;
    Ok(empty())
}

/// Reads a `ViewType`.
pub(super) fn view_type(args: &Args, name: &str) -> sluice_app::Result<View> {
    Ok(match args.one_of(name, &[("ACTIVE_ONLY", 1), ("DELETED_ONLY", 2), ("ALL", 3)])? {
        Some("DELETED_ONLY") => View::DeletedOnly,
        Some("ALL") => View::All,
        _ => View::ActiveOnly,
    })
}
