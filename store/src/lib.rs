//! The only crate with SQL. One module per aggregate; functions take a connection, `app` owns transactions.
//!
//! Names: `find_x` → `Option`, `get_x` → [`Error::NotFound`], `list_x` → page, `insert_x`, `update_x`,
//! `delete_x`, `claim_x`, `upsert_x`.

pub mod approval;
pub mod artifact;
pub mod audit;
pub mod deployment;
mod error;
pub mod gate_input;
pub mod gate_record;
pub mod model_view;
pub mod notify;
pub mod pool;
pub mod promotion;

pub use error::{Error, Result};
pub use sqlx::{PgConnection, PgPool, Postgres, Transaction};
