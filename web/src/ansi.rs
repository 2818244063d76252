//! Terminal output as lines of styled text. Colours become class names; everything else that a terminal would
//! obey is dropped. `assets/log.js` does the same for lines that arrive live.

/// A piece of a line with one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Class names, e.g. `a1 b`; empty for plain text.
    pub class: String,
    pub text: String,
}

/// One line with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub number: i64,
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    colour: Option<u8>,
    bold: bool,
    faint: bool,
    underline: bool,
}

impl Style {
    fn class(self) -> String {
        let mut names = Vec::new();
        if let Some(colour) = self.colour {
            names.push(format!("a{colour}"));
        }
        for (on, name) in [(self.bold, "bold"), (self.faint, "faint"), (self.underline, "line")] {
            if on {
                names.push(name.to_owned());
            }
        }
        names.join(" ")
    }

    /// Applies the numbers of one `ESC [ … m`.
    fn apply(&mut self, codes: &[u16]) {
        let mut codes = codes.iter().copied();
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.faint = true,
                4 => self.underline = true,
                22 => (self.bold, self.faint) = (false, false),
                24 => self.underline = false,
                30..=37 => self.colour = Some((code - 30) as u8),
                39 => self.colour = None,
                90..=97 => self.colour = Some((code - 90 + 8) as u8),
                38 | 48 => {
                    // 256 colours and true colour: of the former the basic sixteen are kept
                    let kind = codes.next();
                    let first = codes.next();
                    if kind == Some(2) {
                        let _ = (codes.next(), codes.next());
                    } else if code == 38 && kind == Some(5) {
                        self.colour = first.filter(|&n| n < 16).map(|n| n as u8);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Splits a log into lines, the first with number `first`. A carriage return starts its line again, as progress
/// bars mean it.
pub fn lines(text: &str, first: i64) -> Vec<Line> {
    let mut style = Style::default();
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    (first..).zip(text.split('\n')).map(|(number, line)| Line { number, pieces: pieces(line, &mut style) }).collect()
}

fn pieces(line: &str, style: &mut Style) -> Vec<Piece> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut text = String::new();
    let mut rest = line.chars().peekable();
    let flush = |text: &mut String, style: Style, pieces: &mut Vec<Piece>| {
        if !text.is_empty() {
            pieces.push(Piece { class: style.class(), text: std::mem::take(text) });
        }
    };
    while let Some(c) = rest.next() {
        match c {
            '\r' => {
                text.clear();
                pieces.clear();
            }
            '\u{1b}' => match rest.peek() {
                Some('[') => {
                    rest.next();
                    let mut parameters = String::new();
                    let mut end = None;
                    for c in rest.by_ref() {
                        if ('@'..='~').contains(&c) {
                            end = Some(c);
                            break;
                        }
                        parameters.push(c);
                    }
                    if end == Some('m') {
                        flush(&mut text, *style, &mut pieces);
                        let codes: Vec<u16> = parameters.split(';').map(|code| code.parse().unwrap_or(0)).collect();
                        style.apply(&codes);
                    }
                }
                Some(']') => {
                    // operating system command, e.g. a title: up to BEL or ESC \
                    while let Some(c) = rest.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {
                    rest.next();
                }
            },
            '\t' => text.push('\t'),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    flush(&mut text, *style, &mut pieces);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(class: &str, text: &str) -> Piece {
        Piece { class: class.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn colours_become_classes_and_last_over_lines() {
        let lines = lines("plain \u{1b}[1;31mred\nstill\u{1b}[0m done\n", 7);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].number, lines[1].number), (7, 8));
        assert_eq!(lines[0].pieces, [piece("", "plain "), piece("a1 bold", "red")]);
        assert_eq!(lines[1].pieces, [piece("a1 bold", "still"), piece("", " done")]);
    }

    #[test]
    fn progress_bars_keep_their_last_state() {
        assert_eq!(lines(" 10 %\r 50 %\r100 %\r\n", 1)[0].pieces, [piece("", "100 %")]);
    }

    #[test]
    fn other_sequences_are_dropped() {
        assert_eq!(lines("\u{1b}]0;title\u{7}a\u{1b}[2Kb\u{1b}(c\u{0}d", 1)[0].pieces, [piece("", "abcd")]);
        assert_eq!(lines("\u{1b}[38;5;9mx\u{1b}[38;2;1;2;3my\u{1b}[", 1)[0].pieces, [piece("a9", "x"), piece("a9", "y")]);
        assert!(lines("", 1).is_empty());
    }

    #[test]
    fn markup_stays_text() {
        assert_eq!(lines("<script>alert(1)</script>", 1)[0].pieces[0].text, "<script>alert(1)</script>");
    }
}
