//! One message that survives the redirect after a form, in a cookie that the next page clears.

use actix_web::{HttpRequest, HttpResponse, http::header};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const NAME: &str = "sluice_flash";

/// What a form did, or why it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flash {
    pub good: bool,
    pub text: String,
}

impl Flash {
    /// Reads the message that an earlier answer left.
    pub fn read(request: &HttpRequest) -> Option<Self> {
        let cookies = request.headers().get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == NAME)?;
        let (kind, text) = value.split_once('-')?;
        let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
        Some(Self { good: kind == "ok", text })
    }

    /// The `Set-Cookie` value that removes the message.
    pub fn clear() -> String {
        format!("{NAME}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
    }
}

/// Redirects to `to` after a form, with a message of at most 1000 characters.
fn redirect(to: &str, good: bool, text: &str) -> HttpResponse {
    let text: String = text.chars().take(1000).collect();
    let value = format!("{}-{}", if good { "ok" } else { "no" }, utf8_percent_encode(&text, NON_ALPHANUMERIC));
    let cookie = format!("{NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=60");
    HttpResponse::SeeOther().insert_header((header::LOCATION, to)).insert_header((header::SET_COOKIE, cookie)).finish()
}

/// Redirects after a form that did what it said.
pub fn done(to: &str, text: impl AsRef<str>) -> HttpResponse {
    redirect(to, true, text.as_ref())
}

/// Redirects after a form that was refused; faults of ours become an error page instead.
pub fn refused(to: &str, error: sluice_app::Error) -> Result<HttpResponse, crate::error::PageError> {
    match error {
        sluice_app::Error::Internal(_) | sluice_app::Error::Unavailable(_) => Err(error.into()),
        refused => Ok(redirect(to, false, &refused.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn a_message_survives_the_redirect() {
        let answer = done("/x", "moved \"a\"; é <b>");
        let cookie = answer.headers().get(header::SET_COOKIE).unwrap().to_str().unwrap();
        let pair = cookie.split(';').next().unwrap();
        let request = TestRequest::get().insert_header((header::COOKIE, format!("other=1; {pair}"))).to_http_request();
        assert_eq!(Flash::read(&request), Some(Flash { good: true, text: "moved \"a\"; é <b>".to_owned() }));
        assert_eq!(Flash::read(&TestRequest::get().to_http_request()), None);
    }
}
