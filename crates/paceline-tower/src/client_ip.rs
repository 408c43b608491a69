use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Extensions, HeaderMap, Request};

use paceline::config::ConfigError;

use super::text::{split, unquoted};

/// Finds the address of the client of a request, as a key for its limit.
///
/// ```
/// use axum::extract::{ConnectInfo, Request};
/// use axum::{Router, body::Body, routing::get};
/// use paceline::prelude::*;
/// use paceline_tower::{Answers, ClientIp, EnforceLayer, Proxies, ProxyHeader};
/// use std::net::SocketAddr;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let client = ClientIp::peer::<ConnectInfo<SocketAddr>>()
///     .try_with_header(ProxyHeader::XForwardedFor, Proxies::ranges(["10.0.0.0/8"])).unwrap();
/// let clients = TokenBucket::new(Rate::per_minute(100), 1).keyed();
/// let limit = EnforceLayer::by_key(clients, client.into_key()).answering(Answers::new("clients"));
/// let app = Router::new().route("/", get(async || "hello")).layer(limit);
/// // With `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())` axum adds the peer to each request.
///
/// let status = async |peer: &str, forwarded: &str| {
///     let peer = ConnectInfo(peer.parse::<SocketAddr>().unwrap());
///     let request = Request::get("/").extension(peer).header("x-forwarded-for", forwarded);
///     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
/// };
/// assert_eq!(status("10.0.0.1:80", "spoofed, 203.0.113.7, 10.0.0.2").await, 200);
/// assert_eq!(status("10.0.0.9:80", "203.0.113.7").await, 429);
/// assert_eq!(status("10.0.0.1:80", "203.0.113.8").await, 200);
/// // This peer is not a proxy, so what it says does not count.
/// assert_eq!(status("198.51.100.9:80", "203.0.113.8").await, 200);
/// # }
/// ```
///
/// Limits in Redis take the text of the key: `move |request: &Request| Some(client.key(request).to_string())`.
///
/// * **The peer** of the connection is the client by default. No header is read.
/// * **Behind proxies**, a header names the client. A client can send that header too, and a proxy appends to it. So it is read from
///   the right, and only as far as all that was passed on the way is trusted: the addresses in the [ranges](Proxies::ranges), or a
///   number of [hops](Proxies::hops). Several lines are one list, and empty elements do not count.
/// * **Not readable** is a header if its element at the place of the client is not an address, such as `unknown` or `_hidden`, or is
///   missing because there are fewer elements than hops. Then the key is the peer, and [`unreadable`](Self::unreadable) counts it.
/// * **IPv6** addresses are one key for each /64, since one client has that many, and an IPv4 address mapped to IPv6 is IPv4.
/// * **Without a peer** all requests have one key, `unknown`, so that they are limited together. So it is for a Unix socket, and if
///   the server does not add the extension.
///
/// The work is bounded by the length of the header. An element that is not needed is not parsed, and if 64 are not enough, the header
/// is not readable.
#[derive(Clone)]
#[doc(alias("SmartIpKeyExtractor", "PeerIpKeyExtractor", "X-Forwarded-For"))]
pub struct ClientIp<P = fn(&Extensions) -> Option<IpAddr>> {
    peer: P,
    source: Option<(ProxyHeader, Proxies)>,
    ipv6_prefix: u8,
    unreadable: Arc<Mutex<u64>>,
}

impl ClientIp {
    /// The peer of the connection, as the extension `T` of the request has it: with axum `ConnectInfo<SocketAddr>`.
    ///
    /// axum adds that extension only if the router is served with `into_make_service_with_connect_info::<SocketAddr>()`. For an
    /// extension that is no wrapper of a [`SocketAddr`] there is [`new`](Self::new).
    #[must_use]
    pub fn peer<T>() -> Self
    where
        T: Deref<Target = SocketAddr> + Send + Sync + 'static,
    {
        Self::new(|extensions| extensions.get::<T>().map(|peer| peer.ip()))
    }
}

impl<P> ClientIp<P>
where
    P: Fn(&Extensions) -> Option<IpAddr>,
{
    /// The peer of the connection, as this function finds it in the extensions of the request.
    ///
    /// ```
    /// use http::Request;
    /// use paceline_tower::ClientIp;
    /// use std::net::SocketAddr;
    ///
    /// let client = ClientIp::new(|extensions| extensions.get::<SocketAddr>().map(SocketAddr::ip));
    /// let key = |peer: &str| {
    ///     let request = Request::get("/").extension(peer.parse::<SocketAddr>().unwrap());
    ///     client.key(&request.body(()).unwrap()).to_string()
    /// };
    /// assert_eq!(key("192.0.2.1:80"), "192.0.2.1");
    /// assert_eq!(key("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::/64");
    /// ```
    pub fn new(peer: P) -> Self {
        Self {
            peer,
            source: None,
            ipv6_prefix: 64,
            unreadable: Arc::default(),
        }
    }

    /// The header that these proxies set.
    ///
    /// # Errors
    ///
    /// If a header is chosen already: a proxy sets one of them, and a client could send the other. If [`XRealIp`](ProxyHeader::XRealIp)
    /// has more than 1 hop: it has one address.
    pub fn try_with_header(
        self,
        header: ProxyHeader,
        proxies: Proxies,
    ) -> Result<Self, ConfigError> {
        if let Some((first, _)) = self.source {
            let (first, second) = (first.name(), header.name());
            return fail(format!(
                "the client is read from one header, got `{second}` after `{first}`"
            ));
        }
        match proxies.trust {
            Trust::Hops(hops) if hops > 1 && header == ProxyHeader::XRealIp => fail(format!(
                "`x-real-ip` has one address, which the proxy of 1 hop sets, got {hops} hops"
            )),
            _ => Ok(Self {
                source: Some((header, proxies)),
                ..self
            }),
        }
    }

    /// How many leading bits of an IPv6 address are the key; 64 by default.
    ///
    /// # Errors
    ///
    /// If it is not 1 to 128.
    pub fn try_with_ipv6_prefix(mut self, bits: u8) -> Result<Self, ConfigError> {
        if !(1..=128).contains(&bits) {
            return fail(format!("an IPv6 prefix has 1 to 128 bits, got {bits}"));
        }
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// The key of the request.
    pub fn key<B>(&self, request: &Request<B>) -> ClientKey {
        let address = self.address(request);
        let bits = match address {
            Some(IpAddr::V6(_)) => self.ipv6_prefix,
            _ => 32,
        };
        ClientKey {
            network: address.map(|address| masked(address, bits)),
            bits,
        }
    }

    /// The key of each request, for [`by_key`](super::EnforceLayer::by_key). Every request has one.
    pub fn into_key<B>(self) -> impl Fn(&Request<B>) -> Option<ClientKey> {
        move |request| Some(self.key(request))
    }

    /// The whole address of the client. `None`: there is no peer.
    pub fn address<B>(&self, request: &Request<B>) -> Option<IpAddr> {
        let peer = (self.peer)(request.extensions()).map(|peer| peer.to_canonical());
        let Some((header, proxies)) = &self.source else {
            return peer;
        };
        proxies
            .client(*header, request.headers(), peer)
            .unwrap_or_else(|()| {
                *self.count() += 1;
                peer
            })
    }

    /// Of how many requests the header was not readable where it was needed. Clones count together.
    pub fn unreadable(&self) -> u64 {
        *self.count()
    }

    fn count(&self) -> MutexGuard<'_, u64> {
        let count = self.unreadable.lock();
        count.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> fmt::Debug for ClientIp<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("source", &self.source)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

/// A client, as the key of a limit: an address, or the network of one.
///
/// Its text is the address, with the prefix if it is a network: `203.0.113.7`, `2001:db8:1:2::/64`, or `unknown`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClientKey {
    network: Option<IpAddr>,
    bits: u8,
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            Some(IpAddr::V6(network)) if self.bits < 128 => write!(f, "{network}/{}", self.bits),
            Some(address) => address.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

/// A header in which a proxy names the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ProxyHeader {
    /// `Forwarded` (RFC 7239): its `for` counts.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `X-Real-IP`, one address. The proxy must replace what the client sent.
    XRealIp,
}

impl ProxyHeader {
    const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x-forwarded-for",
            Self::XRealIp => "x-real-ip",
        }
    }

    /// The elements of the list, the last one first.
    fn elements(self, headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
        let lines = headers.get_all(self.name()).iter().rev();
        let elements = lines.flat_map(|line| from_the_right(line.as_bytes()));
        elements.filter(|element| !element.is_empty())
    }

    fn address(self, element: &[u8]) -> Option<IpAddr> {
        let element = core::str::from_utf8(element).ok()?;
        let node = match self {
            Self::Forwarded => forwarded_for(element),
            Self::XForwardedFor | Self::XRealIp => Some(element),
        };
        node.and_then(address_of)
    }
}

/// The proxies in front of a service that are trusted to name the client.
#[derive(Clone, Debug)]
pub struct Proxies {
    trust: Trust,
}

#[derive(Clone, Debug)]
enum Trust {
    Ranges(Arc<[Range]>),
    Hops(u32),
}

impl Proxies {
    /// Proxies with addresses in these ranges: `10.0.0.0/8`, `fd00::/8`, or single addresses.
    ///
    /// The client is the first address from the right that is in none of them. If all are, it is the leftmost.
    ///
    /// # Panics
    ///
    /// If there is no range, or one is not valid; see [`try_ranges`](Self::try_ranges).
    #[must_use]
    #[track_caller]
    pub fn ranges<T: AsRef<str>>(ranges: impl IntoIterator<Item = T>) -> Self {
        or_panic(Self::try_ranges(ranges))
    }

    /// [`ranges`](Self::ranges), for texts from a configuration.
    ///
    /// ```
    /// use paceline_tower::Proxies;
    ///
    /// let error = Proxies::try_ranges(["10.0.0.1/8"]).unwrap_err();
    /// assert_eq!(error.to_string(), "`10.0.0.1/8` has bits after its prefix; its range is `10.0.0.0/8`");
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no range; or if one is not a range, or has bits after its prefix.
    pub fn try_ranges<T: AsRef<str>>(
        ranges: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        let ranges = ranges.into_iter().map(|range| Range::parse(range.as_ref()));
        let ranges: Arc<[Range]> = ranges.collect::<Result<_, _>>()?;
        if ranges.is_empty() {
            return fail("at least 1 range has to be trusted, got 0".to_owned());
        }
        Ok(Self {
            trust: Trust::Ranges(ranges),
        })
    }

    /// This number of proxies in a row, at any address, the peer included.
    ///
    /// The client is the element at this place from the right. Only for a service that cannot be reached past any of them: a client
    /// that gets past one has its own words counted. [`ranges`](Self::ranges) are safer.
    ///
    /// # Panics
    ///
    /// If it is not 1 to 64; see [`try_hops`](Self::try_hops).
    #[must_use]
    #[track_caller]
    pub fn hops(hops: u32) -> Self {
        or_panic(Self::try_hops(hops))
    }

    /// [`hops`](Self::hops), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If it is not 1 to 64.
    pub fn try_hops(hops: u32) -> Result<Self, ConfigError> {
        if !(1..=MOST).contains(&hops) {
            return fail(format!(
                "there are 1 to {MOST} hops to a client, got {hops}"
            ));
        }
        Ok(Self {
            trust: Trust::Hops(hops),
        })
    }

    /// Whether the peer of a connection is one of them, at any address if they are [`hops`](Self::hops). What another peer says of
    /// where a request came from is made up.
    ///
    /// ```
    /// use paceline_tower::Proxies;
    ///
    /// let proxies = Proxies::ranges(["10.0.0.0/8"]);
    /// assert!(proxies.include("10.0.0.1".parse().unwrap()));
    /// assert!(!proxies.include("198.51.100.9".parse().unwrap()));
    /// ```
    #[must_use]
    pub fn include(&self, peer: IpAddr) -> bool {
        match &self.trust {
            Trust::Hops(_) => true,
            Trust::Ranges(ranges) => ranges.iter().any(|range| range.contains(peer)),
        }
    }

    /// The client behind these proxies; `peer` is the last proxy. `Err`: its element is missing, or is not an address.
    fn client(
        &self,
        header: ProxyHeader,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Option<IpAddr>, ()> {
        let mut elements = header.elements(headers);
        let is_ambiguous =
            header == ProxyHeader::XRealIp && header.elements(headers).nth(1).is_some();
        match &self.trust {
            Trust::Hops(hops) => {
                let element = elements.nth(*hops as usize - 1).filter(|_| !is_ambiguous);
                let client = element.and_then(|element| header.address(element));
                client.map(Some).ok_or(())
            }
            Trust::Ranges(_) => {
                let mut client = peer;
                for read in 0.. {
                    if !client.is_some_and(|client| self.include(client)) {
                        break;
                    }
                    let Some(element) = elements.next() else {
                        break;
                    };
                    if read == MOST || is_ambiguous {
                        return Err(());
                    }
                    client = Some(header.address(element).ok_or(())?);
                }
                Ok(client)
            }
        }
    }
}

/// The most elements of a header that are read, and the most hops.
const MOST: u32 = 64;

/// A panic in a closure would be at its line, and not at that of the caller.
#[track_caller]
pub(super) fn or_panic<T>(result: Result<T, ConfigError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

fn fail<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError::new(message))
}

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug)]
struct Range {
    network: IpAddr,
    bits: u8,
}

impl Range {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let not_a_range = || {
            ConfigError::new(format!(
                "`{}` is not a range of addresses, such as `10.0.0.0/8` or `fd00::/8`",
                text.escape_debug()
            ))
        };
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| not_a_range())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| not_a_range()))?;
        if bits > most {
            return fail(format!(
                "the prefix of `{text}` has 0 to {most} bits, got {bits}"
            ));
        }
        let network = masked(address, bits);
        if network != address {
            return fail(format!(
                "`{text}` has bits after its prefix; its range is `{network}/{bits}`"
            ));
        }
        // IPv4 addresses mapped to IPv6 are a range of IPv4.
        Ok(match network.to_canonical() {
            canonical @ IpAddr::V4(_) => Self {
                network: canonical,
                bits: bits - (most - 32),
            },
            _ => Self { network, bits },
        })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.bits) == self.network
    }
}

/// The address with only its first bits.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// The elements of a list, the last one first, without spaces around them. Commas in quotes do not separate.
///
/// A client may send an open quote. It is at the left of what proxies append, so a search from the right does not see it.
fn from_the_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    core::iter::from_fn(move || {
        let line = rest?;
        let mut is_quoted = false;
        let comma = (0..line.len()).rev().find(|&at| {
            is_quoted ^= line[at] == b'"' && !is_escaped(&line[..at]);
            line[at] == b',' && !is_quoted
        });
        rest = comma.map(|comma| &line[..comma]);
        let element = comma.map_or(line, |comma| &line[comma + 1..]);
        Some(element.trim_ascii())
    })
}

/// Whether an odd number of backslashes is at the end.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The value of `for` in an element of `Forwarded`, such as `for="[2001:db8::1]:80";proto=https`. It must be there once.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut nodes = split(element, ';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("for")
            .then(|| value.trim())
    });
    let node = nodes.next();
    node.filter(|_| nodes.next().is_none())
}

/// The address in `192.0.2.1`, `2001:db8::1`, `192.0.2.1:80`, `[2001:db8::1]` or `[2001:db8::1]:80`, also in quotes.
fn address_of(node: &str) -> Option<IpAddr> {
    let node = unquoted(node);
    let address: IpAddr = if let Ok(address) = node.parse() {
        address
    } else if let Some(node) = node.strip_prefix('[') {
        let (host, port) = node.split_once(']')?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let address: Ipv6Addr = host.parse().ok().filter(|_| is_whole)?;
        address.into()
    } else {
        let (host, port) = node.split_once(':')?;
        let address: Ipv4Addr = host.parse().ok().filter(|_| is_port(port))?;
        address.into()
    };
    Some(address.to_canonical())
}

/// A number, or `_` and a name.
fn is_port(port: &str) -> bool {
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match port.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(is_named),
        None => matches!(port.len(), 1..=5) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
