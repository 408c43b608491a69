use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Request, Response, Version};

use super::client::Peer;
use crate::config::Config;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What is about one connection, and not about the message. `Connection` can name more.
const HOP_BY_HOP: [HeaderName; 8] = [
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    TE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
];

/// Fields that a request gets: `Host`, three `X-Forwarded-` and `Via`.
const ADDED_FOR_UPSTREAM: usize = 5;

/// Fields that a response gets: `Via` and two of the limit.
pub(super) const ADDED_FOR_CLIENT: usize = 3;

/// What `Connection` cannot have dropped, and the field that names the client: the upstream relies on them.
const KEPT: [HeaderName; 11] = [
    AUTHORIZATION,
    CONTENT_LENGTH,
    COOKIE,
    FORWARDED,
    HOST,
    TRAILER,
    VIA,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    X_REAL_IP,
];

/// Makes the fields of a request those of a request to the upstream, which is `host`. Returns the protocol that the client wants to
/// switch to.
pub(super) fn for_upstream<B>(
    request: &mut Request<B>,
    peer: &Peer,
    host: &HeaderValue,
    config: &Config,
) -> Option<HeaderValue> {
    let version = request.version();
    let authority = request.uri().authority().cloned();
    let headers = request.headers_mut();

    let mut upgrading = None;
    // Most requests have no such field, and to look at all names is quicker than to look for each.
    if headers.keys().any(is_hop_by_hop) {
        upgrading =
            upgrade(headers).filter(|_| version == Version::HTTP_11 && !config.upstream.is_h2c);
        let takes_trailers = takes_trailers(headers);
        drop_hop_by_hop(headers, config.client.header());
        if takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        if let Some(protocol) = &upgrading {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        } else if takes_trailers && !config.upstream.is_h2c {
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
    headers.reserve(ADDED_FOR_UPSTREAM);
    if version != Version::HTTP_11 {
        headers.remove(EXPECT);
    }
    if version == Version::HTTP_2 && !config.upstream.is_h2c {
        join(headers, COOKIE, "; ");
    }

    let asked = headers.insert(HOST, host.clone());
    let asked = match authority {
        Some(authority) => HeaderValue::try_from(authority.as_str()).ok(),
        None => asked.filter(|asked| !asked.is_empty()),
    };
    if let Some(asked) = asked {
        add(headers, X_FORWARDED_HOST, asked);
    }
    add(headers, X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    append(headers, X_FORWARDED_FOR, peer.text.clone());
    append(headers, VIA, via(version));
    upgrading
}

/// Drops what a caller that is no trusted proxy says of where the request came from.
pub(super) fn drop_forwarded(headers: &mut HeaderMap) {
    let is_made_up = |name: &&HeaderName| {
        // CGI and its like read `_` and `-` as the same.
        let name = name.as_str().replace('_', "-");
        name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-")
    };
    let names: Vec<_> = headers.keys().filter(is_made_up).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Makes the fields of a response those of a response to the client.
pub(super) fn for_client<B>(response: &mut Response<B>) {
    let version = response.version();
    let headers = response.headers_mut();
    if headers.keys().any(is_hop_by_hop) {
        drop_hop_by_hop(headers, None);
    }
    headers.reserve(ADDED_FOR_CLIENT);
    append(headers, VIA, via(version));
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == CONNECTION || HOP_BY_HOP.contains(name)
}

/// Drops the fields of the connection, except the field that names the client.
fn drop_hop_by_hop(headers: &mut HeaderMap, client: Option<&HeaderName>) {
    drop_named(headers, client);
    drop_from_trailers(headers);
}

/// Drops from the trailers of a request what the service takes from its head only: the client, its address, the framing.
pub(super) fn for_upstream_trailers(trailers: &mut HeaderMap, client: Option<&HeaderName>) {
    drop_from_trailers(trailers);
    for name in KEPT.iter().chain(client).chain([&CONNECTION]) {
        trailers.remove(name);
    }
}

/// Drops the fields of the connection from trailers.
pub(super) fn drop_from_trailers(trailers: &mut HeaderMap) {
    for name in &HOP_BY_HOP {
        // There are few names, and to compare them is quicker than to hash this one.
        if trailers.keys().any(|other| other == name) {
            trailers.remove(name);
        }
    }
}

/// Drops `Connection` and what it names.
fn drop_named(headers: &mut HeaderMap, client: Option<&HeaderName>) {
    let Entry::Occupied(connection) = headers.entry(CONNECTION) else {
        return;
    };
    let (_, values) = connection.remove_entry_mult();
    let values: Vec<_> = values.collect();
    for token in values.iter().flat_map(tokens) {
        // Most have one of these two, which are dropped anyway or are no field.
        if !token.eq_ignore_ascii_case(b"keep-alive")
            && !token.eq_ignore_ascii_case(b"close")
            && let Ok(name) = HeaderName::from_bytes(token)
            && !KEPT.contains(&name)
            && client != Some(&name)
        {
            headers.remove(name);
        }
    }
}

/// The protocol that the client wants to switch to. `h2c` is not one: what came after the switch would pass unread.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let is_asked = has_token(headers, &CONNECTION, b"upgrade");
    let is_http = tokens(protocol).any(|token| {
        let name = token.split(|byte| *byte == b'/').next().unwrap_or(token);
        let known: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
        known.iter().any(|known| name.eq_ignore_ascii_case(known))
    });
    (is_asked && !is_http).then(|| protocol.clone())
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    has_token(headers, &TE, b"trailers")
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    let values = headers.get_all(name).iter();
    values
        .flat_map(tokens)
        .any(|other| other.eq_ignore_ascii_case(token))
}

pub(super) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let tokens = value.as_bytes().split(|byte| *byte == b',');
    tokens.map(<[u8]>::trim_ascii)
}

/// Adds the field if it is not there: a proxy in front knows better.
fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if let Entry::Vacant(entry) = headers.entry(name) {
        entry.insert(value);
    }
}

/// Appends an element to a list, in one line.
fn append(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue) {
    if headers.append(&name, element) {
        join(headers, name, ", ");
    }
}

/// Makes one line of several.
fn join(headers: &mut HeaderMap, name: HeaderName, separator: &str) {
    let Entry::Occupied(mut lines) = headers.entry(name) else {
        return;
    };
    if lines.iter().nth(1).is_none() {
        return;
    }
    let all: Vec<_> = lines.iter().map(HeaderValue::as_bytes).collect();
    let line = bytes::Bytes::from(all.join(separator.as_bytes()));
    if let Ok(line) = HeaderValue::from_maybe_shared(line) {
        lines.insert(line);
    }
}

const fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 paceline",
        Version::HTTP_2 => "2 paceline",
        _ => "1.1 paceline",
    })
}
