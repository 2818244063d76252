//! Server-sent events, read as they come.

use std::collections::VecDeque;

use crate::{Error, Result};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerEvent {
    pub id: Option<String>,
    /// `message` unless the server says otherwise.
    pub event: String,
    pub data: String,
}

/// The events of one answer. A connection that breaks ends with an error; the caller reconnects.
#[derive(Debug)]
pub struct EventStream {
    answer: reqwest::Response,
    parser: Parser,
    ready: VecDeque<ServerEvent>,
}

impl EventStream {
    pub(crate) fn new(answer: reqwest::Response) -> Self {
        Self { answer, parser: Parser::default(), ready: VecDeque::new() }
    }

    /// The next event; `None` when the server closed the stream.
    ///
    /// # Errors
    /// [`Error::Transport`] when the connection breaks or stays silent for too long.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match self.answer.chunk().await.map_err(Error::Transport)? {
                Some(bytes) => self.ready.extend(self.parser.feed(&bytes)),
                None => return Ok(None),
            }
        }
    }
}

/// Splits bytes into events. Lines may be cut anywhere, also inside a character.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    current: ServerEvent,
    has_data: bool,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {
        let mut events = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            events.extend(self.take_line(line.trim_end_matches('\r')));
        }
        events
    }

    fn take_line(&mut self, line: &str) -> Option<ServerEvent> {
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.current);
            if event.event.is_empty() {
                "message".clone_into(&mut event.event);
            }
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.current.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.current.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.current.data.push('\n');
                }
                self.current.data.push_str(value);
            }
            _ => {} // comments (keep-alives) and fields of later versions
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = ": hi\nid: 3\nevent: chunk\ndata: {\"é\":1}\ndata: x\n\nevent: end\ndata:\n\n";
        for cut in 0..text.len() {
            let mut parser = Parser::default();
            let mut events = parser.feed(&text.as_bytes()[..cut]);
            events.extend(parser.feed(&text.as_bytes()[cut..]));
            assert_eq!(
                events,
                [
                    ServerEvent { id: Some("3".into()), event: "chunk".into(), data: "{\"é\":1}\nx".into() },
                    ServerEvent { id: None, event: "end".into(), data: String::new() },
                ]
            );
        }
    }
}
