//! Sending the log, in order and at least once. What the server has not acknowledged stays on disk, so a long
//! outage costs disk space, not memory and not output.

use std::{
    collections::VecDeque,
    io::{self, SeekFrom},
    path::Path,
    sync::Mutex,
    time::Duration,
};

use sluice_client::{Client, RetryPolicy};
use sluice_domain::runner::LogChunk;
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::Chunker;
use crate::stop::{Stop, StopReason};

/// Longest time that output waits before it is sent.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// Bytes of text in one request. JSON may make six bytes of one, and the server takes 4 MiB.
const MAX_BATCH_BYTES: usize = 512 * 1024;
/// Chunks in one request; the server takes 256.
const MAX_BATCH_CHUNKS: usize = 128;
/// Output that waits for the spool; a faster writer is held up by its pipe.
const QUEUE: usize = 256;
/// How much of the end of the current command's output is kept for its error message.
const TAIL_BYTES: usize = 64 * 1024;

/// Puts text into the log of a job. Given to whatever has something to say.
#[derive(Debug)]
pub struct LogWriter {
    sender: mpsc::Sender<Vec<u8>>,
    tail: Mutex<VecDeque<u8>>,
}

impl LogWriter {
    /// A writer whose text comes out of a channel instead of going to a server.
    #[must_use]
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self { sender, tail: Mutex::default() }, receiver)
    }

    /// Output of a command. Blocks no one for long: the queue is drained to disk.
    pub async fn write(&self, bytes: &[u8]) {
        self.remember(bytes);
        let _ = self.sender.send(bytes.to_vec()).await;
    }

    /// A line of the runner's own.
    pub async fn line(&self, text: &str) {
        let _ = self.sender.send(format!("{text}\n").into_bytes()).await;
    }

    /// Forgets the output of earlier commands.
    pub fn clear_tail(&self) {
        self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// The end of the output since [`Self::clear_tail`].
    #[must_use]
    pub fn tail(&self) -> String {
        let mut tail = self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }

    fn remember(&self, bytes: &[u8]) {
        let mut tail = self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..excess);
    }
}

/// The task that spools and sends.
#[derive(Debug)]
pub struct Shipper {
    task: JoinHandle<io::Result<()>>,
}

impl Shipper {
    /// Starts shipping for an attempt. `client` carries the attempt's token.
    ///
    /// # Errors
    /// When the spool cannot be made.
    pub async fn start(
        client: Client,
        job: i64,
        attempt: i32,
        spool: &Path,
        secrets: Vec<String>,
        stop: Stop,
    ) -> io::Result<(LogWriter, Self)> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(spool).await?;
        let (writer, receiver) = LogWriter::channel(QUEUE);
        let state = State {
            client,
            job,
            attempt,
            chunker: Chunker::new(secrets),
            spool: Spool { file, end: 0, waiting: VecDeque::new(), next_seq: 0 },
            stop,
        };
        let task = tokio::spawn(state.run(receiver));
        Ok((writer, Self { task }))
    }

    /// Waits until the server has everything. All writers must be dropped before. Returns early when the attempt is
    /// stale: then nobody wants the rest.
    ///
    /// # Errors
    /// When the spool failed, or the server refused a chunk for good.
    pub async fn finish(self) -> io::Result<()> {
        self.task.await.map_err(io::Error::other)?
    }
}

/// Chunks on disk, in order.
#[derive(Debug)]
struct Spool {
    file: File,
    end: u64,
    /// Number, offset and length of each chunk that is not acknowledged.
    waiting: VecDeque<(i64, u64, usize)>,
    next_seq: i64,
}

impl Spool {
    async fn append(&mut self, chunks: Vec<String>) -> io::Result<()> {
        for chunk in chunks {
            self.file.seek(SeekFrom::Start(self.end)).await?;
            self.file.write_all(chunk.as_bytes()).await?;
            self.waiting.push_back((self.next_seq, self.end, chunk.len()));
            self.end += chunk.len() as u64;
            self.next_seq += 1;
        }
        self.file.flush().await
    }

    async fn batch(&mut self) -> io::Result<Vec<LogChunk>> {
        let mut chunks = Vec::new();
        let mut size = 0;
        let waiting: Vec<_> = self.waiting.iter().take(MAX_BATCH_CHUNKS).copied().collect();
        for (seq, offset, length) in waiting {
            if !chunks.is_empty() && (size + length > MAX_BATCH_BYTES || chunks.len() >= MAX_BATCH_CHUNKS) {
                break;
            }
            self.file.seek(SeekFrom::Start(offset)).await?;
            let mut content = vec![0; length];
            self.file.read_exact(&mut content).await?;
            chunks.push(LogChunk { seq, content: String::from_utf8_lossy(&content).into_owned() });
            size += length;
        }
        Ok(chunks)
    }

    /// Forgets the chunks before number `next`; whether there were any.
    async fn acknowledge(&mut self, next: i64) -> io::Result<bool> {
        let before = self.waiting.len();
        while self.waiting.front().is_some_and(|(seq, ..)| *seq < next) {
            self.waiting.pop_front();
        }
        let progress = self.waiting.len() < before;
        if self.waiting.is_empty() && self.end > 0 {
            self.file.set_len(0).await?;
            self.end = 0;
        }
        Ok(progress)
    }
}

struct State {
    client: Client,
    job: i64,
    attempt: i32,
    chunker: Chunker,
    spool: Spool,
    stop: Stop,
}

impl State {
    async fn run(mut self, mut receiver: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
        let policy = RetryPolicy::forever();
        let mut flush_at: Option<Instant> = None;
        let mut retry_at = Instant::now();
        let mut failures = 0;
        let mut open = true;
        let mut refused: Option<io::Error> = None;
        let mut sending: Option<JoinHandle<sluice_client::Result<i64>>> = None;
        let mut stop = self.stop.clone();
        while open || !self.spool.waiting.is_empty() {
            if sending.is_none() && refused.is_none() && !self.spool.waiting.is_empty() && retry_at <= Instant::now() {
                let batch = self.spool.batch().await?;
                let (client, job, attempt) = (self.client.clone(), self.job, self.attempt);
                sending = Some(tokio::spawn(async move { client.append_logs(job, attempt, batch).await }));
            }
            if refused.is_some() {
                // Nothing of this log will be taken any more; writers must not be held up by that.
                self.spool.waiting.clear();
                if !open {
                    break;
                }
            }
            let flush = flush_at.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                () = stop.wait_for(StopReason::Stale) => return Ok(()),
                received = receiver.recv(), if open => match received {
                    Some(bytes) => {
                        let chunks = self.chunker.push(&bytes);
                        self.spool.append(chunks).await?;
                        flush_at = if self.chunker.is_empty() { None } else { flush_at.or_else(|| Some(Instant::now() + FLUSH_EVERY)) };
                    }
                    None => {
                        open = false;
                        let chunks = self.chunker.flush(true);
                        self.spool.append(chunks).await?;
                        flush_at = None;
                    }
                },
                () = sleep_until(flush), if flush_at.is_some() => {
                    let chunks = self.chunker.flush(false);
                    self.spool.append(chunks).await?;
                    flush_at = None;
                }
                answer = join(&mut sending), if sending.is_some() => {
                    sending = None;
                    match answer {
                        Ok(next) => {
                            // A server that wants the same chunk again (it was reset, say) gets it, but not in a hot loop.
                            failures = if self.spool.acknowledge(next).await? { 0 } else { failures + 1 };
                            retry_at = Instant::now() + if failures == 0 { Duration::ZERO } else { policy.delay(failures, None) };
                        }
                        Err(error) if error.is_passing() => {
                            failures += 1;
                            retry_at = Instant::now() + policy.delay(failures, error.retry_after());
                        }
                        Err(error) if error.code() == Some("stale_attempt") => {
                            self.stop.request(StopReason::Stale);
                            return Ok(());
                        }
                        Err(error) => {
                            tracing::error!(job.id = self.job, %error, "the server refuses the log");
                            refused = Some(io::Error::other(error.to_string()));
                        }
                    }
                }
                () = sleep_until(retry_at), if sending.is_none() && refused.is_none() && !self.spool.waiting.is_empty() => {}
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

async fn join(sending: &mut Option<JoinHandle<sluice_client::Result<i64>>>) -> sluice_client::Result<i64> {
    match sending {
        Some(task) => task.await.unwrap_or_else(|error| Err(sluice_client::Error::Corrupt(format!("sending the log failed: {error}")))),
        None => std::future::pending().await,
    }
}
