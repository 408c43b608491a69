//! What the sidecar is told: flags over environment over a TOML file over defaults.

mod build;
mod cli;
mod reading;
mod reload;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod upstream;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use paceline::fair::{ClientTerms, Division, FairShare, GuaranteedShare, Newcomers};
use paceline::limiter::Share;
use paceline_tower::ProxyHeader;
use serde::{Deserialize, Serialize};

pub(crate) use self::cli::{Task, task};
pub(crate) use self::reload::{reload, watch};
pub(crate) use self::source::Source;
use self::value::Shown;
pub(crate) use self::value::duration;

/// A configuration that was checked. A reload replaces it as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The public port. Not changed by a reload.
    pub(crate) listen: SocketAddr,
    /// The port for operators; port 0 asks the system for a free one, also in `listen`. Not changed by a reload.
    pub(crate) admin: SocketAddr,
    /// A file with the token that changes from another machine need.
    pub(crate) admin_token_file: Option<PathBuf>,
    /// The service. Not changed by a reload.
    pub(crate) upstream: Upstream,
    /// The number of threads, each with a runtime, a listener and a pool of upstream connections. Not changed by a reload.
    pub(crate) cores: usize,
    /// What the clients share.
    pub(crate) fair: Fair,
    /// What is special for a client, by its id. It always has a share of its own.
    pub(crate) terms: BTreeMap<String, ClientTerms>,
    /// Where a request names its client.
    pub(crate) client: Client,
    /// What happens to a request without a client.
    pub(crate) anonymous: Anonymous,
    /// Whether the share is enforced.
    pub(crate) mode: Mode,
    /// The part of the clients for which it is, in mode [`Mode::Enforce`].
    pub(crate) enforced: Share,
    /// Whether successes also carry the `RateLimit` headers.
    pub(crate) headers_on_success: bool,
    /// Requests under way in the upstream; `None`: any number.
    pub(crate) concurrency: Option<Concurrency>,
    /// The shedder of this worker; `None`: off.
    pub(crate) shed: Option<Shed>,
    /// Timeouts.
    pub(crate) timeouts: Timeouts,
    /// Size limits.
    pub(crate) bounds: Bounds,
    /// How the end goes.
    pub(crate) drain: Drain,
    /// The least important level that is logged. Not changed by a reload.
    pub(crate) log: tracing::Level,
    /// Whether the log is in JSON. Not changed by a reload.
    pub(crate) log_json: bool,
    /// Each setting as text, by its key.
    shown: BTreeMap<&'static str, Shown>,
}

/// Where requests go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Upstream {
    /// Host and port, as in the `Host` header.
    pub(crate) authority: http::uri::Authority,
    /// Whether HTTP/2 with prior knowledge is spoken to it (`h2c://`), and not HTTP/1.1 (`http://`).
    pub(crate) is_h2c: bool,
}

/// The parameters of the fair share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fair {
    pub(crate) capacity: u32,
    pub(crate) cycle: Duration,
    pub(crate) sharing: Sharing,
    /// What a client can save up, with [`Sharing::Guaranteed`].
    pub(crate) depth: Depth,
    /// The part of its default that a client never lends.
    pub(crate) reservation: Share,
    pub(crate) is_max_min: bool,
    /// How often in a cycle a new client ends it early; `None`: a new client joins the running cycle.
    pub(crate) early_cycles: Option<u32>,
    /// Beside the clients of the file.
    pub(crate) max_clients: u32,
    /// Whether only the clients of the file have a share of their own.
    pub(crate) is_known_only: bool,
    /// The number of idle cycles after which a client is forgotten.
    pub(crate) forgetting_after: u32,
    pub(crate) has_carry: bool,
}

impl Fair {
    /// The number of clients with a share of their own that are not in the file.
    const fn max_unknown(&self) -> u32 {
        if self.is_known_only {
            0
        } else {
            self.max_clients
        }
    }
}

/// The rule by which clients share the capacity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sharing {
    /// [`FairShare`].
    Demand,
    /// [`GuaranteedShare`].
    Guaranteed,
}

/// A part of a cycle, or several of them, in ten-thousandths.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Depth(u32);

/// The bounds of the lending and borrowing of a client that are set, by their keys.
fn bounds(terms: &ClientTerms) -> impl Iterator<Item = (&'static str, u32)> {
    let bounds = [
        ("most-lent", terms.most_lent()),
        ("most-borrowed", terms.most_borrowed()),
    ];
    bounds
        .into_iter()
        .filter_map(|(key, most)| Some((key, most?)))
}

/// Where a request names its client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Client {
    /// In this header.
    Header(http::HeaderName),
    /// By the address of its connection, or as trusted proxies say: ranges such as `10.0.0.0/8`.
    Ip {
        header: Option<ProxyHeader>,
        trusted: Vec<String>,
    },
}

impl Client {
    /// The header with the id.
    pub(crate) const fn header(&self) -> Option<&http::HeaderName> {
        match self {
            Self::Header(header) => Some(header),
            Self::Ip { .. } => None,
        }
    }
}

/// What happens to a request without a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Anonymous {
    /// 429.
    Refuse,
    /// It passes, uncounted.
    Pass,
    /// All of them are one client.
    Share,
}

/// Whether the share is enforced.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Requests above it are refused.
    Enforce,
    /// It is decided and published, and nothing is refused.
    Passthrough,
    /// It is not asked.
    Off,
}

impl Mode {
    pub(crate) const NAMES: [(&str, Self); 3] = [
        ("enforce", Self::Enforce),
        ("passthrough", Self::Passthrough),
        ("off", Self::Off),
    ];
}

/// A bound on the requests under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Concurrency {
    Fixed(u32),
    /// It follows the latency.
    Adaptive {
        initial: u32,
        max: u32,
    },
}

/// The shedder of this worker, over the CPU of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shed {
    pub(crate) good: f64,
    pub(crate) bad: f64,
    pub(crate) delay: Duration,
    pub(crate) ramp: Duration,
}

/// Timeouts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Timeouts {
    /// Until the head of a request is complete, counted from its first byte, or from the connect.
    pub(crate) head: Duration,
    /// Between two requests of a connection.
    pub(crate) between: Duration,
    /// Without a byte of a body, in either direction.
    pub(crate) body: Duration,
    /// Until there is room for a request under way; zero: at once or not at all.
    pub(crate) queue: Duration,
    /// Until the upstream accepts a connection.
    pub(crate) connect: Duration,
    /// Until the head of the upstream's response is complete.
    pub(crate) response: Duration,
    /// How long an idle connection to the upstream is kept.
    pub(crate) upstream_idle: Duration,
}

/// Size limits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Bounds {
    /// Bytes of the head of a request. Not changed by a reload, nor are the fields and the streams.
    pub(crate) head_bytes: usize,
    /// Fields of the head of a request.
    pub(crate) fields: usize,
    /// Connections of clients.
    pub(crate) connections: usize,
    /// Those of one address; `None`: any number.
    pub(crate) of_address: Option<u32>,
    /// Streams of one HTTP/2 connection at once.
    pub(crate) streams: u32,
}

/// How the end goes, after SIGTERM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Drain {
    /// `/readyz` says 503, and connections are still accepted.
    pub(crate) announce: Duration,
    /// Then requests and upgraded connections may finish. A connection that has sent nothing is closed at once, and one with a part of
    /// a head after 1 s to 2 s, or after the timeout of a head if that is shorter.
    pub(crate) finish: Duration,
}

impl Config {
    /// Changes the mode, the enforced part of the clients, or both, until the next reload.
    pub(crate) fn change(&mut self, mode: Option<Mode>, enforced: Option<Share>) {
        self.mode = mode.unwrap_or(self.mode);
        self.enforced = enforced.unwrap_or(self.enforced);
        self.shown.insert("mode", Shown::of(&self.mode));
        self.shown.insert("enforced", Shown::of(&self.enforced));
    }

    /// The parameters of the limit with [`Sharing::Demand`].
    pub(crate) fn fair_share(&self) -> FairShare {
        let fair = &self.fair;
        let division = if fair.is_max_min {
            Division::MaxMin
        } else {
            Division::Proportional
        };
        let newcomers = match fair.early_cycles {
            Some(at_most) => Newcomers::EndCycle { at_most },
            None => Newcomers::Join,
        };
        FairShare::new(fair.capacity, fair.cycle)
            .try_with_reservation(fair.reservation.ten_thousandths())
            .expect("the configuration is checked")
            .with_division(division)
            .with_newcomers(newcomers)
            .try_with_max_clients(fair.max_unknown())
            .expect("the configuration is checked")
            .try_forgetting_after(fair.forgetting_after)
            .expect("the configuration is checked")
            .with_carry(fair.has_carry)
    }

    /// The parameters of the limit with [`Sharing::Guaranteed`].
    pub(crate) fn guaranteed_share(&self) -> GuaranteedShare {
        let fair = &self.fair;
        GuaranteedShare::new(fair.capacity, fair.cycle)
            .try_with_depth(fair.depth.0)
            .expect("the configuration is checked")
            .try_with_max_clients(fair.max_unknown())
            .expect("the configuration is checked")
            .try_forgetting_after(fair.forgetting_after)
            .expect("the configuration is checked")
    }

    /// Whether the share is enforced for a client with this id, or for this address without an id.
    pub(crate) fn enforces(&self, client: &str) -> bool {
        self.mode == Mode::Enforce && self.enforced.includes(client)
    }
}
