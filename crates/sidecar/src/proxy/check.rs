use http::header::{HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{Method, Request, StatusCode, Version};

use super::problem::Problem;

/// An extension of a request of HTTP/1 with several lengths, or one beside `Transfer-Encoding`. hyper keeps one of the fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramedTwice;

/// Refuses a request that the sidecar and the upstream could read in two ways, or that a proxy of one service does not know.
///
/// Faults that hyper passes. It has refused those of syntax, a length that is no number, and a coding that does not end with `chunked`.
pub(super) fn request<B>(request: &Request<B>) -> Result<(), Problem> {
    let bad = |why: &'static str| Err(Problem::bad_request(why));
    let unknown = |why: &'static str| Err(Problem::new(StatusCode::NOT_IMPLEMENTED, why));
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    if codings.next().is_some() || request.extensions().get::<FramedTwice>().is_some() {
        return bad(
            "the length of the body is said twice, by `Content-Length` or `Transfer-Encoding`",
        );
    }
    if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return unknown("no coding is supported in `Transfer-Encoding` but `chunked` alone");
    }
    if *request.method() == Method::CONNECT {
        return unknown("CONNECT is not supported");
    }
    let target = request.uri();
    if target.path_and_query().is_none() {
        return bad("the target of the request has no path");
    }
    if target.path() == "*" && *request.method() != Method::OPTIONS {
        return bad("the target `*` is for OPTIONS");
    }

    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return bad("there are several fields `Host`");
    }
    if let Some(host) = host
        && !is_host(host)
    {
        return bad("the field `Host` is not a host");
    }
    match (target.authority(), host) {
        (Some(authority), Some(host)) if !is_same(authority, host, target.scheme()) => {
            bad("the target of the request and the field `Host` differ")
        }
        (Some(authority), _) if authority.as_str().contains('@') => {
            bad("the target of the request has a user name")
        }
        (_, None) if request.version() == Version::HTTP_11 => bad("the field `Host` is missing"),
        (None, None) if request.version() == Version::HTTP_2 => {
            bad("`:authority` and the field `Host` are missing")
        }
        _ => Ok(()),
    }
}

/// The characters of a host with a port. An empty one is allowed, for targets without a host.
fn is_host(host: &HeaderValue) -> bool {
    let is_mark = |byte| matches!(byte, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'_' | b'~');
    let mut bytes = host.as_bytes().iter();
    bytes.all(|&byte| byte.is_ascii_alphanumeric() || is_mark(byte) || b"[]".contains(&byte))
}

fn is_same(authority: &Authority, host: &HeaderValue, scheme: Option<&Scheme>) -> bool {
    let default = match scheme.map(Scheme::as_str) {
        Some("https") => 443,
        _ => 80,
    };
    let Ok(host) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(default);
    host.host().eq_ignore_ascii_case(authority.host()) && port(&host) == port(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, target: &str, hosts: &[&str]) -> Result<(), String> {
        let mut parts = Request::builder().version(version).uri(target);
        for host in hosts {
            parts = parts.header(HOST, *host);
        }
        request(&parts.body(()).unwrap()).map_err(|problem| problem.detail().to_owned())
    }

    #[test]
    fn one_host_is_required() {
        let http11 = |target, hosts: &[&str]| checked(Version::HTTP_11, target, hosts);
        assert_eq!(http11("/", &["a"]), Ok(()));
        assert_eq!(http11("/", &["[::1]:80"]), Ok(()));
        assert_eq!(http11("/", &[""]), Ok(()));
        assert!(http11("/", &[]).unwrap_err().contains("missing"));
        assert!(http11("/", &["a", "a"]).unwrap_err().contains("several"));
        for host in ["a b", "a/b", "u@a", "a?", "a#", "\"a\""] {
            assert!(
                http11("/", &[host]).unwrap_err().contains("not a host"),
                "{host}"
            );
        }
        assert_eq!(checked(Version::HTTP_10, "/", &[]), Ok(()));
        assert_eq!(checked(Version::HTTP_2, "http://a/", &[]), Ok(()));
        assert!(checked(Version::HTTP_2, "/", &[]).is_err());
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        let http11 = |target, hosts: &[&str]| checked(Version::HTTP_11, target, hosts);
        assert_eq!(http11("http://a/x", &["a"]), Ok(()));
        assert_eq!(http11("http://A:80/x", &["a"]), Ok(()));
        assert_eq!(http11("https://a/x", &["a:443"]), Ok(()));
        for (target, host) in [
            ("http://a/x", "b"),
            ("http://a/x", "a:81"),
            ("http://a:80/x", "a:443"),
            ("http://a/x", ""),
        ] {
            let error = http11(target, &[host]).unwrap_err();
            assert!(error.contains("differ"), "{target} {host}: {error}");
        }
        assert!(http11("http://u@a/x", &["a"]).is_err());
        assert!(http11("a:80", &["a:80"]).unwrap_err().contains("no path"));
        assert!(http11("*", &["a"]).unwrap_err().contains("OPTIONS"));
    }
}
