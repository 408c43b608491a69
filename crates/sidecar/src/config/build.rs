//! A configuration of its settings: their ranges, and settings that do not go together.

use std::collections::BTreeMap;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::HeaderName;
use paceline::concurrency::{Gradient, Permits};
use paceline::fair::{ClientTerms, FairShare};
use paceline::shed::WorkerUtilization;
use paceline_tower::{Proxies, ProxyHeader};

use super::reading::{CLIENTS, Reading};
use super::settings::Setting;
use super::source::{self, Source};
use super::value::{ClientBy, Value};
use super::{Bounds, Client, Concurrency, Config, Drain, Fair, Sharing, Shed, Timeouts};

/// The smallest buffer that hyper takes for the head of a request.
const FEWEST_HEAD_BYTES: usize = 8 * 1024;

/// A head of this size is kept in memory for each connection.
const MOST_HEAD_BYTES: usize = 16 * 1024 * 1024;

/// Thirty days. What is longer is a mistake in the unit.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

impl Config {
    /// The defaults, and examples for the settings without one.
    pub(crate) fn defaults() -> Self {
        Self::read(&mut Reading::new(&Source::default(), &Ok(String::new())))
    }

    /// Reads every setting. `reading` has what is wrong.
    pub(super) fn read(reading: &mut Reading<'_>) -> Self {
        let terms = reading.terms();
        let config = Self {
            listen: reading.value("listen"),
            upstream: reading.value("upstream"),
            admin: reading.value("admin"),
            admin_token_file: reading.value("admin-token-file"),
            cores: reading.number("cores", 1, 1_024),
            fair: fair(reading, &terms),
            terms,
            client: client(reading),
            anonymous: reading.value("anonymous"),
            mode: reading.value("mode"),
            enforced: reading.value("enforced"),
            headers_on_success: reading.value("headers-on-success"),
            concurrency: concurrency(reading),
            shed: shed(reading),
            timeouts: Timeouts {
                head: reading.timeout("head-timeout"),
                between: reading.timeout("idle-timeout"),
                body: reading.timeout("body-timeout"),
                queue: reading.duration("queue-timeout"),
                connect: reading.timeout("connect-timeout"),
                response: reading.timeout("response-timeout"),
                upstream_idle: reading.timeout("upstream-idle-timeout"),
            },
            drain: Drain {
                announce: reading.duration("drain-announce"),
                finish: reading.duration("drain-finish"),
            },
            bounds: Bounds {
                head_bytes: reading.number("max-head-bytes", FEWEST_HEAD_BYTES, MOST_HEAD_BYTES),
                fields: reading.number("max-fields", 1, 10_000),
                connections: reading.at_least_one("max-connections"),
                of_address: reading.at_least_one("max-connections-per-address"),
                streams: reading.at_least_one("max-streams"),
            },
            log: reading.value("log"),
            log_json: reading.value("log-json"),
            shown: mem::take(&mut reading.shown),
        };
        addresses(&config, reading);
        token(&config, reading);
        config
    }
}

impl Reading<'_> {
    /// Whether the value of a setting is not its default.
    fn is_changed(&self, key: &str) -> bool {
        Setting::of(key).is_some_and(|setting| setting.default() != self.shown[key].text)
    }

    fn number(&mut self, key: &'static str, least: usize, most: usize) -> usize {
        let number = self.value(key);
        if !(least..=most).contains(&number) {
            let error = format!("must be {least} to {most}, got {number}");
            self.wrong(&[key], &error);
        }
        number
    }

    /// A number, or a number that can be off.
    fn at_least_one<T: Value>(&mut self, key: &'static str) -> T {
        let number: T = self.value(key);
        if number.text() == "0" {
            self.wrong(&[key], "must be at least 1, got 0");
        }
        number
    }

    fn duration(&mut self, key: &'static str) -> Duration {
        let duration: Duration = self.value(key);
        if duration > LONGEST {
            let (most, got) = (LONGEST.text(), duration.text());
            self.wrong(&[key], &format!("must be at most {most}, got {got}"));
        }
        duration
    }

    fn timeout(&mut self, key: &'static str) -> Duration {
        let timeout = self.duration(key);
        if timeout.is_zero() {
            self.wrong(&[key], "must be longer than 0s, got 0s");
        }
        timeout
    }
}

/// The share, beside the clients of the file.
fn fair(reading: &mut Reading<'_>, terms: &BTreeMap<String, ClientTerms>) -> Fair {
    let fair = Fair {
        capacity: reading.value("capacity"),
        cycle: reading.duration("cycle"),
        sharing: reading.value("sharing"),
        depth: reading.value("depth"),
        reservation: reading.value("reservation"),
        is_max_min: reading.value("max-min"),
        early_cycles: reading.value("early-cycles"),
        max_clients: reading.value("max-clients"),
        is_known_only: reading.value("known-only"),
        forgetting_after: reading.value("forget-after"),
        has_carry: reading.value("carry"),
    };
    let right = FairShare::new(1, Duration::from_secs(1));
    let capacity = FairShare::try_new(fair.capacity, right.cycle());
    reading.check(&["capacity"], capacity);
    let cycle = FairShare::try_new(right.capacity(), fair.cycle);
    reading.check(&["cycle"], cycle);
    if !(100..=1_000_000).contains(&fair.depth.0) {
        let error = format!("must be 1% to 10000%, got {}", fair.depth.text());
        reading.wrong(&["depth"], &error);
    }
    let unused: &[&'static str] = match fair.sharing {
        Sharing::Demand => &["depth"],
        Sharing::Guaranteed => &["reservation", "max-min", "early-cycles", "carry"],
    };
    let mut unused: Vec<_> = unused.iter().map(|key| String::from(*key)).collect();
    unused.retain(|key| reading.is_changed(key));
    if fair.sharing == Sharing::Guaranteed {
        for (id, terms) in terms {
            let bounds = super::bounds(terms);
            unused.extend(bounds.map(|(key, _)| format!("{CLIENTS}.{id}.{key}")));
        }
    }
    let sharing = fair.sharing.text();
    for key in unused {
        reading.warn(&[&key], &format!("is not used with sharing = {sharing}"));
    }
    let forgetting = right.try_forgetting_after(fair.forgetting_after);
    reading.check(&["forget-after"], forgetting);
    let max = fair.max_clients;
    let all = max.saturating_add(u32::try_from(terms.len()).unwrap_or(u32::MAX));
    if max == 0 {
        let right = "for the clients of the file alone write known-only = true";
        let error = format!("must be at least 1, got 0: {right}");
        reading.wrong(&["max-clients"], &error);
    } else if let Err(error) = right.try_with_max_clients(all) {
        let error = format!("{error}: {max} and the {} of the file", terms.len());
        reading.wrong(&["max-clients"], &error);
    }
    fair
}

fn client(reading: &mut Reading<'_>) -> Client {
    let by: ClientBy = reading.value("client");
    let name: HeaderName = reading.value("client-header");
    let header: Option<ProxyHeader> = reading.value("ip-header");
    let trusted: Vec<String> = reading.value("trusted-proxies");
    let (proxies, ranges) = (header.text(), trusted.text());
    for all in trusted.iter().filter(|range| range.ends_with("/0")) {
        let words = "is every address, so each caller can choose its client: name only the proxies";
        reading.warn(&["trusted-proxies"], &format!("`{all}` {words}"));
    }
    if by == ClientBy::Header {
        if header.is_some() {
            let error = format!("`{proxies}` is only read with client = ip");
            reading.wrong(&["ip-header"], &error);
        }
        if !trusted.is_empty() {
            let error = format!("`{ranges}` is only used with client = ip");
            reading.wrong(&["trusted-proxies"], &error);
        }
        let text = name.as_str();
        if text.ends_with("authorization") || ["cookie", "x-api-key"].contains(&text) {
            let words = "has secrets, and the metrics show the ids of clients: name a header without secrets";
            reading.warn(&["client-header"], &format!("`{text}` {words}"));
        }
        return Client::Header(name);
    }
    match (header, trusted.is_empty()) {
        (Some(_), true) => {
            let right = "name their addresses in trusted-proxies, as in 10.0.0.0/8";
            let error = format!("`{proxies}` is only read from trusted proxies: {right}");
            reading.wrong(&["trusted-proxies", "ip-header"], &error);
        }
        (Some(_), false) => reading.check(&["trusted-proxies"], Proxies::try_ranges(&trusted)),
        (None, false) => {
            let right = "name the header that these proxies set in ip-header";
            let error = format!("`{ranges}` is not used: {right}");
            reading.wrong(&["trusted-proxies"], &error);
        }
        (None, true) => {}
    }
    Client::Ip { header, trusted }
}

fn concurrency(reading: &mut Reading<'_>) -> Option<Concurrency> {
    let concurrency = reading.value("concurrency");
    let error = match concurrency {
        Some(Concurrency::Fixed(number)) => Permits::try_new(number).err(),
        Some(Concurrency::Adaptive { initial, max }) => Gradient::try_new(initial, max).err(),
        None => None,
    };
    reading.check(&["concurrency"], error.map_or(Ok(()), Err));
    concurrency
}

fn shed(reading: &mut Reading<'_>) -> Option<Shed> {
    let is_on: bool = reading.value("shed");
    let shed = Shed {
        good: reading.value("shed-good"),
        bad: reading.value("shed-bad"),
        delay: reading.duration("shed-delay"),
        ramp: reading.duration("shed-ramp"),
    };
    let shedder = || WorkerUtilization::new(|| 0.0);
    if shedder().try_with_thresholds(shed.good, shed.bad).is_err() {
        let (good, bad) = (shed.good.text(), shed.bad.text());
        let right = "shed-good must be above 0% and below shed-bad, and shed-bad below 100%";
        let error = format!("{right}, got {good} and {bad}");
        reading.wrong(&["shed-bad", "shed-good"], &error);
    }
    reading.check(&["shed-delay"], shedder().try_with_delay(shed.delay));
    reading.check(&["shed-ramp"], shedder().try_with_ramp(shed.ramp));
    is_on.then_some(shed)
}

fn addresses(config: &Config, reading: &mut Reading<'_>) {
    let (listen, admin) = (config.listen, config.admin);
    if is_port_of(listen, admin.port(), &[admin.ip()]) {
        let right = "give each a port of its own";
        let error = format!("admin `{admin}` is the port of listen `{listen}`: {right}");
        reading.wrong(&["admin", "listen"], &error);
    }
    let (port, hosts) = (config.upstream.port(), config.upstream.addresses());
    for (key, address) in [("listen", listen), ("admin", admin)] {
        if is_port_of(address, port, &hosts) {
            let right = "give the port of the service";
            let itself = format!("is the sidecar itself: {key} is `{address}`; {right}");
            let error = format!("`{}` {itself}", config.upstream.text());
            reading.wrong(&["upstream"], &error);
        }
    }
    if !admin.ip().to_canonical().is_loopback() && config.admin_token_file.is_none() {
        let only = "without admin-token-file only this one can change anything";
        let warning = format!("other machines can read from `{admin}`, and {only}");
        reading.warn(&["admin"], &warning);
    }
}

/// Whether a connection to this port of one of the addresses reaches what listens on `address`.
fn is_port_of(address: SocketAddr, port: u16, hosts: &[IpAddr]) -> bool {
    let ip = address.ip().to_canonical();
    // A connection to 0.0.0.0 is one to this machine, and what listens on [::] has the addresses of IPv4 too.
    let reaches = |host: &IpAddr| {
        let host = host.to_canonical();
        host == ip
            || ip.is_unspecified() && (host.is_loopback() || host.is_unspecified())
            || host.is_unspecified() && ip.is_loopback()
    };
    address.port() != 0 && address.port() == port && hosts.iter().any(reaches)
}

fn token(config: &Config, reading: &mut Reading<'_>) {
    let Some(path) = &config.admin_token_file else {
        return;
    };
    let error = match source::read(path) {
        Err(error) => error,
        Ok(token) if token.trim().is_empty() => "is empty: write the token into it".to_owned(),
        Ok(_) => return,
    };
    let error = format!("`{}` {error}", path.display());
    reading.wrong(&["admin-token-file"], &error);
}
