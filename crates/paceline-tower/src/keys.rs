use core::str;
use std::borrow::Cow;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request, Uri};

/// The value of a header as the key of a request; for [`by_key`](super::EnforceLayer::by_key). `None` without the header.
///
/// A request without a key is **not limited**. Where callers can leave the header out, refuse such requests or let them share a limit
/// ([`on_missing_key`](super::LimitLayer::on_missing_key)), or give them another key, such as that of [`ClientIp`](super::ClientIp).
///
/// The first of several lines counts. An empty value is a key like any other, which all its senders share. Bytes that are not UTF-8 become `U+FFFD`, so that such a value is a key too.
///
/// ```
/// use http::Request;
/// use paceline_tower::header_key;
///
/// let key = header_key("x-api-key");
/// let request = Request::get("/").header("X-API-Key", "s3cret").body(()).unwrap();
/// assert_eq!(key(&request), Some("s3cret".to_owned()));
/// assert_eq!(key(&Request::new(())), None);
/// ```
///
/// # Panics
///
/// If this is not the name of a header.
#[doc(alias("api key", "KeyExtractor"))]
#[track_caller]
pub fn header_key<B>(name: &'static str) -> impl Fn(&Request<B>) -> Option<String> + Clone {
    let name = header_named(name);
    move |request| value(request.headers(), &name).map(Cow::into_owned)
}

/// An extension as the key of a request, such as the user that a layer in front has found; for
/// [`by_key`](super::EnforceLayer::by_key). `None` without the extension, and such a request is **not limited**.
///
/// ```
/// use http::Request;
/// use paceline_tower::extension_key;
///
/// #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
/// struct UserId(u64);
///
/// let key = extension_key::<UserId, ()>();
/// let request = Request::get("/").extension(UserId(7)).body(()).unwrap();
/// assert_eq!(key(&request), Some(UserId(7)));
/// ```
pub fn extension_key<K, B>() -> impl Fn(&Request<B>) -> Option<K> + Clone
where
    K: Clone + Send + Sync + 'static,
{
    |request| request.extensions().get::<K>().cloned()
}

/// The host of an outbound request as its key, for [`PaceLayer::by_key`](super::PaceLayer::by_key): that of its URI, and else of its
/// `Host` header. `None` without both, and such a request is **not limited**.
///
/// It is in lower case and has the port, unless that is the default of the scheme. It has no user name and no password.
///
/// ```
/// use http::Request;
/// use paceline_tower::host_key;
///
/// let key = host_key();
/// let host = |uri: &str| key(&Request::get(uri).body(()).unwrap()).unwrap();
/// assert_eq!(host("https://API.Example/users?page=1"), "api.example");
/// assert_eq!(host("https://api.example:443/orders"), "api.example");
/// assert_eq!(host("https://api.example:8443/"), "api.example:8443");
/// ```
pub fn host_key<B>() -> impl Fn(&Request<B>) -> Option<String> + Clone {
    |request| host(request.uri(), request.headers())
}

#[track_caller]
pub(super) fn header_named(name: &str) -> HeaderName {
    // A panic in a closure would be at its line, and not at that of the caller.
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        panic!("`{}` is not the name of a header", name.escape_debug())
    };
    header
}

#[inline]
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let value = headers.get(name)?.as_bytes();
    let lossy = |_| String::from_utf8_lossy(value);
    Some(str::from_utf8(value).map_or_else(lossy, Cow::Borrowed))
}

fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let of_header = || headers.get(HOST)?.as_bytes().try_into().ok();
    let authority: Authority = uri.authority().cloned().or_else(of_header)?;
    let default_port = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    let host = authority.host().to_ascii_lowercase();
    let port = authority
        .port_u16()
        .filter(|port| Some(*port) != default_port);
    Some(match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}
