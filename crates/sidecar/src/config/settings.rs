//! The settings: each has one name, which is its flag, its environment variable and its key in the file.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;
use http::uri::Authority;

use super::value::{ClientBy, Field};
use super::{Client, Config, IpHeader, Shed, Upstream};

/// A setting. `timeout` is the flag `--timeout`, the variable `PACELINE_TIMEOUT`, and the key `timeout` of the file.
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) help: &'static str,
    pub(super) is_required: bool,
    /// Whether it stays as it was at the start.
    pub(super) is_fixed: bool,
    pub(super) field: fn(&mut Draft) -> &mut dyn Field,
}

impl Setting {
    const fn new(
        key: &'static str,
        field: fn(&mut Draft) -> &mut dyn Field,
        help: &'static str,
    ) -> Self {
        Self {
            key,
            help,
            is_required: false,
            is_fixed: false,
            field,
        }
    }

    /// Without a default.
    const fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    /// Not changed by a reload.
    const fn fixed(self) -> Self {
        Self {
            is_fixed: true,
            ..self
        }
    }

    /// The name of its environment variable.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_uppercase().replace('-', "_"))
    }
}

/// What the names of the environment variables begin with.
pub(super) const PREFIX: &str = "PACELINE_";

/// The settings, in groups with their heading in the help text.
pub(super) const GROUPS: &[(&str, &[Setting])] = &[
    (
        "Addresses",
        &[
            Setting::new(
                "listen",
                |it| &mut it.config.listen,
                "The address for clients; port 0 takes a free one",
            )
            .required()
            .fixed(),
            Setting::new(
                "upstream",
                |it| &mut it.config.upstream,
                "The service, http:// for HTTP/1.1 or h2c:// for HTTP/2 without TLS",
            )
            .required()
            .fixed(),
            Setting::new(
                "admin",
                |it| &mut it.config.admin,
                "The address for operators: metrics, probes, the live page",
            )
            .fixed(),
            Setting::new(
                "admin-token-file",
                |it| &mut it.config.admin_token_file,
                "A file with the token for changes from other machines; without it only this machine changes anything",
            ),
            Setting::new(
                "cores",
                |it| &mut it.config.cores,
                "The number of threads that serve clients",
            )
            .fixed(),
        ],
    ),
    (
        "Fair share",
        &[
            Setting::new(
                "capacity",
                |it| &mut it.config.fair.capacity,
                "The number of requests a cycle that the clients share",
            )
            .required(),
            Setting::new(
                "cycle",
                |it| &mut it.config.fair.cycle,
                "The length of a cycle",
            )
            .required(),
            Setting::new(
                "reservation",
                |it| &mut it.config.fair.reservation,
                "The part of its default share that a client never lends",
            ),
            Setting::new(
                "max-min",
                |it| &mut it.config.fair.is_max_min,
                "Divide by max-min fairness, not in proportion to what is missing",
            ),
            Setting::new(
                "early-cycles",
                |it| &mut it.config.fair.early_cycles,
                "How often in a cycle a new client ends it early, and as often one of the file; off: it joins the running cycle",
            ),
            Setting::new(
                "max-clients",
                |it| &mut it.config.fair.max_clients,
                "The number of clients with a share of their own, beside those of the file; the others have one together",
            ),
            Setting::new(
                "known-only",
                |it| &mut it.config.fair.is_known_only,
                "Only the clients of the file have a share of their own; the others have one together",
            ),
            Setting::new(
                "forget-after",
                |it| &mut it.config.fair.forgetting_after,
                "The number of cycles without a request after which a client is forgotten",
            ),
            Setting::new(
                "carry",
                |it| &mut it.config.fair.has_carry,
                "Carry fractions of a request over to the next cycle",
            ),
        ],
    ),
    (
        "Clients",
        &[
            Setting::new(
                "client",
                |it| &mut it.by,
                "How a client is known: header or ip",
            ),
            Setting::new(
                "client-header",
                |it| &mut it.header,
                "The header with the id of the client",
            ),
            Setting::new(
                "ip-header",
                |it| &mut it.ip_header,
                "The header in which trusted proxies name the client: forwarded, x-forwarded-for, x-real-ip or none",
            ),
            Setting::new(
                "trusted-proxies",
                |it| &mut it.trusted,
                "The addresses of these proxies, as in 10.0.0.0/8,fd00::/8",
            ),
            Setting::new(
                "anonymous",
                |it| &mut it.config.anonymous,
                "What happens to requests without a client: refuse (429), pass (uncounted) or share (as one client)",
            ),
        ],
    ),
    (
        "Enforcement",
        &[
            Setting::new(
                "mode",
                |it| &mut it.config.mode,
                "enforce, passthrough (decide and publish, refuse nothing) or off",
            ),
            Setting::new(
                "enforced",
                |it| &mut it.config.enforced,
                "The part of the clients that mode enforce is for; of requests without an id: by their address",
            ),
            Setting::new(
                "headers-on-success",
                |it| &mut it.config.headers_on_success,
                "Add the RateLimit headers to responses of the upstream too",
            ),
            Setting::new(
                "concurrency",
                |it| &mut it.config.concurrency,
                "The maximum of requests under way in the upstream; 20..200: adaptive, begins at 20",
            ),
            Setting::new(
                "shed",
                |it| &mut it.has_shed,
                "Shed requests when the CPU of the cgroup is overloaded",
            ),
            Setting::new(
                "shed-good",
                |it| &mut it.shed.good,
                "The CPU utilization below which less is shed",
            ),
            Setting::new(
                "shed-bad",
                |it| &mut it.shed.bad,
                "The CPU utilization from which on more is shed",
            ),
            Setting::new(
                "shed-delay",
                |it| &mut it.shed.delay,
                "How long a full CPU lasts before shedding begins",
            ),
            Setting::new(
                "shed-ramp",
                |it| &mut it.shed.ramp,
                "How long it then lasts until everything is shed",
            ),
        ],
    ),
    (
        "Timeouts",
        &[
            Setting::new(
                "head-timeout",
                |it| &mut it.config.timeouts.head,
                "Until the head of a request is complete",
            ),
            Setting::new(
                "idle-timeout",
                |it| &mut it.config.timeouts.between,
                "Between two requests of a connection",
            ),
            Setting::new(
                "body-timeout",
                |it| &mut it.config.timeouts.body,
                "Between two pieces of a body, in either direction",
            ),
            Setting::new(
                "connect-timeout",
                |it| &mut it.config.timeouts.connect,
                "Until the upstream accepts a connection",
            ),
            Setting::new(
                "response-timeout",
                |it| &mut it.config.timeouts.response,
                "Until the head of the upstream's response is complete",
            ),
            Setting::new(
                "upstream-idle-timeout",
                |it| &mut it.config.timeouts.upstream_idle,
                "How long an idle connection to the upstream is kept; less than the upstream keeps it",
            ),
            Setting::new(
                "drain-announce",
                |it| &mut it.config.drain.announce,
                "After SIGTERM: not ready, but still accepting",
            ),
            Setting::new(
                "drain-finish",
                |it| &mut it.config.drain.finish,
                "Then: requests under way may finish",
            ),
        ],
    ),
    (
        "Bounds",
        &[
            Setting::new(
                "max-head-bytes",
                |it| &mut it.config.bounds.head_bytes,
                "Bytes of the head of a request",
            )
            .fixed(),
            Setting::new(
                "max-fields",
                |it| &mut it.config.bounds.fields,
                "Header fields of a request",
            )
            .fixed(),
            Setting::new(
                "max-connections",
                |it| &mut it.config.bounds.connections,
                "Connections of clients at once, and streams of HTTP/2",
            ),
            Setting::new(
                "max-connections-per-address",
                |it| &mut it.config.bounds.of_address,
                "Connections from one address at once, or one /64 of IPv6; a gateway in front is one address",
            ),
            Setting::new(
                "max-streams",
                |it| &mut it.config.bounds.streams,
                "Streams of an HTTP/2 connection at once",
            )
            .fixed(),
        ],
    ),
    (
        "Log",
        &[
            Setting::new(
                "log",
                |it| &mut it.config.log,
                "The least important level: error, warn, info, debug (with the sums of each cycle) or trace",
            )
            .fixed(),
            Setting::new(
                "log-json",
                |it| &mut it.config.log_json,
                "Write the log as JSON",
            )
            .fixed(),
        ],
    ),
];

/// All settings.
pub(super) fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|(_, settings)| *settings)
}

/// The setting with this key.
pub(super) fn setting(key: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.key == key)
}

/// The known name that is most like a wrong one, if one is like it. What both begin with does not make them alike.
pub(super) fn nearest(wrong: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let near = known.map(|name| (strsim::damerau_levenshtein(wrong, &name), name));
    let (distance, name) = near.min()?;
    let length = wrong.strip_prefix(PREFIX).unwrap_or(wrong).len();
    (distance <= length.div_ceil(3)).then_some(name)
}

/// A configuration that is being read: some fields of [`Config`] are made of several settings.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) by: ClientBy,
    pub(super) header: HeaderName,
    pub(super) ip_header: Option<IpHeader>,
    pub(super) trusted: Vec<String>,
    pub(super) has_shed: bool,
    pub(super) shed: Shed,
}

impl Draft {
    /// The defaults, and examples for the settings without one.
    pub(super) fn new() -> Self {
        let upstream = Upstream {
            authority: Authority::from_static("127.0.0.1:8080"),
            is_h2c: false,
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 9000));
        Self {
            config: Config::new(listen, upstream, 40, Duration::from_secs(10)),
            by: ClientBy::Header,
            header: HeaderName::from_static("x-client-id"),
            ip_header: None,
            trusted: Vec::new(),
            has_shed: false,
            shed: Shed {
                good: 0.7,
                bad: 0.8,
                delay: Duration::from_secs(28),
                ramp: Duration::from_secs(120),
            },
        }
    }

    /// The draft that a configuration was made from.
    pub(super) fn of(config: Config) -> Self {
        let mut draft = Self::new();
        match &config.client {
            Client::Header(name) => draft.header = name.clone(),
            Client::Ip { header, trusted } => {
                draft.by = ClientBy::Ip;
                draft.ip_header = *header;
                draft.trusted.clone_from(trusted);
            }
        }
        draft.has_shed = config.shed.is_some();
        draft.shed = config.shed.unwrap_or(draft.shed);
        draft.config = config;
        draft
    }

    /// The value of a setting as text.
    pub(super) fn show(&self, setting: &Setting) -> String {
        (setting.field)(&mut self.clone()).show()
    }

    /// The configuration, of a draft that was checked.
    pub(super) fn finish(self) -> Config {
        let client = match self.by {
            ClientBy::Header => Client::Header(self.header),
            ClientBy::Ip => Client::Ip {
                header: self.ip_header,
                trusted: self.trusted,
            },
        };
        Config {
            client,
            shed: self.has_shed.then_some(self.shed),
            ..self.config
        }
    }
}
