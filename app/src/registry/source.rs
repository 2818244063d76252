//! Which sources a new version may have, and where the files of each are.
//!
//! A version must not make files readable as a model that its creator could not name otherwise: what this
//! server keeps must lie in the run or logged model that the request names.

use sluice_domain::{
    id::RunId,
    registry::{Source, parse_source},
};
use sluice_store::{PgConnection, artifact, logged_model, model_version};

use super::version::{CreateVersion, no_version};
use crate::{Error, Result, artifact::key_of_uri};

/// A source that is allowed.
#[derive(Debug)]
pub(super) struct Resolved {
    pub storage_uri: String,
    pub run_id: Option<RunId>,
    pub model_id: Option<String>,
}

/// Checks the source of a new version and finds its files.
pub(super) async fn resolve(db: &mut PgConnection, new: &CreateVersion, is_prompt: bool) -> Result<Resolved> {
    let mut run_id = new
        .run_id
        .as_deref()
        .map(|text| text.parse::<RunId>().map_err(|_| Error::invalid("run_id", format!("Invalid run ID: '{text}'"))))
        .transpose()?;
    let invalid = |rule: &str| Err(Error::invalid("source", format!("Invalid model version source: '{}'. {rule}", new.source)));
    if is_prompt {
        return match new.source.as_str() {
            "dummy-source" | "prompt-template" => Ok(Resolved { storage_uri: new.source.clone(), run_id, model_id: None }),
            _ => invalid("The source of a prompt version must be 'dummy-source' or 'prompt-template'."),
        };
    }
    let Some(source) = parse_source(&new.source) else {
        return invalid(
            "If supplying a source as an http, https, local file path, ftp, objectstore, or mlflow-artifacts uri, an absolute path must be provided without relative path references present. Please provide an absolute path.",
        );
    };
    const RUN_RULE: &str = "The run_id request parameter must identify the resource that contains the source.";
    const MODEL_RULE: &str = "The model_id request parameter must identify the resource that contains the source.";

    let mut model_root = None;
    if let Some(id) = &new.model_id {
        let model =
            logged_model::find_root(db, id).await?.ok_or_else(|| Error::NotFound(format!("Logged model with ID '{id}' not found.")))?;
        run_id = run_id.or(model.source_run_id.map(RunId));
        model_root = Some(model.artifact_uri);
    }
    let run_root = match run_id {
        Some(id) => artifact::find_run_artifact_uri(db, id.0).await?,
        None => None,
    };
    let model_id = new.model_id.clone();
    let storage_uri = match source {
        Source::LoggedModel(id) => match model_root {
            Some(root) if new.model_id.as_ref() == Some(&id) => root,
            _ => return invalid(MODEL_RULE),
        },
        Source::Version { name, version } => {
            let from = model_version::find_version(db, &name, version).await?.ok_or_else(|| no_version(&name, version))?;
            return Ok(Resolved {
                storage_uri: from.storage_uri,
                run_id: from.run_id.map(RunId).or(run_id),
                model_id: from.logged_model_id.or(model_id),
            });
        }
        Source::Run { run_id: of, path } => match run_root {
            Some(root) if run_id.is_some() && of.parse().ok() == run_id => join(&root, &path),
            _ => return invalid(RUN_RULE),
        },
        Source::Proxied { uri } => {
            let roots = [run_root.as_deref(), model_root.as_deref()];
            if !roots.into_iter().flatten().any(|root| is_below(&uri, root)) {
                return invalid(if new.model_id.is_some() && new.run_id.is_none() { MODEL_RULE } else { RUN_RULE });
            }
            uri
        }
        Source::Local => {
            let roots = [run_root.as_deref(), model_root.as_deref()];
            if !roots.into_iter().flatten().any(|root| is_local_below(&new.source, root)) {
                return invalid(
                    "To use a local path as a model version source, the run_id request parameter has to be specified and the local path has to be contained within the artifact directory of the run specified by the run_id.",
                );
            }
            new.source.clone()
        }
        Source::Elsewhere => new.source.clone(),
    };
    Ok(Resolved { storage_uri, run_id, model_id })
}

fn join(root: &str, path: &str) -> String {
    if path.is_empty() { root.to_owned() } else { format!("{}/{path}", root.trim_end_matches('/')) }
}

/// Whether both are kept by this server and one lies in the other.
fn is_below(uri: &str, root: &str) -> bool {
    match (key_of_uri(uri.trim_end_matches('/')), key_of_uri(root)) {
        (Ok(key), Ok(root)) => key == root || key.as_str().strip_prefix(root.as_str()).is_some_and(|rest| rest.starts_with('/')),
        _ => false,
    }
}

fn is_local_below(source: &str, root: &str) -> bool {
    let path =
        |uri: &str| uri.strip_prefix("file:").map_or(uri, |rest| rest.strip_prefix("//").unwrap_or(rest)).trim_end_matches('/').to_owned();
    let (source, root) = (path(source), path(root));
    root.starts_with('/') && root.len() > 1 && (source == root || source.strip_prefix(&root).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_by_whole_parts() {
        let root = "mlflow-artifacts:/0/run/artifacts";
        for good in
            ["mlflow-artifacts:/0/run/artifacts", "mlflow-artifacts:/0/run/artifacts/model/", "mlflow-artifacts://host/0/run/artifacts/m"]
        {
            assert!(is_below(good, root), "{good}");
        }
        for bad in [
            "mlflow-artifacts:/0/run/artifacts2",
            "mlflow-artifacts:/0/other",
            "s3://b/0/run/artifacts",
            "mlflow-artifacts:/0/run/artifacts/%2e%2e/x",
        ] {
            assert!(!is_below(bad, root), "{bad}");
        }
        assert!(is_local_below("/srv/a/run/artifacts/m", "file:///srv/a/run/artifacts"));
        for (bad, root) in
            [("/etc/passwd", "/srv/a"), ("/etc/passwd", "/"), ("/etc/passwd", ""), ("/srv/ab", "/srv/a"), ("model", "mlflow-artifacts:/0")]
        {
            assert!(!is_local_below(bad, root), "{bad} {root}");
        }
    }
}
