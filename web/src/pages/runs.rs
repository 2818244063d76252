//! `/experiments/{id}`: the runs table. Filter, order, columns and page are in the query string.

use std::collections::HashSet;

use actix_web::{
    HttpRequest, HttpResponse,
    http::StatusCode,
    web::{Data, Path},
};
use askama::Template;
use sluice_app::{
    App, Error,
    run_search::{self, RunSearch},
    view::{
        experiments::{self, ExperimentHead},
        runs::{self as view, CATALOGUE_KEYS, CATALOGUE_RUNS, Cell, Column, KeyCatalogue},
    },
};
use sluice_domain::{state::RunStatus, tracking::Run};

use super::number;
use crate::{
    assets,
    error::PageError,
    page::{self, Frame},
    query::Query,
    show,
};

const PAGE: i64 = 50;
/// How many metrics and params are columns when none were chosen.
const DEFAULT_METRICS: usize = 5;
const DEFAULT_PARAMS: usize = 3;

#[derive(Template)]
#[template(path = "runs.html")]
struct Runs {
    frame: Frame,
    experiment: ExperimentHead,
    path: String,
    filter: String,
    error: Option<String>,
    total: i64,
    heads: Vec<Head>,
    rows: Vec<(Run, Vec<Cell>)>,
    chooser: Chooser,
    /// Hidden fields that keep the rest of the URL in each form.
    filter_others: Vec<(String, String)>,
    chooser_others: Vec<(String, String)>,
    first: Option<String>,
    next: Option<String>,
    unfiltered: String,
    public_url: String,
    catalogue_runs: i64,
    catalogue_keys: i64,
}

/// A column header, with the link that sorts by it.
struct Head {
    label: String,
    /// `min`, `max`, `param` and the like, when the label alone would be ambiguous.
    note: &'static str,
    link: Option<String>,
    /// For `aria-sort`.
    sorted: &'static str,
    right: bool,
}

/// The keys that may be columns and whether they are.
struct Chooser {
    metrics: Vec<MetricChoice>,
    params: Vec<(String, bool)>,
    tags: Vec<(String, bool)>,
    capped: bool,
}

struct MetricChoice {
    key: String,
    last: bool,
    min: bool,
    max: bool,
}

/// `GET /experiments/{id}?filter=&order_by=&col=&page=`
pub async fn table(request: HttpRequest, app: Data<App>, id: Path<String>) -> Result<HttpResponse, PageError> {
    let query = Query::parse(request.query_string());
    let experiment = experiments::get(&app, number("experiment", &id)?).await?;
    let catalogue = view::key_catalogue(&app, experiment.id).await?;
    let columns = columns(&query, &catalogue);
    let filter = query.get("filter").unwrap_or_default().trim().to_owned();

    let search = RunSearch {
        experiment_ids: vec![experiment.id],
        filter: filter.clone(),
        order_by: query.all("order_by").map(str::to_owned).collect(),
        max_results: PAGE,
        page_token: query.get("page").map(str::to_owned),
        ..RunSearch::default()
    };
    let found = match run_search::search_runs(&app, &search).await {
        Ok(page) => Ok((page, run_search::count_runs(&app, &search).await?)),
        Err(Error::Invalid { message, .. }) => Err(message),
        Err(other) => return Err(other.into()),
    };
    let (runs, total, error) = match found {
        Ok((page, total)) => (page, total, None),
        Err(message) => (sluice_app::page::Page { items: Vec::new(), next_page_token: None }, 0, Some(message)),
    };

    let path = format!("/experiments/{}", experiment.id);
    let live = runs.items.iter().filter(|run| run.info.status == RunStatus::Running).map(|run| format!("run:{}", run.info.id));
    let frame = Frame::new(&request, "experiments", experiment.name.clone()).live(live.take(100).collect::<Vec<_>>());
    let rows = runs.items.into_iter().map(|run| {
        let cells = columns.iter().map(|column| column.cell(&run)).collect();
        (run, cells)
    });
    let page = Runs {
        heads: heads(&query, &path, &columns),
        rows: rows.collect(),
        chooser: chooser(&catalogue, &columns),
        filter_others: query.others(&["filter", "page"]),
        chooser_others: query.others(&["col", "cols"]),
        first: query.get("page").map(|_| query.with("page", None).link(&path)),
        next: runs.next_page_token.map(|token| query.with("page", Some(&token)).link(&path)),
        unfiltered: query.with("filter", None).with("page", None).link(&path),
        public_url: app.settings.public_url.clone(),
        catalogue_runs: CATALOGUE_RUNS,
        catalogue_keys: CATALOGUE_KEYS,
        frame,
        experiment,
        path,
        filter,
        error,
        total,
    };
    let status = if page.error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    page::answer(status, page.frame.flash.is_some(), &page)
}

/// The chosen columns, or the first few keys when none were chosen.
fn columns(query: &Query, catalogue: &KeyCatalogue) -> Vec<Column> {
    if query.get("cols").is_some() || query.get("col").is_some() {
        let mut seen = HashSet::new();
        return query.all("col").filter_map(Column::parse).filter(|column| seen.insert(column.to_string())).take(200).collect();
    }
    let params = catalogue.params.iter().take(DEFAULT_PARAMS).cloned().map(Column::Param);
    params.chain(catalogue.metrics.iter().take(DEFAULT_METRICS).cloned().map(Column::Last)).collect()
}

/// Quotes a key for the filter language, when it must be.
fn quoted(key: &str) -> String {
    if key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') { key.to_owned() } else { format!("`{key}`") }
}

fn heads(query: &Query, path: &str, columns: &[Column]) -> Vec<Head> {
    let order = query.get("order_by").unwrap_or("start_time DESC");
    let head = |label: &str, note, field: Option<String>, first: &str, right| {
        let Some(field) = field else { return Head { label: label.to_owned(), note, link: None, sorted: "none", right } };
        let (ascending, descending) = (format!("{field} ASC"), format!("{field} DESC"));
        let (sorted, turn) = match order {
            now if now == descending => ("descending", &ascending),
            now if now == ascending => ("ascending", &descending),
            _ if first == "ASC" => ("none", &ascending),
            _ => ("none", &descending),
        };
        let link = query.with("order_by", Some(turn)).with("page", None).link(path);
        Head { label: label.to_owned(), note, link: Some(link), sorted, right }
    };
    let mut heads = vec![
        head("Status", "", Some("attributes.status".to_owned()), "ASC", false),
        head("Run", "", Some("attributes.run_name".to_owned()), "ASC", false),
        head("Started", "", Some("start_time".to_owned()), "DESC", false),
        head("Duration", "", None, "", true),
        head("Commit", "", None, "", false),
    ];
    heads.extend(columns.iter().map(|column| match column {
        Column::Last(key) => head(key, "", Some(format!("metrics.{}", quoted(key))), "DESC", true),
        Column::Min(key) => head(key, "min", None, "", true),
        Column::Max(key) => head(key, "max", None, "", true),
        Column::Param(key) => head(key, "", Some(format!("params.{}", quoted(key))), "ASC", true),
        Column::Tag(key) => head(key, "tag", Some(format!("tags.{}", quoted(key))), "ASC", false),
    }));
    heads
}

fn chooser(catalogue: &KeyCatalogue, columns: &[Column]) -> Chooser {
    let on = |column: Column| columns.contains(&column);
    // a chosen key that recent runs lack stays choosable
    let merged = |keys: &[String], kinds: &[&str]| {
        let mut keys = keys.to_vec();
        for column in columns.iter().filter(|column| kinds.contains(&column.kind())) {
            if !keys.iter().any(|key| key == column.key()) {
                keys.push(column.key().to_owned());
            }
        }
        keys
    };
    let metrics = merged(&catalogue.metrics, &["metrics", "min", "max"]).into_iter();
    let params = merged(&catalogue.params, &["params"]).into_iter();
    let tags = merged(&catalogue.tags, &["tags"]).into_iter();
    let most = CATALOGUE_KEYS as usize;
    Chooser {
        metrics: metrics
            .map(|key| MetricChoice {
                last: on(Column::Last(key.clone())),
                min: on(Column::Min(key.clone())),
                max: on(Column::Max(key.clone())),
                key,
            })
            .collect(),
        params: params.map(|key| (key.clone(), on(Column::Param(key)))).collect(),
        tags: tags.map(|key| (key.clone(), on(Column::Tag(key)))).collect(),
        capped: [&catalogue.metrics, &catalogue.params, &catalogue.tags].iter().any(|keys| keys.len() >= most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_turns_the_order_around() {
        let query = Query::parse("order_by=metrics.loss+DESC&col=metrics.loss&page=abc");
        let heads = heads(&query, "/experiments/1", &columns(&query, &KeyCatalogue::default()));
        let loss = heads.last().unwrap();
        assert_eq!(loss.sorted, "descending");
        assert_eq!(loss.link.as_deref(), Some("/experiments/1?col=metrics.loss&order_by=metrics.loss%20ASC"));
        assert_eq!(heads[2].sorted, "none");
    }

    #[test]
    fn keys_are_quoted_when_they_must_be() {
        assert_eq!(quoted("val_loss"), "val_loss");
        assert_eq!(quoted("val/loss"), "`val/loss`");
    }

    #[test]
    fn nothing_chosen_is_not_the_default() {
        let catalogue = KeyCatalogue { metrics: vec!["loss".to_owned()], ..KeyCatalogue::default() };
        assert_eq!(columns(&Query::parse(""), &catalogue).len(), 1);
        assert!(columns(&Query::parse("cols=1"), &catalogue).is_empty());
    }
}
