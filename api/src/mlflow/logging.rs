//! What logs to a run: `runs/log-metric`, `log-parameter`, `log-batch`, `set-tag`.

use actix_web::web;
use sluice_app::{
    App, Result,
    logging::{self, Batch, LoggedMetric},
};
use sluice_domain::tracking::{KeyValue, MetricPoint};

use super::{Answer, Args, Bearer, empty, wire::read_key_values};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/runs/log-metric", web::post().to(log_metric))
        .route("/runs/log-parameter", web::post().to(log_parameter))
        .route("/runs/log-batch", web::post().to(log_batch))
        .route("/runs/set-tag", web::post().to(set_tag));
}

async fn log_metric(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    logging::log_metric(&app, bearer.token(), &run_id, read_metric(&args)?).await?;
    Ok(empty())
}

async fn log_parameter(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    logging::log_param(&app, bearer.token(), &run_id, read_key_value(&args)?).await?;
    Ok(empty())
}

async fn log_batch(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    let batch = Batch {
        metrics: args.items("metrics")?.iter().map(read_metric).collect::<Result<_>>()?,
        params: read_key_values(&args, "params")?,
        tags: read_key_values(&args, "tags")?,
    };
    logging::log_batch(&app, bearer.token(), &run_id, batch).await?;
    Ok(empty())
}

async fn set_tag(app: web::Data<App>, bearer: Bearer, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    logging::set_tag(&app, bearer.token(), &run_id, read_key_value(&args)?).await?;
    Ok(empty())
}

fn read_key_value(args: &Args) -> Result<KeyValue> {
    Ok(KeyValue { key: args.required_text("key")?, value: args.text("value")?.unwrap_or_default() })
}

fn read_metric(args: &Args) -> Result<LoggedMetric> {
    Ok(LoggedMetric {
        point: MetricPoint {
            key: args.required_text("key")?,
            value: args.float("value")?.ok_or_else(|| args.missing("value"))?,
            timestamp_ms: args.required_integer("timestamp")?,
            step: args.integer("step")?.unwrap_or(0),
        },
        model_id: args.text("model_id")?.filter(|id| !id.is_empty()),
        dataset_name: args.text("dataset_name")?.unwrap_or_default(),
        dataset_digest: args.text("dataset_digest")?.unwrap_or_default(),
    })
}
