//! Git's pkt-lines, as far as a proxy must understand them.

/// The end of a section.
pub const FLUSH: &[u8] = b"0000";

/// The longest pkt-line: 4 hex digits of length and 65516 bytes.
pub const MAX_LINE: usize = 65_520;

/// Writes one pkt-line.
#[must_use]
pub fn line(payload: &[u8]) -> Vec<u8> {
    let mut out = format!("{:04x}", payload.len() + 4).into_bytes();
    out.extend_from_slice(payload);
    out
}

/// A message for the user's terminal (`remote: …`): side band 2.
#[must_use]
pub fn message(text: &str) -> Vec<u8> {
    let mut payload = vec![2];
    payload.extend_from_slice(text.as_bytes());
    payload.push(b'\n');
    line(&payload)
}

/// The first pkt-line of `bytes`.
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// More bytes are needed.
    Partial,
    /// Not pkt-lines at all.
    Malformed,
    Flush,
    /// Its payload; the line is 4 bytes longer.
    Line(&'a [u8]),
}

/// Looks at the first pkt-line of `bytes`.
#[must_use]
pub fn head(bytes: &[u8]) -> Head<'_> {
    let Some(digits) = bytes.get(..4) else { return Head::Partial };
    let length = std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
    match length {
        Some(0) => Head::Flush,
        Some(length) if (4..=MAX_LINE).contains(&length) => bytes.get(4..length).map_or(Head::Partial, Head::Line),
        _ => Head::Malformed,
    }
}

/// One branch that a push asks to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchUpdate {
    pub branch: String,
    /// The new tip; all zeros deletes the branch.
    pub sha: String,
}

/// Watches the beginning of a push go by and notes which branches it asks to change.
#[derive(Debug, Default)]
pub struct PushSniffer {
    buffer: Vec<u8>,
    updates: Vec<BranchUpdate>,
    done: bool,
}

impl PushSniffer {
    /// Shows the next bytes of the request.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !self.done && !bytes.is_empty() {
            let take = bytes.len().min(MAX_LINE);
            self.buffer.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            self.parse();
        }
        if self.done {
            self.buffer = Vec::new();
        }
    }

    /// The branches seen so far.
    #[must_use]
    pub fn into_updates(self) -> Vec<BranchUpdate> {
        self.updates
    }

    fn parse(&mut self) {
        let mut at = 0;
        loop {
            match head(&self.buffer[at..]) {
                Head::Partial => break,
                Head::Malformed | Head::Flush => {
                    self.done = true;
                    break;
                }
                Head::Line(payload) => {
                    at += payload.len() + 4;
                    self.updates.extend(branch_update(payload));
                    // nobody reads a thousand `remote:` lines
                    self.done |= self.updates.len() >= 1000;
                }
            }
        }
        self.buffer.drain(..at);
    }
}

/// `OLD NEW refs/heads/BRANCH[\0CAPABILITIES]`
fn branch_update(payload: &[u8]) -> Option<BranchUpdate> {
    let command = std::str::from_utf8(payload.split(|byte| *byte == 0).next()?).ok()?;
    let mut words = command.trim_end_matches('\n').splitn(3, ' ');
    let (_, sha, reference) = (words.next()?, words.next()?, words.next()?);
    Some(BranchUpdate { branch: reference.strip_prefix("refs/heads/")?.to_owned(), sha: sha.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_understood_in_any_slicing() {
        let old = "0".repeat(40);
        let new = "a".repeat(40);
        let mut request = line(format!("{old} {new} refs/heads/main\0 report-status side-band-64k").as_bytes());
        request.extend(line(format!("{old} {new} refs/tags/v1").as_bytes()));
        request.extend(line(format!("{new} {old} refs/heads/exp/a").as_bytes()));
        request.extend(FLUSH);
        request.extend(b"PACK0000");
        for size in [1, 3, 50, 1000] {
            let mut sniffer = PushSniffer::default();
            for slice in request.chunks(size) {
                sniffer.feed(slice);
            }
            let seen: Vec<_> = sniffer.into_updates().into_iter().map(|u| (u.branch, u.sha)).collect();
            assert_eq!(seen, [("main".to_owned(), new.clone()), ("exp/a".to_owned(), old.clone())]);
        }
    }

    #[test]
    fn heads_of_lines() {
        assert_eq!(head(b"000"), Head::Partial);
        assert_eq!(head(b"0006ab"), Head::Line(b"ab"));
        assert_eq!(head(b"0006a"), Head::Partial);
        assert_eq!(head(b"0000"), Head::Flush);
        assert_eq!(head(b"zzzz"), Head::Malformed);
        assert_eq!(head(b"fff1xx"), Head::Malformed);
    }
}
