//! The only crate with SQL. One module per aggregate; functions take a connection, `app` owns transactions.
//!
//! Names: `find_x` → `Option`, `get_x` → [`Error::NotFound`], `list_x` → page, `insert_x`, `update_x`,
//! `delete_x`, `claim_x`, `upsert_x`.

pub mod approval;
pub mod artifact;
pub mod audit;
pub mod deployment;
mod error;
pub mod experiment;
pub mod experiment_search;
pub mod fence;
pub mod gate_input;
pub mod gate_record;
pub mod job;
pub mod job_attempt;
pub mod job_log;
pub mod job_run;
pub mod logged_model;
pub mod logged_model_search;
pub mod metric;
pub mod model_alias;
pub mod model_version;
pub mod model_view;
pub mod notify;
pub mod pipeline;
pub mod pool;
pub mod promotion;
pub mod registered_model;
pub mod registry_search;
pub mod repository;
pub mod run;
pub mod run_io;
pub mod run_search;
pub mod runner;
pub mod search_sql;
pub mod text;

pub use error::{Error, Result};
pub use sqlx::{PgConnection, PgPool, Postgres, Transaction};

/// Reads a stored text into its type.
pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(what: &'static str, text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| Error::Malformed { what, message: error.to_string() })
}

/// Keys and values as the two arrays that UNNEST takes.
pub(crate) fn columns(pairs: &[sluice_domain::tracking::KeyValue]) -> (Vec<String>, Vec<String>) {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).unzip()
}

// read models of the web pages
pub mod view;
