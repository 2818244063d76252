//! `/jobs` and their logs.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Data, Path},
};
use sluice_app::{Actor, App, Error, job, job_log};
use tokio::sync::broadcast::error::RecvError;

use super::Answer;
use crate::{
    extract::{Params, id},
    sse::{Events, HEARTBEAT},
};

pub fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/jobs/{id}", web::get().to(get))
        .route("/jobs/{id}/cancel", web::post().to(cancel))
        .route("/jobs/{id}/retry", web::post().to(retry))
        .route("/jobs/{id}/logs", web::get().to(logs));
}

async fn get(app: Data<App>, path: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(job::get_job(&app, id(&path, "job")?).await?))
}

async fn cancel(app: Data<App>, path: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(job::cancel_job(&app, &Actor::anonymous(), id(&path, "job")?).await?))
}

async fn retry(app: Data<App>, path: Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(job::retry_job(&app, &Actor::anonymous(), id(&path, "job")?).await?))
}

async fn logs(app: Data<App>, path: Path<String>, request: HttpRequest) -> Answer {
    let id: i64 = id(&path, "job")?;
    let mut params = Params::of(&request)?;
    let attempt = params.number("attempt")?.map(|number| i32::try_from(number).unwrap_or(i32::MAX));
    let mut from = params.number("from")?.unwrap_or(0);
    let follow = match params.text("follow").as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(Error::invalid("follow", format!("follow {other:?} must be 0 or 1")).into()),
    };
    params.done()?;
    if !follow {
        return Ok(HttpResponse::Ok().json(job_log::read_log(&app, id, attempt, from).await?));
    }
    if let Some(last) = request.headers().get("Last-Event-ID") {
        let seen: Option<i64> = last.to_str().ok().and_then(|text| text.parse().ok());
        let seen =
            seen.filter(|seq| *seq >= 0).ok_or_else(|| Error::invalid("Last-Event-ID", "Last-Event-ID must be the number of a chunk"))?;
        from = seen.saturating_add(1);
    }
    // unknown jobs and attempts answer with an error, not with a stream
    job_log::read_log(&app, id, attempt, from).await?;
    let (events, answer) = Events::open();
    actix_web::rt::spawn(async move {
        let closed = events.clone();
        tokio::select! {
            // it ends when the log does or the reader has gone, which are both fine
            _ = follow_log(&app, id, attempt, from, &events) => {}
            () = closed.closed() => {}
        }
    });
    Ok(answer)
}

async fn follow_log(app: &App, id: i64, attempt: Option<i32>, mut from: i64, events: &Events) -> Result<(), crate::sse::Gone> {
    let mut attempt = attempt;
    loop {
        // armed before the read: a chunk that comes after it wakes this loop
        let mut notices = app.notices.subscribe();
        let page = match job_log::read_log(app, id, attempt, from).await {
            Ok(page) => page,
            // the reader connects again by itself and says where it was
            Err(error) => {
                tracing::debug!(job.id = id, error = ?error, "log stream broken off");
                return Ok(());
            }
        };
        if page.attempt > 0 {
            // stay with the attempt that was the last one when the stream began
            attempt = Some(page.attempt);
        }
        for chunk in &page.chunks {
            let data = serde_json::to_string(chunk).unwrap_or_default();
            events.send("chunk", Some(&chunk.seq.to_string()), &data).await?;
        }
        from = page.next;
        if page.finished {
            return events.send("end", None, &serde_json::json!({ "attempt": page.attempt }).to_string()).await;
        }
        if !page.chunks.is_empty() {
            continue;
        }
        let (log, job) = (format!("log:{id}"), format!("job:{id}"));
        let wait = async {
            loop {
                match notices.recv().await {
                    Ok(notice) if notice == log || notice == job || notice == "resync" => return,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        if tokio::time::timeout(HEARTBEAT, wait).await.is_err() {
            events.heartbeat().await?;
        }
    }
}
