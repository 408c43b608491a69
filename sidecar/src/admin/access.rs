//! Who may look, and who may change.

use std::net::{IpAddr, SocketAddr};

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, StatusCode};

use super::answer::{Answer, problem};

/// Refuses a request of this machine for another host. A browser sends one after a foreign name was bound to a loopback address
/// (DNS rebinding), and would show the answer to the page that asked.
pub(super) fn check_host(peer: SocketAddr, headers: &HeaderMap) -> Result<(), Answer> {
    if !peer.ip().to_canonical().is_loopback() || is_own_host(headers) {
        return Ok(());
    }
    Err(problem(
        StatusCode::FORBIDDEN,
        "from this machine, header host has to be an IP address or localhost",
    ))
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
