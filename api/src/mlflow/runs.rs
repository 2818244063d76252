//! `runs/…` except what logs to a run.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use sluice_app::{
    App, Error,
    run::{self, NewRun, RunChanges, RunSearch},
};
use sluice_domain::state::{Lifecycle, RunStatus};

use super::{
    Answer, Args, Bearer, actor, empty,
    experiments::view_type,
    wire::{Links, RunInfoView, RunView, read_key_values},
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/runs/create", web::post().to(create))
        .route("/runs/get", web::get().to(get))
        .route("/runs/update", web::post().to(update))
        .route("/runs/delete", web::post().to(delete))
        .route("/runs/restore", web::post().to(restore))
        .route("/runs/search", web::post().to(search))
        .route("/runs/delete-tag", web::post().to(delete_tag))
        .route("/runs/log-model", web::post().to(log_model));
}

async fn create(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let experiment_id = args.required_text("experiment_id")?;
    let new = NewRun {
        user_id: args.text("user_id")?.unwrap_or_default(),
        name: args.text("run_name")?.unwrap_or_default(),
        start_time_ms: args.integer("start_time")?,
        tags: read_key_values(&args, "tags")?,
    };
    let run = run::create_run(&app, bearer.token(), &experiment_id, new).await?;
    Ok(HttpResponse::Ok().json(json!({ "run": RunView::new(&run, Links::None) })))
}

async fn get(app: web::Data<App>, args: Args) -> Answer {
    let run = run::get_run(&app, &args.required_run_id()?).await?;
    Ok(HttpResponse::Ok().json(json!({ "run": RunView::new(&run, Links::Both) })))
}

async fn update(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_run_id()?;
    let status = args.one_of("status", &[("RUNNING", 1), ("SCHEDULED", 2), ("FINISHED", 3), ("FAILED", 4), ("KILLED", 5)])?;
    let changes = RunChanges {
        status: status
            .map(str::parse::<RunStatus>)
            .transpose()
            .map_err(|error| Error::invalid("status", format!("Invalid value for parameter 'status' supplied: {error}")))?,
        end_time_ms: args.integer("end_time")?,
        name: args.text("run_name")?,
    };
    let info = run::update_run(&app, bearer.token(), &id, changes).await?;
    Ok(HttpResponse::Ok().json(json!({ "run_info": RunInfoView::from(&info) })))
}

async fn delete(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    run::set_run_lifecycle(&app, &actor(), bearer.token(), &args.required_run_id()?, Lifecycle::Deleted).await?;
    Ok(empty())
}

async fn restore(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    run::set_run_lifecycle(&app, &actor(), bearer.token(), &args.required_run_id()?, Lifecycle::Active).await?;
    Ok(empty())
}

#[derive(Serialize)]
struct SearchAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<RunView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn search(app: web::Data<App>, args: Args) -> Answer {
    let mut experiment_ids = Vec::new();
    for id in args.texts("experiment_ids")? {
        match id.parse::<i32>() {
            Ok(id) => experiment_ids.push(id),
            // an integer that no experiment can have is an unknown one
            Err(_) if id.parse::<i128>().is_ok() => {}
            Err(_) => {
                let message = format!("Invalid experiment ID '{id}'. Experiment ID must be a valid integer.");
                return Err(Error::invalid("experiment_ids", message).into());
            }
        }
    }
    let search = RunSearch {
        experiment_ids,
        filter: args.text("filter")?.unwrap_or_default(),
        view: view_type(&args, "run_view_type")?,
        order_by: args.texts("order_by")?,
        max_results: args.integer("max_results")?.unwrap_or(1000),
        page_token: args.text("page_token")?.filter(|token| !token.is_empty()),
    };
    let page = run::search_runs(&app, &search).await?;
    Ok(HttpResponse::Ok().json(SearchAnswer {
        runs: page.items.iter().map(|run| RunView::new(run, Links::Outputs)).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

async fn delete_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_run_id()?;
    run::delete_run_tag(&app, bearer.token(), &id, &args.required_text("key")?).await?;
    Ok(empty())
}

async fn log_model(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let id = args.required_run_id()?;
    run::log_legacy_model(&app, bearer.token(), &id, &args.required_text("model_json")?).await?;
    Ok(empty())
}
