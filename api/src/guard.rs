//! The whole server's door: which names it answers to, and which pages may make a browser change things.
//!
//! An open server on loopback is reachable by every page that the user's browser shows. A foreign `Host` means
//! a name that was made to point here (DNS rebinding); a foreign `Origin` or a cross-site fetch means another
//! site's page. Programs such as the `mlflow` client and git send neither.

use std::{
    future::{Ready, ready},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    http::{
        Method,
        header::{self, HeaderName, HeaderValue},
    },
};
use futures_util::future::LocalBoxFuture;

const BAD_HOST: &str = "Invalid Host header - possible DNS rebinding attack detected";
const BAD_ORIGIN: &str = "Cross-origin request blocked";

/// Headers that every answer has unless its handler set another value.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "SAMEORIGIN"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Middleware for the whole server: `.wrap(Guard::new(public_url, &[]))`.
#[derive(Debug, Clone)]
pub struct Guard {
    hosts: Arc<[String]>,
}

impl Guard {
    /// Lets requests through that are addressed to loopback, a private address, the host of `public_url`, or
    /// one of `more_hosts` (names without port).
    #[must_use]
    pub fn new(public_url: &str, more_hosts: &[String]) -> Self {
        let public = public_url.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
        let hosts = public.into_iter().chain(more_hosts.iter().map(String::as_str));
        Self { hosts: hosts.map(|host| host_name(host).to_ascii_lowercase()).collect() }
    }

    /// Why a request is refused, if it is.
    fn refuses(&self, request: &HttpRequest) -> Option<&'static str> {
        if matches!(request.path(), "/health" | "/version") {
            return None;
        }
        let text = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
        let host = text(header::HOST).unwrap_or_default();
        let target = request.uri().authority().map(|authority| authority.as_str());
        if !self.knows(host) || target.is_some_and(|target| !self.knows(target)) {
            return Some(BAD_HOST);
        }
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return None;
        }
        if text(header::ORIGIN).is_some_and(|origin| !is_own_origin(origin, host)) {
            return Some(BAD_ORIGIN);
        }
        (text(HeaderName::from_static("sec-fetch-site")) == Some("cross-site")).then_some(BAD_ORIGIN)
    }

    fn knows(&self, host: &str) -> bool {
        let name = host_name(host).to_ascii_lowercase();
        is_loopback_name(&name) || name.parse::<IpAddr>().is_ok_and(is_private) || self.hosts.contains(&name)
    }
}

/// The host of `host[:port]`, without the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Loopback, "this host", and ranges that cannot be reached from elsewhere.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_unspecified() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unspecified() || address.is_unique_local(),
    }
}

/// Whether an `Origin` is a loopback one or the one that the request is addressed to.
fn is_own_origin(origin: &str, host: &str) -> bool {
    let Some(("http" | "https", authority)) = origin.split_once("://") else { return false };
    !authority.is_empty() && (is_loopback_name(&host_name(authority).to_ascii_lowercase()) || authority.eq_ignore_ascii_case(host))
}

impl<S, B> Transform<S, ServiceRequest> for Guard
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Guarded<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Guarded { guard: self.clone(), service: Rc::new(service) }))
    }
}

/// The service that [`Guard`] makes.
#[derive(Debug)]
pub struct Guarded<S> {
    guard: Guard,
    service: Rc<S>,
}

impl<S, B> Service<ServiceRequest> for Guarded<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        if let Some(reason) = self.guard.refuses(request.request()) {
            tracing::debug!(path = request.path(), reason, "request refused");
            let answer = HttpResponse::Forbidden().content_type("text/plain; charset=utf-8").body(reason);
            let mut response = request.into_response(answer).map_into_right_body();
            add_headers(&mut response);
            return Box::pin(ready(Ok(response)));
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?.map_into_left_body();
            add_headers(&mut response);
            Ok(response)
        })
    }
}

fn add_headers<B>(response: &mut ServiceResponse<B>) {
    for (name, value) in HEADERS {
        if !response.headers().contains_key(&name) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn refused(method: Method, headers: &[(&'static str, &str)]) -> Option<&'static str> {
        let mut request = TestRequest::with_uri("/api/2.0/mlflow/runs/create").method(method);
        for (name, value) in headers {
            request = request.insert_header((*name, *value));
        }
        Guard::new("https://ml.example.org:8443/sluice", &["ci.local".to_owned()]).refuses(&request.to_http_request())
    }

    #[test]
    fn only_known_hosts_are_answered() {
        for good in [
            "localhost",
            "LOCALHOST:5000",
            "127.0.0.1:5000",
            "127.9.9.9",
            "[::1]:5000",
            "0.0.0.0:80",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.9:5000",
            "ml.example.org",
            "ML.example.org:8443",
            "ci.local",
        ] {
            assert_eq!(refused(Method::GET, &[("Host", good)]), None, "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "8.8.8.8",
            "172.32.0.1",
            "127.0.0.1.nip.io",
            "ml.example.org.evil",
            "",
            "[fe80::1]",
            "a@localhost",
        ] {
            assert_eq!(refused(Method::GET, &[("Host", bad)]), Some(BAD_HOST), "{bad}");
        }
        assert_eq!(refused(Method::GET, &[]), Some(BAD_HOST), "none");
    }

    #[test]
    fn only_own_pages_may_change_things() {
        let host = ("Host", "ml.example.org:8443");
        for good in ["http://localhost:3000", "http://127.0.0.1", "https://ml.example.org:8443", "http://[::1]:5000"] {
            assert_eq!(refused(Method::POST, &[host, ("Origin", good)]), None, "{good}");
        }
        for bad in ["https://evil.example", "null", "", "https://localhost.evil.example", "file://localhost", "https://ml.example.org:9999"]
        {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(refused(method, &[host, ("Origin", bad)]), Some(BAD_ORIGIN), "{bad}");
            }
            assert_eq!(refused(Method::GET, &[host, ("Origin", bad)]), None, "reading shows nothing to a foreign page: {bad}");
        }
        assert_eq!(refused(Method::POST, &[host]), None, "a program");
        assert_eq!(refused(Method::POST, &[host, ("Sec-Fetch-Site", "cross-site")]), Some(BAD_ORIGIN));
        assert_eq!(refused(Method::POST, &[host, ("Sec-Fetch-Site", "same-origin")]), None);
    }

    #[test]
    fn health_is_always_answered() {
        let request = TestRequest::with_uri("/health").insert_header(("Host", "10-0-0-1.pod")).to_http_request();
        assert_eq!(Guard::new("http://127.0.0.1:5000", &[]).refuses(&request), None);
    }
}
