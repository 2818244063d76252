//! An artifact as an HTTP answer. Artifacts are written by anyone who can log, so none may run as a page of
//! this server: every answer is an attachment, is not sniffed, and has a sandbox without any source.

use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    body::SizedStream,
    http::{StatusCode, header},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sluice_app::{
    App, Result,
    artifact::{self, Key, Opened, Range},
};

/// RFC 8187 `attr-char`s stay as they are.
const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Endings (or whole names) whose files are shown as text.
const TEXT: [&str; 24] = [
    "txt",
    "log",
    "err",
    "cfg",
    "conf",
    "cnf",
    "cf",
    "ini",
    "properties",
    "prop",
    "hocon",
    "toml",
    "yaml",
    "yml",
    "xml",
    "json",
    "js",
    "py",
    "csv",
    "tsv",
    "md",
    "rst",
    "MLmodel",
    "MLproject",
];

/// Streams a file, or the part of it that a `Range` header asks for.
///
/// # Errors
/// When the file does not exist or is a folder.
pub async fn send_file(app: &App, request: &HttpRequest, key: &Key) -> Result<HttpResponse> {
    let range = request.headers().get(header::RANGE).and_then(|value| value.to_str().ok()).and_then(parse_range);
    let object = match artifact::open(app, key, range).await? {
        Opened::Object(object) => object,
        Opened::RangeNotSatisfiable { bytes } => {
            let mut answer = inert(StatusCode::RANGE_NOT_SATISFIABLE, key.file_name());
            return Ok(answer.insert_header((header::CONTENT_RANGE, format!("bytes */{bytes}"))).finish());
        }
    };
    let length = object.range.end - object.range.start;
    let mut answer = inert(if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }, key.file_name());
    answer.insert_header((header::ACCEPT_RANGES, "bytes"));
    if range.is_some() {
        let text = format!("bytes {}-{}/{}", object.range.start, object.range.end.saturating_sub(1), object.bytes);
        answer.insert_header((header::CONTENT_RANGE, text));
    }
    Ok(answer.body(SizedStream::new(length, object.stream)))
}

/// The start of an answer that a browser saves and never runs. `identity` keeps the bytes and their count as
/// they are.
fn inert(status: StatusCode, file_name: &str) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer
        .content_type(content_type(file_name))
        .insert_header((header::CONTENT_DISPOSITION, disposition(file_name)))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .insert_header((header::CONTENT_ENCODING, "identity"));
    answer
}

fn content_type(file_name: &str) -> String {
    let ending = file_name.rsplit_once('.').map_or(file_name, |(_, ending)| ending);
    if TEXT.contains(&ending) {
        return "text/plain; charset=utf-8".to_owned();
    }
    mime_guess::from_path(file_name).first_or_octet_stream().to_string()
}

/// `attachment` with the name as it is when it is plain ASCII, as RFC 8187 says otherwise.
fn disposition(file_name: &str) -> String {
    let is_plain = file_name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._- +()=,@".contains(&byte));
    if is_plain {
        format!("attachment; filename=\"{file_name}\"")
    } else {
        format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(file_name, ATTRIBUTE))
    }
}

/// One range in bytes. Anything else, several ranges too, is as if nothing was asked (RFC 9110 §14.2).
fn parse_range(header: &str) -> Option<Range> {
    let (first, last) = header.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", count) => Some(Range::Last(digits(count)?)),
        (from, "") => Some(Range::From(digits(from)?)),
        (from, to) => {
            let (from, to) = (digits(from)?, digits(to)?);
            (from <= to).then_some(Range::FromTo(from, to))
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plain_range_is_read() {
        assert_eq!(parse_range("bytes=0-9"), Some(Range::FromTo(0, 9)));
        assert_eq!(parse_range("bytes=7-"), Some(Range::From(7)));
        assert_eq!(parse_range("bytes=-5"), Some(Range::Last(5)));
        for none in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=9-1",
            "bytes=0-1,4-5",
            "items=0-1",
            "bytes=+1-2",
            "bytes=a-b",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(parse_range(none), None, "{none:?}");
        }
    }

    #[test]
    fn names_are_sent_safely() {
        assert_eq!(disposition("model.pkl"), "attachment; filename=\"model.pkl\"");
        assert_eq!(disposition("a\"; x=\"b.html"), "attachment; filename*=UTF-8''a%22%3B%20x%3D%22b.html");
        assert_eq!(disposition("ü.txt"), "attachment; filename*=UTF-8''%C3%BC.txt");
    }

    #[test]
    fn types_are_guessed_from_names() {
        assert_eq!(content_type("MLmodel"), "text/plain; charset=utf-8");
        assert_eq!(content_type("a.json"), "text/plain; charset=utf-8");
        assert_eq!(content_type("plot.png"), "image/png");
        assert_eq!(content_type("weights"), "application/octet-stream");
    }
}
