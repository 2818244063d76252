//! `logged-models…`, and what runs read and made.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use sluice_app::{
    App, Error, Result,
    artifact::key_of_uri,
    logged_model::{self, CreateLoggedModel, DatasetFilter, ModelOrder, Search},
    run_io,
};
use sluice_domain::{
    logged_model::{LoggedModel, LoggedModelStatus},
    tracking::{DatasetInput, ModelOutput},
};

use super::{
    Answer, Args, Bearer,
    artifacts::{files_json, parse_run_id},
    caller, empty,
    file_answer::send_file,
    registry_wire::LoggedModelView,
    wire::read_key_values,
};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/logged-models", web::post().to(create))
        .route("/logged-models/search", web::post().to(search))
        .service(
            web::resource("/logged-models/{model_id}")
                .route(web::get().to(get))
                .route(web::patch().to(finish))
                .route(web::delete().to(delete)),
        )
        .route("/logged-models/{model_id}/tags", web::patch().to(set_tags))
        .route("/logged-models/{model_id}/tags/{key:.*}", web::delete().to(delete_tag))
        .route("/logged-models/{model_id}/params", web::post().to(add_params))
        .route("/logged-models/{model_id}/artifacts/directories", web::get().to(list_files))
        .route("/logged-models/{model_id}/artifacts/files", web::get().to(download))
        .route("/runs/log-inputs", web::post().to(log_inputs))
        .route("/runs/outputs", web::post().to(log_outputs))
        .route("/experiments/search-datasets", web::post().to(search_datasets));
}

fn model_answer(model: &LoggedModel) -> HttpResponse {
    HttpResponse::Ok().json(json!({ "model": LoggedModelView::from(model) }))
}

/// The id of an experiment as text or number.
fn experiment_id(text: &str) -> Result<i32> {
    text.parse().map_err(|_| {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            Error::NotFound(format!("No Experiment with id={text} exists"))
        } else {
            Error::invalid("experiment_id", format!("Invalid experiment ID '{text}'. Experiment ID must be a valid integer."))
        }
    })
}

async fn create(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let source = args.text("source_run_id")?.filter(|id| !id.is_empty());
    let new = CreateLoggedModel {
        experiment_id: experiment_id(&args.required_text("experiment_id")?)?,
        name: args.text("name")?.unwrap_or_default(),
        model_type: args.text("model_type")?.unwrap_or_default(),
        source_run_id: source.as_deref().map(parse_run_id).transpose()?,
        params: read_key_values(&args, "params")?,
        tags: read_key_values(&args, "tags")?,
    };
    Ok(model_answer(&logged_model::create_model(&app, &caller(bearer), new).await?))
}

async fn get(app: web::Data<App>, id: web::Path<String>, args: Args) -> Answer {
    let with_deleted = args.boolean("allow_deleted")?.unwrap_or(false);
    Ok(model_answer(&logged_model::get_model(&app, &id, with_deleted).await?))
}

async fn finish(app: web::Data<App>, bearer: Bearer, id: web::Path<String>, args: Args) -> Answer {
    let names = LoggedModelStatus::ALL.map(LoggedModelStatus::as_wire);
    let wire = args.one_of("status", &[(names[0], 1), (names[1], 2), (names[2], 3)])?.ok_or_else(|| args.missing("status"))?;
    let status = LoggedModelStatus::ALL.into_iter().find(|status| status.as_wire() == wire).ok_or_else(|| args.missing("status"))?;
    Ok(model_answer(&logged_model::finish_model(&app, &caller(bearer), &id, status).await?))
}

async fn delete(app: web::Data<App>, bearer: Bearer, id: web::Path<String>) -> Answer {
    logged_model::delete_model(&app, &caller(bearer), &id).await?;
    Ok(empty())
}

async fn set_tags(app: web::Data<App>, bearer: Bearer, id: web::Path<String>, args: Args) -> Answer {
    logged_model::set_tags(&app, &caller(bearer), &id, read_key_values(&args, "tags")?).await?;
    Ok(empty())
}

async fn delete_tag(app: web::Data<App>, bearer: Bearer, path: web::Path<(String, String)>) -> Answer {
    let (id, key) = path.into_inner();
    logged_model::delete_tag(&app, &caller(bearer), &id, &key).await?;
    Ok(empty())
}

async fn add_params(app: web::Data<App>, bearer: Bearer, id: web::Path<String>, args: Args) -> Answer {
    logged_model::add_params(&app, &caller(bearer), &id, read_key_values(&args, "params")?).await?;
    Ok(empty())
}

#[derive(Serialize)]
struct SearchAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<LoggedModelView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn search(app: web::Data<App>, args: Args) -> Answer {
    let experiment_ids = args.texts("experiment_ids")?;
    if experiment_ids.is_empty() {
        return Err(args.missing("experiment_ids").into());
    }
    let search = Search {
        experiment_ids: experiment_ids.iter().map(|id| experiment_id(id)).collect::<Result<_>>()?,
        filter: args.text("filter")?.unwrap_or_default(),
        datasets: args
            .items("datasets")?
            .iter()
            .map(|item| read_dataset(item).and_then(|set| set.ok_or_else(|| item.missing("dataset_name"))))
            .collect::<Result<_>>()?,
        order_by: args
            .items("order_by")?
            .iter()
            .map(|item| {
                Ok(ModelOrder {
                    field_name: item.required_text("field_name")?,
                    ascending: item.boolean("ascending")?.unwrap_or(true),
                    dataset: read_dataset(item)?,
                })
            })
            .collect::<Result<_>>()?,
        max_results: args.integer("max_results")?.unwrap_or(50),
        page_token: args.text("page_token")?,
    };
    let page = logged_model::search_models(&app, &search).await?;
    Ok(HttpResponse::Ok().json(SearchAnswer {
        models: page.items.iter().map(LoggedModelView::from).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

fn read_dataset(item: &Args) -> Result<Option<DatasetFilter>> {
    let name = item.text("dataset_name")?.filter(|name| !name.is_empty());
    let digest = item.text("dataset_digest")?.filter(|digest| !digest.is_empty());
    Ok(name.map(|name| DatasetFilter { name, digest }))
}

async fn list_files(app: web::Data<App>, id: web::Path<String>, args: Args) -> Answer {
    let path = args.text("artifact_directory_path")?.unwrap_or_default();
    let (root_uri, entries) = logged_model::list_files(&app, &id, &path).await?;
    let mut body = files_json(&entries);
    body.insert("root_uri".to_owned(), root_uri.into());
    Ok(HttpResponse::Ok().json(body))
}

async fn download(app: web::Data<App>, request: HttpRequest, id: web::Path<String>, args: Args) -> Answer {
    let path = args.required_text("artifact_file_path")?;
    let model = logged_model::get_model(&app, &id, false).await?;
    let key = key_of_uri(&model.artifact_uri)?.join(&path).map_err(Error::from)?;
    Ok(send_file(&app, &request, &key).await?)
}

async fn log_inputs(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run = parse_run_id(&args.required_run_id()?)?;
    let datasets = args.items("datasets")?.iter().map(read_input).collect::<Result<Vec<_>>>()?;
    let models = args.items("models")?.iter().map(|model| model.required_text("model_id")).collect::<Result<Vec<_>>>()?;
    run_io::log_inputs(&app, &caller(bearer), run, &datasets, &models).await?;
    Ok(empty())
}

fn read_input(item: &Args) -> Result<DatasetInput> {
    let dataset = item.object("dataset")?.ok_or_else(|| item.missing("dataset"))?;
    Ok(DatasetInput {
        name: dataset.required_text("name")?,
        digest: dataset.required_text("digest")?,
        source_type: dataset.required_text("source_type")?,
        source: dataset.required_text("source")?,
        schema: dataset.text("schema")?,
        profile: dataset.text("profile")?,
        tags: read_key_values(item, "tags")?,
    })
}

async fn log_outputs(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run = parse_run_id(&args.required_run_id()?)?;
    let models = args
        .items("models")?
        .iter()
        .map(|model| Ok(ModelOutput { model_id: model.required_text("model_id")?, step: model.integer("step")?.unwrap_or(0) }))
        .collect::<Result<Vec<_>>>()?;
    run_io::log_outputs(&app, &caller(bearer), run, &models).await?;
    Ok(empty())
}

async fn search_datasets(app: web::Data<App>, args: Args) -> Answer {
    let ids = args.texts("experiment_ids")?.iter().map(|id| experiment_id(id)).collect::<Result<Vec<_>>>()?;
    let found = run_io::list_datasets(&app, &ids).await?;
    let summaries: Vec<_> = found
        .iter()
        .map(|set| {
            let mut summary = json!({ "experiment_id": set.experiment_id.to_string(), "name": set.name, "digest": set.digest });
            if let Some(context) = &set.context {
                summary["context"] = context.as_str().into();
            }
            summary
        })
        .collect();
    Ok(HttpResponse::Ok().json(if summaries.is_empty() { json!({}) } else { json!({ "dataset_summaries": summaries }) }))
}
