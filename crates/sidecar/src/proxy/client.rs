use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderName, HeaderValue, Request, StatusCode};
use paceline_tower::{ClientIp, Proxies};

use super::problem::Problem;
use crate::config::{Anonymous, Client, Config};

/// Finds the client of a request, as the configuration says.
pub(super) struct Clients {
    config: Arc<Config>,
    by_ip: Option<ClientIp<PeerOf>>,
    /// Those that tell where a request came from, with clients by address.
    proxies: Option<Proxies>,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(super) ip: IpAddr,
    /// As `X-Forwarded-For` has it: made once a connection.
    pub(super) text: HeaderValue,
}

impl Peer {
    #[must_use]
    pub(crate) fn new(address: SocketAddr) -> Self {
        let ip = address.ip();
        let text = HeaderValue::try_from(ip.to_canonical().to_string());
        Self {
            ip,
            text: text.expect("an address is printable"),
        }
    }
}

type PeerOf = fn(&Extensions) -> Option<IpAddr>;

/// All requests without a client, if they share one. The space makes sure that no header has this value.
const NO_CLIENT: &str = "(no client)";

/// The longest id of a client, in bytes.
const LONGEST: usize = 64;

impl Clients {
    pub(super) fn new(config: Arc<Config>) -> Self {
        let by_ip = || ClientIp::new(peer as PeerOf);
        let (by_ip, proxies) = match &config.client {
            Client::Header(_) => (None, None),
            Client::Ip { header: None, .. } => (Some(by_ip()), None),
            Client::Ip {
                header: Some(header),
                trusted,
            } => {
                let proxies = Proxies::ranges(trusted);
                let by_ip = by_ip().try_with_header(*header, proxies.clone());
                let by_ip = by_ip.expect("the configuration is checked");
                (Some(by_ip), Some(proxies))
            }
        };
        Self {
            config,
            by_ip,
            proxies,
        }
    }

    /// Whether this peer may tell where a request came from.
    pub(super) fn trust(&self, peer: &Peer) -> bool {
        self.proxies
            .as_ref()
            .is_some_and(|proxies| proxies.include(peer.ip))
    }

    pub(super) fn are_of(&self, config: &Arc<Config>) -> bool {
        Arc::ptr_eq(&self.config, config)
    }

    /// The id of the client; `None` for a request without one that may pass.
    pub(super) fn client<'a, B>(
        &self,
        peer: &Peer,
        request: &'a mut Request<B>,
    ) -> Result<Option<Cow<'a, str>>, Problem> {
        let header = match (&self.config.client, &self.by_ip) {
            (Client::Header(header), _) => header,
            (Client::Ip { .. }, by_ip) => {
                request.extensions_mut().insert(PeerIp(peer.ip));
                let key = by_ip.as_ref().map(|by_ip| by_ip.key(request).to_string());
                return Ok(key.map(Cow::Owned));
            }
        };
        let mut values = request.headers().get_all(header).iter();
        match (values.next(), values.next(), self.config.anonymous) {
            (Some(id), None, _) => id_in(header, id).map(Cow::Borrowed).map(Some),
            (Some(_), Some(_), _) => Err(bad(header, "is there several times")),
            (None, _, Anonymous::Pass) => Ok(None),
            (None, _, Anonymous::Share) => Ok(Some(Cow::Borrowed(NO_CLIENT))),
            (None, _, Anonymous::Refuse) => Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("the field `{header}`, which names the client, is missing"),
            )),
        }
    }
}

#[derive(Clone, Copy)]
struct PeerIp(IpAddr);

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<PeerIp>().map(|peer| peer.0)
}

fn id_in<'a>(header: &HeaderName, value: &'a HeaderValue) -> Result<&'a str, Problem> {
    let id = value.as_bytes();
    if id.is_empty() {
        return Err(bad(header, "is empty"));
    }
    if id.len() > LONGEST {
        return Err(bad(
            header,
            &format!("has at most {LONGEST} bytes, got {}", id.len()),
        ));
    }
    match value.to_str() {
        Ok(id) if id.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(id),
        _ => Err(bad(header, "is not visible ASCII without spaces")),
    }
}

fn bad(header: &HeaderName, what: &str) -> Problem {
    Problem::bad_request(format!(
        "the field `{header}`, which names the client, {what}"
    ))
}
