//! Server-sent events.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpResponse,
    http::header::{self, ContentEncoding},
    web::Bytes,
};
use futures_util::Stream;
use tokio::sync::mpsc;

/// A silent stream says this often that it is alive; a reader that has gone is noticed then.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// Where a handler's task writes events. Writing fails once the reader has gone.
#[derive(Debug, Clone)]
pub struct Events(mpsc::Sender<Bytes>);

/// The reader has gone.
#[derive(Debug)]
pub struct Gone;

impl Events {
    /// An event stream as an answer, and the end to write to.
    #[must_use]
    pub fn open() -> (Self, HttpResponse) {
        let (sender, receiver) = mpsc::channel(16);
        let answer = HttpResponse::Ok()
            .content_type("text/event-stream")
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header(("X-Accel-Buffering", "no"))
            // a compressor would hold events back
            .insert_header(ContentEncoding::Identity)
            .streaming(stream(receiver));
        (Self(sender), answer)
    }

    /// Writes one event. `data` must be one line.
    ///
    /// # Errors
    /// When the reader has gone.
    pub async fn send(&self, event: &str, id: Option<&str>, data: &str) -> Result<(), Gone> {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.0.send(Bytes::from(format!("{id}event: {event}\ndata: {data}\n\n"))).await.map_err(|_| Gone)
    }

    /// Writes a comment, which readers ignore.
    ///
    /// # Errors
    /// When the reader has gone.
    pub async fn heartbeat(&self) -> Result<(), Gone> {
        self.0.send(Bytes::from_static(b": alive\n\n")).await.map_err(|_| Gone)
    }

    /// Completes when the reader has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// What comes out of a channel, as a response body.
pub fn stream(receiver: mpsc::Receiver<Bytes>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold(receiver, |mut receiver| async move { Some((Ok(receiver.recv().await?), receiver)) })
}
