//! Reading the logs of jobs.

use serde::Serialize;
use sluice_domain::state::AttemptStatus;
pub use sluice_store::job_log::LogChunkRow as Chunk;
use sluice_store::{job::get_job, job_attempt::find_attempt, job_log::list_log_chunks};

use crate::{App, Error, Result};

/// A page holds at most this much text and this many chunks.
const PAGE_BYTES: i64 = 1024 * 1024;
const PAGE_CHUNKS: i64 = 1000;

/// A part of an attempt's log.
#[derive(Debug, Clone, Serialize)]
pub struct LogPage {
    /// 0: the job has not started yet.
    pub attempt: i32,
    pub chunks: Vec<Chunk>,
    /// Number of the next chunk to ask for.
    pub next: i64,
    /// Nothing will be added any more, and this page reaches the end.
    pub finished: bool,
}

/// Reads an attempt's log (`None`: of the last attempt) from chunk `from` on.
///
/// # Errors
/// When there is no such job or attempt.
pub async fn read_log(app: &App, job_id: i64, attempt: Option<i32>, from: i64) -> Result<LogPage> {
    let mut db = app.connection().await?;
    let job = get_job(&mut db, job_id).await?;
    let number = attempt.unwrap_or(job.attempt);
    // The attempt is read before its chunks: if it has ended, every chunk is there.
    let Some(row) = find_attempt(&mut db, job_id, number).await? else {
        if attempt.is_some() {
            return Err(Error::NotFound(format!("job {job_id} has no attempt {number}")));
        }
        return Ok(LogPage { attempt: 0, chunks: Vec::new(), next: from, finished: job.status.is_final() });
    };
    let chunks = list_log_chunks(&mut db, job_id, number, from, PAGE_CHUNKS, PAGE_BYTES).await?;
    let next = chunks.last().map_or(from, |chunk| chunk.seq + 1);
    Ok(LogPage { attempt: number, chunks, next, finished: *row.status != AttemptStatus::Running && next >= row.log_next })
}
