//! From bytes as they arrive to pieces of text that may be stored: valid UTF-8, bounded, without secrets.

/// Longest chunk that the server takes.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// What a secret is replaced by.
const MASK: &str = "***";

/// Collects bytes and cuts them into chunks.
#[derive(Debug)]
pub struct Chunker {
    buffer: Vec<u8>,
    secrets: Vec<String>,
}

impl Chunker {
    /// A chunker that masks `secrets`. Empty ones are ignored.
    #[must_use]
    pub fn new(secrets: Vec<String>) -> Self {
        Self { buffer: Vec::new(), secrets: secrets.into_iter().filter(|secret| !secret.is_empty()).collect() }
    }

    /// Takes bytes; answers the chunks that are full.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < MAX_CHUNK_BYTES { Vec::new() } else { self.cut(false) }
    }

    /// Everything that can be given out now. `last`: nothing follows, so nothing is held back.
    pub fn flush(&mut self, last: bool) -> Vec<String> {
        self.cut(last)
    }

    /// Whether something is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    fn cut(&mut self, last: bool) -> Vec<String> {
        // The mask comes before the cuts: a secret that is cut in two would not be recognised.
        let held = if last { 0 } else { self.held_back() };
        let ready = self.buffer.len() - held;
        let tail = self.buffer.split_off(ready);
        let bytes = std::mem::replace(&mut self.buffer, tail);
        // Postgres keeps no NUL in text.
        let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        split(text)
    }

    /// How many bytes at the end must wait for what follows: the start of a character, or of a secret.
    fn held_back(&self) -> usize {
        let length = self.buffer.len();
        let in_character = match std::str::from_utf8(&self.buffer[length.saturating_sub(3)..]) {
            // A window that starts inside a character has errors too; only one that runs into the end counts.
            Err(_) => (1..=length.min(3)).find(|held| starts_unfinished_character(&self.buffer[length - held..])).unwrap_or(0),
            Ok(_) => 0,
        };
        let longest = |secret: &String| {
            let bytes = secret.as_bytes();
            (1..bytes.len().min(length + 1)).rev().find(|held| self.buffer.ends_with(&bytes[..*held])).unwrap_or(0)
        };
        self.secrets.iter().map(longest).max().unwrap_or(0).max(in_character)
    }
}

fn starts_unfinished_character(tail: &[u8]) -> bool {
    matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Cuts at line ends where there is one, otherwise between characters.
fn split(text: String) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    if text.len() <= MAX_CHUNK_BYTES {
        return vec![text];
    }
    let mut chunks = Vec::new();
    let mut rest = text.as_str();
    while rest.len() > MAX_CHUNK_BYTES {
        let limit = rest.floor_char_boundary(MAX_CHUNK_BYTES);
        let at = rest[..limit].rfind('\n').map_or(limit, |newline| newline + 1);
        chunks.push(rest[..at].to_owned());
        rest = &rest[at..];
    }
    chunks.push(rest.to_owned());
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(pieces: &[&[u8]], secrets: &[&str]) -> String {
        let mut chunker = Chunker::new(secrets.iter().map(|secret| (*secret).to_owned()).collect());
        let mut text = String::new();
        for piece in pieces {
            text.extend(chunker.push(piece));
            text.extend(chunker.flush(false));
        }
        text.extend(chunker.flush(true));
        assert!(chunker.is_empty());
        text
    }

    #[test]
    fn secrets_are_masked_wherever_they_are_cut() {
        let text = b"token=hunter22; again hunter22\n";
        for cut in 0..text.len() {
            assert_eq!(feed(&[&text[..cut], &text[cut..]], &["hunter22", ""]), "token=***; again ***\n", "cut at {cut}");
        }
        // What only began like a secret is not lost.
        assert_eq!(feed(&[b"hunt", b"ing\n"], &["hunter22"]), "hunting\n");
        assert_eq!(feed(&[b"hunter"], &["hunter22"]), "hunter");
    }

    #[test]
    fn characters_are_never_cut_and_bad_bytes_are_replaced() {
        let text = "aé漢🙂z".as_bytes();
        for cut in 0..text.len() {
            assert_eq!(feed(&[&text[..cut], &text[cut..]], &[]), "aé漢🙂z", "cut at {cut}");
        }
        assert_eq!(feed(&[b"a\xffb\0c\xe6"], &[]), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    #[test]
    fn chunks_are_bounded_and_prefer_line_ends() {
        let line = format!("{}\n", "x".repeat(999));
        let mut chunker = Chunker::new(Vec::new());
        let mut chunks = Vec::new();
        for _ in 0..200 {
            chunks.extend(chunker.push(line.as_bytes()));
        }
        chunks.extend(chunker.flush(true));
        assert_eq!(chunks.concat(), line.repeat(200));
        assert!(chunks.iter().all(|chunk| chunk.len() <= MAX_CHUNK_BYTES));
        // Bad bytes grow when they are replaced; the bound holds for what is sent.
        let mut chunker = Chunker::new(Vec::new());
        let mut chunks = chunker.push(&vec![0xff; MAX_CHUNK_BYTES]);
        chunks.extend(chunker.flush(true));
        assert_eq!(chunks.iter().map(String::len).sum::<usize>(), 3 * MAX_CHUNK_BYTES);
        assert!(chunks.iter().all(|chunk| chunk.len() <= MAX_CHUNK_BYTES));
        let mut wide = Chunker::new(Vec::new());
        let chunks = [wide.push("🙂".repeat(40_000).as_bytes()), wide.flush(true)].concat();
        assert_eq!(chunks.concat().chars().count(), 40_000);
    }
}
