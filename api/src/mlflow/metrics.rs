//! `metrics/…`: history and samples.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use sluice_app::{App, metric};

use super::{Answer, Args, wire::MetricView};

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/metrics/get-history", web::get().to(get_history))
        .route("/metrics/get-history-bulk-interval", web::get().to(get_history_bulk_interval));
}

#[derive(Serialize)]
struct MetricsAnswer<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<&'a str>,
}

async fn get_history(app: web::Data<App>, args: Args) -> Answer {
    let run_id = args.required_run_id()?;
    let key = args.required_text("metric_key")?;
    let token = args.text("page_token")?.filter(|token| !token.is_empty());
    let page = metric::get_history(&app, &run_id, &key, args.integer("max_results")?, token.as_deref()).await?;
    Ok(HttpResponse::Ok().json(MetricsAnswer {
        metrics: page.items.iter().map(MetricView::from).collect(),
        next_page_token: page.next_page_token.as_deref(),
    }))
}

async fn get_history_bulk_interval(app: web::Data<App>, args: Args) -> Answer {
    let run_ids = args.texts("run_ids")?;
    if run_ids.is_empty() {
        return Err(args.missing("run_ids").into());
    }
    let key = args.required_text("metric_key")?;
    let (start, end) = (args.integer("start_step")?, args.integer("end_step")?);
    let points = metric::sample_history(&app, &run_ids, &key, start, end, args.integer("max_results")?).await?;
    Ok(HttpResponse::Ok().json(MetricsAnswer {
        metrics: points.iter().map(|(run_id, point)| MetricView::from(point).of_run(run_id.to_string())).collect(),
        next_page_token: None,
    }))
}
