//! `/runs/{run_id}/series`: curves for charts.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Data, Path},
};
use serde::Serialize;
use sluice_app::{
    App, Error,
    metric::{XAxis, get_curves},
};

use super::Answer;

const DEFAULT_BUCKETS: i64 = 1000;

pub fn configure(config: &mut web::ServiceConfig) {
    config.route("/runs/{run_id}/series", web::get().to(get));
}

/// A curve; a value that is not finite is null.
#[derive(Serialize)]
struct Curve {
    x: Vec<f64>,
    min: Vec<Option<f64>>,
    max: Vec<Option<f64>>,
    last: Vec<Option<f64>>,
    n: Vec<u64>,
    total_points: u64,
    bucketed: bool,
}

async fn get(app: Data<App>, run_id: Path<String>, request: HttpRequest) -> Answer {
    let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
        .map_err(|error| Error::invalid("query", format!("the query string is malformed: {error}")))?
        .into_inner();
    let mut keys: Vec<String> = Vec::new();
    let mut buckets = DEFAULT_BUCKETS;
    let mut axis = XAxis::Step;
    for (name, value) in pairs {
        match name.as_str() {
            "key" if value.contains('\0') => return Err(Error::invalid("key", "key holds a NUL character").into()),
            "key" if keys.contains(&value) => {}
            "key" => keys.push(value),
            "px" => {
                buckets = value.parse().map_err(|_| Error::invalid("px", format!("px {value:?} must be a whole number")))?;
            }
            "x" if value == "step" => axis = XAxis::Step,
            "x" if value == "time" => axis = XAxis::Time,
            "x" => return Err(Error::invalid("x", format!("x {value:?} must be step or time")).into()),
            other => return Err(Error::invalid(other, format!("unknown parameter {other}")).into()),
        }
    }
    let curves = get_curves(&app, &run_id, &keys, buckets, axis).await?;
    let series: serde_json::Map<String, serde_json::Value> = curves
        .into_iter()
        .map(|(key, buckets)| {
            let finite = |values: Vec<f64>| values.into_iter().map(|value| value.is_finite().then_some(value)).collect();
            let curve = Curve {
                x: buckets.x,
                min: finite(buckets.min),
                max: finite(buckets.max),
                last: finite(buckets.last),
                n: buckets.n,
                total_points: buckets.total_points,
                bucketed: buckets.bucketed,
            };
            (key, serde_json::json!(curve))
        })
        .collect();
    Ok(HttpResponse::Ok().json(serde_json::json!({ "series": series })))
}
