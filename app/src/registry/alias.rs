//! Aliases, as users and clients set them. Promotions move them by compare-and-swap instead.

use serde_json::json;
use sluice_domain::registry::{ModelVersion, check_alias};
use sluice_store::{
    model_alias::{self, Why},
    model_version,
};

use super::{
    lock_model, no_model, record,
    version::{load, no_version},
};
use crate::{
    App, Error, Result,
    change::{Caller, Change},
};

/// Gives an alias to a version, whoever held it.
///
/// # Errors
/// When the version does not exist or the alias breaks a rule.
pub async fn set_alias(app: &App, caller: &Caller, name: &str, alias: &str, version: i32) -> Result<()> {
    check_alias(alias).map_err(|rule| Error::invalid("alias", rule))?;
    let mut change = Change::begin(app, caller).await?;
    let (actor, now) = (change.actor.clone(), change.now);
    lock_model(&mut change, name).await?;
    let holder = model_alias::find_holder(change.db(), name, alias).await?;
    let why = Why { gate_record_id: None, reason: "set over the API", actor: &actor, at: now };
    match model_alias::move_alias(change.db(), name, alias, holder, version, why).await {
        Err(sluice_store::Error::NotFound { .. }) => return Err(no_version(name, version)),
        // the model is locked: the holder cannot have changed
        other => other?.map_err(|_| Error::Conflict(format!("Alias {alias} of model {name} was moved meanwhile.")))?,
    }
    if holder != Some(version) {
        let detail = json!({ "alias": alias, "from": holder, "to": version, "reason": why.reason });
        record(&mut change, "alias.moved", name, &detail).await?;
    }
    change.commit().await
}

/// Takes an alias away; one that is not there is fine.
///
/// # Errors
/// When the model does not exist.
pub async fn delete_alias(app: &App, caller: &Caller, name: &str, alias: &str) -> Result<()> {
    let mut change = Change::begin(app, caller).await?;
    let (actor, now) = (change.actor.clone(), change.now);
    let row = lock_model(&mut change, name).await?;
    let why = Why { gate_record_id: None, reason: "removed over the API", actor: &actor, at: now };
    if let Some(holder) = model_alias::delete_alias(change.db(), row.id, name, alias, why).await? {
        let detail = json!({ "alias": alias, "from": holder, "to": null, "reason": why.reason });
        record(&mut change, "alias.moved", name, &detail).await?;
    }
    change.commit().await
}

/// The version that holds an alias; `latest` is the highest version.
///
/// # Errors
/// When the model does not exist, or nothing holds the alias: MLflow's clients know that as a bad parameter.
pub async fn get_version_by_alias(app: &App, name: &str, alias: &str) -> Result<ModelVersion> {
    let mut db = app.connection().await?;
    let number = if alias.eq_ignore_ascii_case("latest") {
        let highest = model_version::find_highest_version(&mut db, name).await?;
        highest.ok_or_else(|| Error::NotFound(format!("Latest version not found for model {name}.")))?
    } else {
        let holder = model_alias::find_holder(&mut db, name, alias).await?;
        match holder {
            Some(holder) => holder,
            None if sluice_store::registered_model::find_registered_model(&mut db, name).await?.is_none() => return Err(no_model(name)),
            None => return Err(Error::invalid("alias", format!("Registered model alias {alias} not found."))),
        }
    };
    load(&mut db, name, number).await
}
