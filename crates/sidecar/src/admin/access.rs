//! Which requests may look, and which may change.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, FORWARDED, HOST, HeaderName, ORIGIN, VIA};
use http::uri::Authority;

/// Why a request is answered with 403.
type Forbidden = &'static str;

/// Refuses a request of this machine for another host. A browser sends one after a foreign name was bound to a loopback address
/// (DNS rebinding), and would show the answer to the page that asked.
pub(super) fn check_host(peer: SocketAddr, headers: &HeaderMap) -> Result<(), Forbidden> {
    if !is_loopback(peer) || is_own_host(headers) {
        return Ok(());
    }
    Err("from this machine, header host has to be an IP address or localhost")
}

/// Refuses a change unless it comes with the token, or from a program on this machine.
pub(super) async fn check_change(
    peer: SocketAddr,
    headers: &HeaderMap,
    token_file: Option<&Path>,
) -> Result<(), Forbidden> {
    if headers.contains_key(AUTHORIZATION) {
        return check_token(headers, token_file).await;
    }
    if !is_loopback(peer) || was_forwarded(headers) {
        return Err(
            "a change has to come from this machine, or with header authorization: Bearer and the token in the file that \
             admin_token_file names",
        );
    }
    check_site(headers)
}

/// Refuses what a page of another site can make a browser send. Only the own page can set a header or a content type of which
/// browsers ask permission first, and only it has the origin of this port.
fn check_site(headers: &HeaderMap) -> Result<(), Forbidden> {
    if let Some(site) = headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return Err("a change cannot come from a page of another site");
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let host = headers.get(HOST).map_or(&b""[..], |host| host.as_bytes());
        if origin.as_bytes().strip_prefix(b"http://") != Some(host) {
            return Err("a change cannot come from a page of another origin");
        }
    }
    let content_type = headers.get(CONTENT_TYPE);
    let is_json =
        content_type.is_some_and(|value| media_type(value.as_bytes()) == b"application/json");
    if is_json || headers.contains_key("x-requested-with") {
        return Ok(());
    }
    Err(
        "a change needs header content-type: application/json, or any header x-requested-with, which a page of another site \
         cannot send",
    )
}

/// The token is read at each use, so that a new one holds at once.
async fn check_token(headers: &HeaderMap, file: Option<&Path>) -> Result<(), Forbidden> {
    let Some(file) = file else {
        return Err("there is no token, since admin_token_file is not set");
    };
    let token = match tokio::fs::read(file).await {
        Ok(token) => token,
        Err(error) => {
            tracing::error!(%error, file = %file.display(), "the file of admin_token_file cannot be read");
            return Err("the file of admin_token_file cannot be read");
        }
    };
    let token = token.trim_ascii();
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(given), None) = (given.next(), given.next()) else {
        return Err("there are two headers authorization");
    };
    let given = given.as_bytes();
    let is_bearer = given
        .get(..7)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    if is_bearer && !token.is_empty() && is_equal(given[7..].trim_ascii(), token) {
        return Ok(());
    }
    Err("header authorization has to be Bearer and the token")
}

/// In a time that depends on the lengths only.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let differing = left
        .iter()
        .zip(right)
        .fold(0, |bits, (l, r)| bits | black_box(l ^ r));
    left.len() == right.len() && black_box(differing) == 0
}

fn is_loopback(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

/// Whether a proxy on this machine passed it on for another client.
fn was_forwarded(headers: &HeaderMap) -> bool {
    let by_proxies = ["x-forwarded-for", "x-forwarded-host", "x-real-ip"];
    let by_proxies = by_proxies.map(HeaderName::from_static);
    let mut names = [FORWARDED, VIA].into_iter().chain(by_proxies);
    names.any(|name| headers.contains_key(name))
}

fn is_own_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// A content type without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';');
    content_type[..end.unwrap_or(content_type.len())].trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = http::HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    #[test]
    fn a_loopback_host_is_an_address_or_localhost() {
        for host in [
            "localhost",
            "LOCALHOST:9102",
            "127.0.0.1:1",
            "[::1]:9102",
            "10.0.0.7:9102",
        ] {
            assert!(is_own_host(&headers(&[("host", host)])), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:9102",
            "127.0.0.1.nip.io",
            "a@localhost@b",
        ] {
            assert!(!is_own_host(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_own_host(&headers(&[])));
        assert!(!is_own_host(&headers(&[
            ("host", "localhost"),
            ("host", "localhost")
        ])));
    }

    #[test]
    fn an_address_of_this_machine_may_be_mapped() {
        for peer in [
            "127.0.0.1:1",
            "127.8.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_loopback(peer.parse().unwrap()), "{peer}");
        }
        for peer in [
            "10.0.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "[fe80::1]:1",
            "0.0.0.0:1",
        ] {
            assert!(!is_loopback(peer.parse().unwrap()), "{peer}");
        }
    }

    #[tokio::test]
    async fn another_machine_changes_nothing_without_the_token() {
        let json = headers(&[("host", "10.0.0.1"), ("content-type", "application/json")]);
        for peer in ["10.0.0.1:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"] {
            let peer = peer.parse().unwrap();
            assert!(check_change(peer, &json, None).await.is_err());
        }
        let local = "127.0.0.1:1".parse().unwrap();
        assert!(check_change(local, &json, None).await.is_ok());
    }

    #[test]
    fn equal_is_equal_in_length_and_bytes() {
        assert!(is_equal(b"secret", b"secret"));
        for other in ["", "s", "secreT", "secrets", "Secret"] {
            assert!(!is_equal(other.as_bytes(), b"secret"), "{other}");
        }
    }
}
