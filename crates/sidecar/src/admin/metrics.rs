//! `/metrics`: the values at the scrape. Requests pay nothing for it, and clients that went leave no series.

use std::fmt::{Error, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeMetric, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::proxy::Histogram;
use crate::state::Sidecar;

use super::answer::{Answer, of_type, problem};
use super::process;
use super::view::{ClientView, MODES, View, mode_name};

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `OpenMetrics` if the scraper asks for it, and the older text format of Prometheus otherwise.
pub(super) fn answer(sidecar: &Arc<Sidecar>, headers: &HeaderMap) -> Answer {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(Arc::clone(sidecar))));
    let mut text = String::new();
    if encode(&mut text, &registry).is_err() {
        let detail = "the metrics could not be written";
        return problem(StatusCode::INTERNAL_SERVER_ERROR, detail);
    }
    let accepts_open = |value: &http::HeaderValue| {
        let value = value.to_str();
        value.is_ok_and(|value| value.contains("application/openmetrics-text"))
    };
    if headers.get_all(ACCEPT).iter().any(accepts_open) {
        of_type(OPEN, text)
    } else {
        of_type(CLASSIC, classic(&text))
    }
}

/// `OpenMetrics` text in the older format. There the name of a family has the suffix of its samples, and there are no infos and units.
fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.rsplit_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            let _ = writeln!(text, "# HELP {name}{suffix}{help}");
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[derive(Debug)]
struct Scrape(Arc<Sidecar>);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let view = View::of(&self.0);
        let counts = &self.0.counts;
        let mut families = Families(encoder);
        families.clients(&view.clients)?;
        families.counters(
            "paceline_requests",
            "Requests by what became of them, each once.",
            "outcome",
            [
                ("answered", count(&self.0.times.added)),
                ("refused", counts.refused.load(Relaxed)),
                ("anonymous", counts.anonymous.load(Relaxed)),
                ("shed", counts.shed.load(Relaxed)),
                ("bad_request", counts.bad_requests.load(Relaxed)),
                ("upstream_failed", counts.upstream_failed.load(Relaxed)),
                ("upstream_late", counts.upstream_late.load(Relaxed)),
                ("cancelled", counts.cancelled.load(Relaxed)),
            ],
        )?;
        families.counter(
            "paceline_anonymous_passed",
            "Requests without a valid client id that passed, since the share is not enforced for them.",
            counts.anonymous_passed.load(Relaxed),
        )?;
        families.counter(
            "paceline_responses_broken",
            "Responses of the upstream that ended before their end, after their head was answered.",
            counts.responses_broken.load(Relaxed),
        )?;
        families.counter(
            "paceline_retries",
            "Requests sent again, since a connection to the upstream had ended or had not taken them.",
            counts.retried.load(Relaxed),
        )?;
        families.gauge(
            "paceline_capacity",
            "Requests that all clients together may pass in a cycle.",
            f64::from(view.capacity),
        )?;
        families.gauge(
            "paceline_cycle_duration_seconds",
            "The length of a cycle.",
            f64::from(u32::try_from(view.cycle_ms).unwrap_or(u32::MAX)) / 1_000.0,
        )?;
        families.histogram(
            "paceline_added",
            "The time that requests spent in the sidecar.",
            &self.0.times.added,
        )?;
        families.histogram(
            "paceline_upstream",
            "The time from a request to the upstream to the head of its response.",
            &self.0.times.upstream,
        )?;
        families.counter("paceline_cycles", "Cycles that have ended.", view.cycle)?;
        families.gauge(
            "paceline_connections",
            "Connections of clients, upgraded ones included.",
            f64::from(u32::try_from(counts.connections.load(Relaxed)).unwrap_or(u32::MAX)),
        )?;
        families.counters(
            "paceline_connections_refused",
            "Connections closed at once, since there were too many, of all addresses or of one.",
            "reason",
            [
                ("all", counts.connections_refused.load(Relaxed)),
                ("address", counts.address_refused.load(Relaxed)),
            ],
        )?;
        families.counter(
            "paceline_connections_late",
            "Connections and streams cut, since the client was silent or read nothing for too long.",
            counts.connections_late.load(Relaxed),
        )?;
        families.counters(
            "paceline_config_reloads",
            "Reloads of the configuration, and how they ended.",
            "outcome",
            [
                ("done", counts.reloads.load(Relaxed)),
                ("refused", counts.reloads_refused.load(Relaxed)),
            ],
        )?;
        families.gauges(
            "paceline_mode",
            "1 for the mode in force.",
            "mode",
            MODES.map(|mode| (mode_name(mode), f64::from(u8::from(mode == view.mode)))),
        )?;
        families.gauge(
            "paceline_enforced_ratio",
            "The part of the clients for which the share is enforced in mode enforce.",
            view.enforced / 100.0,
        )?;
        process::encode(&mut families)?;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let help = "The version of the sidecar.";
        let kind = build.metric_type();
        let mut family = families.0;
        build.encode(family.encode_descriptor("paceline_build", help, None, kind)?)
    }
}

/// All times that were recorded.
fn count(times: &Histogram) -> u64 {
    times.buckets().map(|(_, count)| count).sum()
}

/// Writes families, each with its samples.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn clients(&mut self, clients: &[ClientView]) -> Result<(), Error> {
        self.of_clients(
            "paceline_client_size",
            "Requests that a client may pass in this cycle.",
            clients,
            |client| client.size,
        )?;
        self.of_clients(
            "paceline_client_demand",
            "Requests that a client attempted in the last cycle.",
            clients,
            |client| client.demand,
        )?;
        self.of_clients(
            "paceline_client_lent",
            "Requests of its default that a client lends in this cycle.",
            clients,
            |client| client.lent,
        )?;
        self.of_clients(
            "paceline_client_borrowed",
            "Requests above its default that a client borrows in this cycle.",
            clients,
            |client| client.borrowed,
        )?;
        let none = ConstCounter::new(0_u64);
        let help = "Requests of a client since it came, by what the share decided.";
        let kind = none.metric_type();
        let mut family = self
            .0
            .encode_descriptor("paceline_client_requests", help, None, kind)?;
        for client in clients {
            for (outcome, count) in [
                ("passed", client.passed_total),
                ("refused", client.refused_total),
            ] {
                let labels = [("client", client.client.as_str()), ("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn of_clients(
        &mut self,
        name: &str,
        help: &str,
        clients: &[ClientView],
        read: fn(&ClientView) -> u32,
    ) -> Result<(), Error> {
        let samples = clients.iter();
        let samples = samples.map(|client| (client.client.as_str(), f64::from(read(client))));
        self.gauges(name, help, "client", samples)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let gauge = ConstGauge::new(value);
        let kind = gauge.metric_type();
        gauge.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeCounterValue,
    ) -> Result<(), Error> {
        let counter = ConstCounter::new(value);
        let kind = counter.metric_type();
        counter.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Histogram) -> Result<(), Error> {
        let kind = MetricType::Histogram;
        let seconds = Some(&Unit::Seconds);
        let mut encoder = self.0.encode_descriptor(name, help, seconds, kind)?;
        let buckets: Vec<_> = times.buckets().collect();
        // The count is that of the buckets, also while requests are recorded.
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(times.sum(), count, &buckets, None)
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, f64)>,
    ) -> Result<(), Error> {
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (value_of_label, value) in samples {
            let labels = [(label, value_of_label.as_ref())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, u64)>,
    ) -> Result<(), Error> {
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (value_of_label, value) in samples {
            let labels = [(label, value_of_label.as_ref())];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
