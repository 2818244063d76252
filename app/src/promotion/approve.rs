//! Approving a version that the gate could not compare.

use serde_json::json;
use sluice_domain::state::PromotionStatus;
use sluice_store::{
    approval::{self, ApprovalRow},
    audit::insert_audit,
    model_view,
    notify::notify,
    promotion,
};

use super::{
    judge::advance,
    view::{Promotion, from_text},
};
use crate::{Actor, App, Error, Result, context::commit};

const MAX_COMMENT_BYTES: usize = 4096;

/// Records that `actor` approves a version for an alias and judges it again at once. An approval answers a
/// missing baseline; it never overrides a check that failed. Approving twice is approving once.
///
/// # Errors
/// When there is no such version or promotion, or its state takes no approval.
pub async fn approve(app: &App, actor: &Actor, model: &str, version: i32, alias: &str, comment: &str) -> Result<Promotion> {
    if comment.len() > MAX_COMMENT_BYTES {
        return Err(Error::invalid("comment", format!("comment has {} bytes, at most {MAX_COMMENT_BYTES} are allowed", comment.len())));
    }
    let mut tx = app.begin().await?;
    let found = model_view::find_model(&mut tx, model).await?.ok_or_else(|| Error::NotFound(format!("model {model} not found")))?;
    if model_view::find_version(&mut tx, found.id, version).await?.is_none() {
        return Err(Error::NotFound(format!("version {version} of model {model} not found")));
    }
    let promotions = promotion::list_promotions_of_version(&mut tx, model, version).await?;
    let Some(id) = promotions.iter().find(|row| row.alias == alias).map(|row| row.id) else {
        return Err(Error::NotFound(format!("no promotion asks for alias {alias} for version {version} of model {model}")));
    };
    let row = promotion::lock_promotion(&mut tx, id).await?;
    let now = app.clock.now();
    let approval = ApprovalRow { alias: alias.to_owned(), actor: actor.0.clone(), comment: comment.to_owned(), created_at: now };
    match from_text::<PromotionStatus>("promotion status", &row.status)? {
        PromotionStatus::WaitingApproval | PromotionStatus::Waiting => {}
        PromotionStatus::Promoted => {
            let known = approval::list_approvals(&mut tx, model, version, Some(alias)).await?;
            if known.iter().any(|approval| approval.actor == actor.0) {
                return Promotion::from_row(&mut tx, row).await;
            }
            return Err(Error::Conflict(format!("version {version} of model {model} was promoted to {alias} already")));
        }
        PromotionStatus::Blocked | PromotionStatus::Error | PromotionStatus::Cancelled => {
            return Err(Error::Conflict(format!(
                "version {version} of model {model} was refused and an approval does not override that: {}",
                row.reason
            )));
        }
    }
    if approval::insert_approval(&mut tx, model, version, &approval).await? {
        let detail = json!({ "version": version, "alias": alias, "comment": comment, "promotion": id });
        insert_audit(&mut tx, now, &actor.0, "approval.recorded", &format!("model:{model}"), &detail).await?;
    }
    // due again: if this server dies here, the next tick judges it
    promotion::update_promotion_state(&mut tx, id, PromotionStatus::Waiting.as_str(), "approved: the gate is evaluated again", None, None)
        .await?;
    notify(&mut tx, &format!("promotion:{id}")).await?;
    commit(tx).await?;
    advance(app, id).await?;
    let mut db = app.connection().await?;
    let row = promotion::get_promotion(&mut db, id).await?;
    Promotion::from_row(&mut db, row).await
}
