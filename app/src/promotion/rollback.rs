//! Rolling back: the alias and what is deployed return to the version before, together.

use std::time::Duration;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::json;
use sluice_domain::state::DeploymentStatus;
use sluice_store::{
    PgConnection,
    audit::insert_audit,
    deployment::{self, NewDeployment},
    gate_record,
    model_alias::{self, Why},
    model_view,
    promotion::{self, AliasMove},
};

use crate::{Actor, App, Error, Result, context::commit, deployment::Deployment};

/// The reason of an alias move that is a rollback. Reading the history depends on it.
pub(crate) const ROLLBACK: &str = "rollback";

/// How long a caller waits for the deployment of the version before.
const WAIT: Duration = Duration::from_secs(90);

/// What a rollback did.
#[derive(Debug, Clone, Serialize)]
pub struct RolledBack {
    pub model: String,
    pub alias: String,
    pub from_version: i32,
    pub to_version: i32,
    /// `None`: the model is not deployed anywhere, only the alias moved.
    pub deployment: Option<Deployment>,
}

/// Returns an alias to its previous holder. Where the model is deployed, that version's gated bytes are
/// deployed first; the alias moves in the transaction in which they start to serve, or not at all.
///
/// # Errors
/// [`Error::Conflict`] when there is nothing to return to, or the version before cannot be deployed.
pub async fn rollback(app: &App, actor: &Actor, model: &str, alias: &str, environment: Option<&str>) -> Result<RolledBack> {
    let mut notices = app.notices.subscribe();
    let mut tx = app.begin().await?;
    let found = model_view::find_model(&mut tx, model).await?.ok_or_else(|| Error::NotFound(format!("model {model} not found")))?;
    let Some(from) = model_alias::find_holder(&mut tx, model, alias).await? else {
        return Err(Error::Conflict(format!("no version of model {model} holds alias {alias}")));
    };
    let versions: Vec<_> = model_view::list_versions(&mut tx, found.id).await?.into_iter().map(|row| row.version).collect();
    let moves = promotion::list_alias_moves(&mut tx, model, alias).await?;
    let Some(to) = previous_holder(&moves, from, &versions) else {
        return Err(Error::Conflict(format!(
            "nothing to roll back to: no version of model {model} held alias {alias} before version {from}"
        )));
    };
    let now = app.clock.now();
    let Some(environment) = choose_environment(&mut tx, model, environment).await? else {
        let gated = gate_record::find_gated_artifact(&mut tx, model, to, alias).await?;
        let gate_record_id = gated.map(|gated| gated.gate_record_id);
        move_back(&mut tx, model, alias, (from, to), Why { gate_record_id, reason: ROLLBACK, actor: &actor.0, at: now }).await?;
        commit(tx).await?;
        return Ok(RolledBack { model: model.to_owned(), alias: alias.to_owned(), from_version: from, to_version: to, deployment: None });
    };
    let Some(gated) = gate_record::find_gated_artifact(&mut tx, model, to, alias).await? else {
        return Err(Error::Conflict(format!("version {to} of model {model} has no file that passed the gate of alias {alias}")));
    };
    let new = NewDeployment {
        environment: &environment,
        model,
        version: to,
        artifact_uri: &gated.uri,
        artifact_sha256: &gated.sha256,
        gate_record_id: gated.gate_record_id,
        rollback: Some((alias, from)),
        actor: &actor.0,
        at: now,
    };
    let id = crate::deployment::request(&mut tx, &new).await?;
    commit(tx).await?;

    let topic = format!("deployment:{id}");
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let deployment = crate::deployment::get_deployment(app, id).await?;
        match deployment.status {
            DeploymentStatus::Serving | DeploymentStatus::Superseded => {
                return Ok(RolledBack {
                    model: model.to_owned(),
                    alias: alias.to_owned(),
                    from_version: from,
                    to_version: to,
                    deployment: Some(deployment),
                });
            }
            DeploymentStatus::Failed => {
                return Err(Error::Conflict(format!(
                    "version {to} could not be deployed, so version {from} keeps alias {alias}: {}",
                    deployment.message
                )));
            }
            DeploymentStatus::Starting if tokio::time::Instant::now() >= deadline => {
                return Err(Error::Unavailable(anyhow!("rollback: deployment {id} is still starting after {} s", WAIT.as_secs())));
            }
            DeploymentStatus::Starting => {}
        }
        tokio::select! {
            () = async { while notices.recv().await.is_ok_and(|notice| notice != topic) {} } => {}
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}

/// The environment to deploy to: the named one, or the only one in which the model is live.
async fn choose_environment(db: &mut PgConnection, model: &str, named: Option<&str>) -> Result<Option<String>> {
    let mut live = deployment::list_environments(db, model).await?;
    match named {
        Some(named) if live.iter().any(|environment| environment == named) => Ok(Some(named.to_owned())),
        Some(named) => Err(Error::Conflict(format!("model {model} is not deployed in {named}"))),
        None if live.len() > 1 => Err(Error::invalid("environment", format!("environment must be one of {}", live.join(", ")))),
        None => Ok(live.pop()),
    }
}

/// Moves an alias back from one version to another, with the audit rows of it.
///
/// # Errors
/// [`Error::Conflict`] when another version holds it by now, or the one to return to is gone.
pub(crate) async fn move_back(db: &mut PgConnection, model: &str, alias: &str, (from, to): (i32, i32), why: Why<'_>) -> Result<()> {
    match model_alias::move_alias(db, model, alias, Some(from), to, why).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return Err(Error::Conflict(format!("version {from} does not hold alias {alias} any more"))),
        Err(sluice_store::Error::NotFound { .. }) => return Err(Error::Conflict(format!("version {to} of model {model} was deleted"))),
        Err(error) => return Err(error.into()),
    }
    let subject = format!("model:{model}");
    let detail = json!({ "alias": alias, "from": from, "to": to, "gate_record": why.gate_record_id, "reason": why.reason });
    insert_audit(db, why.at, why.actor, "alias.moved", &subject, &detail).await?;
    insert_audit(db, why.at, why.actor, ROLLBACK, &subject, &detail).await?;
    Ok(())
}

/// The version that held the alias before `holder`. A rollback takes the version that it left out of the
/// line for good, so that rolling back twice goes back two versions and never to the one that was left.
fn previous_holder(moves: &[AliasMove], holder: i32, existing: &[i32]) -> Option<i32> {
    let mut line: Vec<i32> = Vec::new();
    for step in moves {
        if step.reason == ROLLBACK {
            while line.last().is_some_and(|top| Some(*top) != step.to_version) {
                line.pop();
            }
        }
        if let Some(to) = step.to_version
            && line.last() != Some(&to)
        {
            line.push(to);
        }
    }
    if line.last() == Some(&holder) {
        line.pop();
    }
    line.into_iter().rev().find(|version| *version != holder && existing.contains(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: Option<i32>, to: Option<i32>, reason: &str) -> AliasMove {
        let moved_at = chrono::DateTime::UNIX_EPOCH;
        AliasMove { from_version: from, to_version: to, gate_record_id: None, reason: reason.to_owned(), actor: String::new(), moved_at }
    }

    #[test]
    fn rolling_back_twice_goes_back_two_versions() {
        let mut moves = vec![step(None, Some(1), "gate"), step(Some(1), Some(2), "gate"), step(Some(2), Some(4), "gate")];
        assert_eq!(previous_holder(&moves, 4, &[1, 2, 3, 4]), Some(2));
        moves.push(step(Some(4), Some(2), ROLLBACK));
        assert_eq!(previous_holder(&moves, 2, &[1, 2, 3, 4]), Some(1));
        moves.push(step(Some(2), Some(1), ROLLBACK));
        assert_eq!(previous_holder(&moves, 1, &[1, 2, 3, 4]), None);
    }

    #[test]
    fn a_promotion_after_a_rollback_returns_to_where_the_rollback_led() {
        let moves =
            [step(None, Some(1), "gate"), step(Some(1), Some(2), "gate"), step(Some(2), Some(1), ROLLBACK), step(Some(1), Some(3), "gate")];
        assert_eq!(previous_holder(&moves, 3, &[1, 2, 3]), Some(1));
    }

    #[test]
    fn the_first_holder_and_deleted_versions_are_no_way_back() {
        assert_eq!(previous_holder(&[step(None, Some(1), "gate")], 1, &[1]), None);
        let moves = [step(None, Some(1), "gate"), step(Some(1), Some(2), "gate"), step(Some(2), Some(3), "gate")];
        assert_eq!(previous_holder(&moves, 3, &[1, 3]), Some(1));
        assert_eq!(previous_holder(&moves, 3, &[3]), None);
    }

    #[test]
    fn an_alias_that_was_removed_and_set_again_has_its_history() {
        let moves = [step(None, Some(1), "set"), step(Some(1), None, "deleted"), step(None, Some(2), "set")];
        assert_eq!(previous_holder(&moves, 2, &[1, 2]), Some(1));
    }
}
