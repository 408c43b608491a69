//! What a setting alone cannot tell: ranges, and settings that do not go together.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use paceline::concurrency::{Gradient, Permits};
use paceline::fair::{self, FairShare};
use paceline::shed::WorkerUtilization;
use paceline_tower::Proxies;

use super::Concurrency;
use super::settings::Draft;
use super::value::{ClientBy, Field as _};

/// The smallest buffer that hyper takes for the head of a request.
const FEWEST_HEAD_BYTES: usize = 8 * 1024;

/// A head of this size is kept in memory for each connection.
const MOST_HEAD_BYTES: usize = 16 * 1024 * 1024;

/// Reports a fault: the keys that it is about, and the message. The first of them that is given somewhere is to blame.
pub(super) fn check(draft: &Draft, mut wrong: impl FnMut(&[&str], String)) {
    numbers(draft, &mut wrong);
    share(draft, &mut wrong);
    durations(draft, &mut wrong);
    addresses(draft, &mut wrong);
    token(draft, &mut wrong);
    clients(draft, &mut wrong);
    load(draft, &mut wrong);
}

fn share(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let fair = &draft.config.fair;
    let right = FairShare::new(1, Duration::from_secs(1));
    let results = [
        ("capacity", FairShare::try_new(fair.capacity, right.cycle())),
        ("cycle", FairShare::try_new(right.capacity(), fair.cycle)),
        (
            "forget-after",
            right.try_forgetting_after(fair.forgetting_after),
        ),
    ];
    for (key, result) in results {
        if let Err(error) = result {
            wrong(&[key], error.to_string());
        }
    }
    let named = u32::try_from(draft.config.terms.len()).unwrap_or(u32::MAX);
    if fair.max_clients == 0 {
        let right = "for the clients of the file alone write known-only = true";
        wrong(
            &["max-clients"],
            format!("must be at least 1, got 0: {right}"),
        );
    } else if let Err(error) = right.try_with_max_clients(fair.max_clients.saturating_add(named)) {
        let and = format!("{} and the {named} of the file", fair.max_clients);
        wrong(&["max-clients"], format!("{error}: {and}"));
    }
}

fn numbers(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let config = &draft.config;
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let ranges = [
        ("cores", config.cores, 1, 1_024),
        (
            "max-head-bytes",
            config.bounds.head_bytes,
            FEWEST_HEAD_BYTES,
            MOST_HEAD_BYTES,
        ),
        ("max-fields", config.bounds.fields, 1, 10_000),
        ("max-connections", config.bounds.connections, 1, usize::MAX),
        (
            "max-connections-per-address",
            config.bounds.of_address.map_or(1, number),
            1,
            usize::MAX,
        ),
        ("max-streams", number(config.bounds.streams), 1, usize::MAX),
    ];
    for (key, got, least, most) in ranges {
        if got < least && most == usize::MAX {
            wrong(&[key], format!("must be at least {least}, got {got}"));
        } else if !(least..=most).contains(&got) {
            wrong(&[key], format!("must be {least} to {most}, got {got}"));
        }
    }
}

fn durations(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let config = &draft.config;
    let timeouts = &config.timeouts;
    let above_zero = [
        ("head-timeout", timeouts.head),
        ("idle-timeout", timeouts.between),
        ("body-timeout", timeouts.body),
        ("connect-timeout", timeouts.connect),
        ("response-timeout", timeouts.response),
        ("upstream-idle-timeout", timeouts.upstream_idle),
    ];
    for (key, got) in above_zero {
        if got.is_zero() {
            wrong(&[key], "must be longer than 0s, got 0s".to_owned());
        }
    }
    let bounded = above_zero.into_iter().chain([
        ("cycle", config.fair.cycle),
        ("shed-delay", draft.shed.delay),
        ("shed-ramp", draft.shed.ramp),
        ("drain-announce", config.drain.announce),
        ("drain-finish", config.drain.finish),
    ]);
    for (key, got) in bounded {
        if got > LONGEST {
            let (most, got) = (LONGEST.show(), got.show());
            wrong(&[key], format!("must be at most {most}, got {got}"));
        }
    }
}

/// Thirty days. What is longer is a mistake in the unit.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

fn addresses(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let config = &draft.config;
    let (listen, admin) = (config.listen, config.admin);
    if is_port_of(listen, admin.port(), &[admin.ip()]) {
        let right = "give each a port of its own";
        wrong(
            &["admin", "listen"],
            format!("admin `{admin}` is the port of listen `{listen}`: {right}"),
        );
    }
    let (port, hosts) = (config.upstream.port(), config.upstream.addresses());
    for (key, address) in [("listen", listen), ("admin", admin)] {
        if is_port_of(address, port, &hosts) {
            let upstream = config.upstream.show();
            wrong(
                &["upstream"],
                format!(
                    "`{upstream}` is the sidecar itself: {key} is `{address}`; give the port of the service"
                ),
            );
        }
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

fn token(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let Some(path) = &draft.config.admin_token_file else {
        return;
    };
    let shown = path.display();
    match fs::read_to_string(path) {
        Err(error) => wrong(
            &["admin-token-file"],
            format!("`{shown}` cannot be read: {error}"),
        ),
        Ok(token) if token.trim().is_empty() => {
            wrong(
                &["admin-token-file"],
                format!("`{shown}` is empty: write the token into it"),
            );
        }
        Ok(_) => {}
    }
}

fn clients(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    match (draft.by, draft.ip_header) {
        (ClientBy::Ip, header @ Some(_)) if draft.trusted.is_empty() => {
            let right = "name their addresses in trusted-proxies, as in 10.0.0.0/8";
            let error = format!(
                "`{}` is only read from trusted proxies: {right}",
                header.show()
            );
            wrong(&["trusted-proxies", "ip-header"], error);
        }
        (ClientBy::Ip, Some(_)) => {
            if let Err(error) = Proxies::try_ranges(&draft.trusted) {
                wrong(&["trusted-proxies"], error.to_string());
            }
        }
        (ClientBy::Ip, None) if !draft.trusted.is_empty() => {
            let right = "name the header that they set in ip-header";
            wrong(
                &["trusted-proxies"],
                format!("`{}` are not asked: {right}", draft.trusted.show()),
            );
        }
        (ClientBy::Header, header) => {
            if header.is_some() {
                wrong(
                    &["ip-header"],
                    format!("`{}` is only read with client = ip", header.show()),
                );
            }
            if !draft.trusted.is_empty() {
                let ranges = draft.trusted.show();
                wrong(
                    &["trusted-proxies"],
                    format!("`{ranges}` are only asked with client = ip"),
                );
            }
        }
        (ClientBy::Ip, None) => {}
    }
    for (id, terms) in &draft.config.terms {
        let key = format!("clients.{id}");
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            let right = "an id has 1 to 64 visible ASCII characters";
            wrong(&[&key], format!("no client has this id: {right}"));
        }
        if let Err(error) = fair::ClientTerms::new().try_with_weight(terms.weight) {
            wrong(&[&key], error.to_string());
        }
    }
}

fn load(draft: &Draft, wrong: &mut impl FnMut(&[&str], String)) {
    let concurrency = match draft.config.concurrency {
        Some(Concurrency::Fixed(number)) => Permits::try_new(number).err(),
        Some(Concurrency::Adaptive { initial, max }) => Gradient::try_new(initial, max).err(),
        None => None,
    };
    if let Some(error) = concurrency {
        wrong(&["concurrency"], error.to_string());
    }
    let shed = draft.shed;
    let shedder = || WorkerUtilization::new(|| 0.0);
    if shedder().try_with_thresholds(shed.good, shed.bad).is_err() {
        let (good, bad) = (shed.good.show(), shed.bad.show());
        let right = "shed-good must be above 0% and below shed-bad, and shed-bad below 100%";
        wrong(
            &["shed-bad", "shed-good"],
            format!("{right}, got {good} and {bad}"),
        );
    }
    if let Err(error) = shedder().try_with_delay(shed.delay) {
        wrong(&["shed-delay"], error.to_string());
    }
    if let Err(error) = shedder().try_with_ramp(shed.ramp) {
        wrong(&["shed-ramp"], error.to_string());
    }
}

/// Reports what is right and maybe not meant, as [`check`] does.
pub(super) fn warn(draft: &Draft, mut warning: impl FnMut(&[&str], String)) {
    let config = &draft.config;
    if !config.admin.ip().to_canonical().is_loopback() && config.admin_token_file.is_none() {
        let admin = config.admin;
        warning(
            &["admin"],
            format!(
                "other machines can read from `{admin}`, and without admin-token-file only this one can change anything"
            ),
        );
    }
    for all in draft.trusted.iter().filter(|range| range.ends_with("/0")) {
        let right = "name only the proxies";
        let text =
            format!("`{all}` is every address, so each caller can choose its client: {right}");
        warning(&["trusted-proxies"], text);
    }
    let header = draft.header.as_str();
    let has_secrets =
        header.ends_with("authorization") || ["cookie", "x-api-key"].contains(&header);
    if draft.by == ClientBy::Header && has_secrets {
        let right = "name a header without secrets";
        let text =
            format!("`{header}` has secrets, and the metrics show the ids of clients: {right}");
        warning(&["client-header"], text);
    }
}
