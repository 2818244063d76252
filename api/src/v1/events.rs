//! `/events`: notices that something changed, for pages that keep themselves fresh.

use actix_web::{
    HttpRequest,
    web::{self, Data},
};
use sluice_app::{App, Error};
use tokio::sync::broadcast::error::RecvError;

use super::Answer;
use crate::{
    extract::Params,
    sse::{Events, HEARTBEAT},
};

const MAX_TOPICS: usize = 200;

pub fn configure(config: &mut web::ServiceConfig) {
    config.route("/events", web::get().to(events));
}

async fn events(app: Data<App>, request: HttpRequest) -> Answer {
    let mut params = Params::of(&request)?;
    let topics: Vec<String> = params.text("topics").unwrap_or_default().split(',').map(str::to_owned).collect();
    params.done()?;
    let ok = |topic: &str| {
        topic == "queue"
            || topic.split_once(':').is_some_and(|(kind, id)| {
                !id.is_empty()
                    && id.len() <= 200
                    && ["job", "log", "pipeline", "promotion", "run", "deployment", "repository", "runner"].contains(&kind)
            })
    };
    if let Some(bad) = topics.iter().find(|topic| !ok(topic)) {
        let message = format!(
            "topics: {bad:?} must be queue or KIND:ID with KIND one of job, log, pipeline, promotion, run, deployment, repository, runner"
        );
        return Err(Error::invalid("topics", message).into());
    }
    if topics.len() > MAX_TOPICS {
        return Err(Error::invalid("topics", format!("topics: {} given, at most {MAX_TOPICS} are allowed", topics.len())).into());
    }
    let mut notices = app.notices.subscribe();
    let (events, answer) = Events::open();
    actix_web::rt::spawn(async move {
        // says at once that the stream stands: what changed before is not told
        let mut wanted = events.send("ready", None, "{}").await;
        while wanted.is_ok() {
            let notice = tokio::select! {
                notice = tokio::time::timeout(HEARTBEAT, notices.recv()) => notice,
                () = events.closed() => return,
            };
            wanted = match notice {
                Err(_) => events.heartbeat().await,
                Ok(Ok(notice)) if topics.contains(&notice) => events.send("change", None, &notice).await,
                Ok(Ok(notice)) if notice != "resync" => Ok(()),
                // notices were missed: everything may have changed
                Ok(Ok(_) | Err(RecvError::Lagged(_))) => {
                    let mut sent = Ok(());
                    for topic in &topics {
                        if sent.is_ok() {
                            sent = events.send("change", None, topic).await;
                        }
                    }
                    sent
                }
                Ok(Err(RecvError::Closed)) => return,
            };
        }
    });
    Ok(answer)
}
