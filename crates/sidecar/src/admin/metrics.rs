//! `/metrics`: the values at the scrape. Requests pay nothing for it, and clients that went leave no series.

use std::fmt::{Error, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use crate::config::Mode;
use crate::proxy::{Histogram, Times};
use crate::state::{Counts, Sidecar};

use super::answer::{Answer, of_type, problem};
use super::process;
use super::view::{ClientView, View};

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
        let times = &self.0.times;
        let mut families = Families(encoder);
        families.clients(&view.clients)?;
        families.requests(counts, times)?;
        families.one(
            "paceline_capacity",
            "Requests that all clients together may pass in a cycle.",
            &ConstGauge::new(view.capacity),
        )?;
        families.one(
            "paceline_cycle_duration_seconds",
            "The length of a cycle.",
            &ConstGauge::new(Duration::from_millis(view.cycle_ms).as_secs_f64()),
        )?;
        families.times(
            "paceline_added",
            "The time that requests spent in the sidecar.",
            &times.added,
        )?;
        families.times(
            "paceline_upstream",
            "The time from a request to the upstream to the head of its response.",
            &times.upstream,
        )?;
        families.one(
            "paceline_cycles",
            "Cycles that have ended.",
            &ConstCounter::new(view.cycle),
        )?;
        families.one(
            "paceline_connections",
            "Connections of clients, upgraded ones included.",
            &ConstGauge::new(counts.connections.load(Relaxed)),
        )?;
        families.by(
            "reason",
            "paceline_connections_refused",
            "Connections closed at once, since there were too many, of all addresses or of one.",
            [
                ("all", count(&counts.connections_refused)),
                ("address", count(&counts.address_refused)),
            ],
        )?;
        families.by(
            "outcome",
            "paceline_config_reloads",
            "Reloads of the configuration, and how they ended.",
            [
                ("done", count(&counts.reloads)),
                ("refused", count(&counts.reloads_refused)),
            ],
        )?;
        families.by(
            "mode",
            "paceline_mode",
            "1 for the mode in force.",
            Mode::NAMES.map(|(name, mode)| (name, ConstGauge::new(u32::from(mode == view.mode)))),
        )?;
        families.one(
            "paceline_enforced_ratio",
            "The part of the clients for which the share is enforced in mode enforce.",
            &ConstGauge::new(view.enforced / 100.0),
        )?;
        process::encode(&mut families)?;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        families.one("paceline_build", "The version of the sidecar.", &version)
    }
}

fn count(count: &AtomicU64) -> ConstCounter<u64> {
    ConstCounter::new(count.load(Relaxed))
}

/// The number of times that were recorded.
fn all(times: &Histogram) -> u64 {
    times.buckets().map(|(_, count)| count).sum()
}

/// Writes families, each with its samples.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// What became of requests.
    fn requests(&mut self, counts: &Counts, times: &Times) -> Result<(), Error> {
        self.by(
            "outcome",
            "paceline_requests",
            "Requests by what became of them, each once.",
            [
                ("answered", ConstCounter::new(all(&times.added))),
                ("refused", count(&counts.refused)),
                ("anonymous", count(&counts.anonymous)),
                ("shed", count(&counts.shed)),
                ("bad_request", count(&counts.bad_requests)),
                ("upstream_failed", count(&counts.upstream_failed)),
                ("upstream_late", count(&counts.upstream_late)),
                ("cancelled", count(&counts.cancelled)),
            ],
        )?;
        for (name, help, counter) in [
            (
                "paceline_anonymous_passed",
                "Requests without a valid client id that passed, since the share is not enforced for them.",
                &counts.anonymous_passed,
            ),
            (
                "paceline_responses_broken",
                "Responses of the upstream that ended before their end, after their head was answered.",
                &counts.responses_broken,
            ),
            (
                "paceline_retries",
                "Requests sent again, since a connection to the upstream had ended or had not taken them.",
                &counts.retried,
            ),
            (
                "paceline_connections_late",
                "Connections and streams cut, since the client was silent or read nothing for too long.",
                &counts.connections_late,
            ),
        ] {
            self.one(name, help, &count(counter))?;
        }
        Ok(())
    }

    /// A family with one sample.
    pub(super) fn one(
        &mut self,
        name: &str,
        help: &str,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// A family with a sample for each value of a label.
    fn by<M: EncodeMetric + TypedMetric>(
        &mut self,
        label: &str,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, M)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, M::TYPE)?;
        for (value, metric) in samples {
            metric.encode(family.encode_family(&[(label, value.as_ref())])?)?;
        }
        Ok(())
    }

    fn clients(&mut self, clients: &[ClientView]) -> Result<(), Error> {
        type Read = fn(&ClientView) -> u32;
        let gauges: [(&str, &str, Read); 4] = [
            (
                "paceline_client_size",
                "Requests that a client may pass in this cycle.",
                |client| client.size,
            ),
            (
                "paceline_client_demand",
                "Requests that a client attempted in the last cycle.",
                |client| client.demand,
            ),
            (
                "paceline_client_lent",
                "Requests of its default that a client lends in this cycle.",
                |client| client.lent,
            ),
            (
                "paceline_client_borrowed",
                "Requests above its default that a client borrows in this cycle.",
                |client| client.borrowed,
            ),
        ];
        for (name, help, read) in gauges {
            let samples = clients.iter();
            let samples = samples.map(|each| (each.client.as_str(), ConstGauge::new(read(each))));
            self.by("client", name, help, samples)?;
        }
        let help = "Requests of a client since it came, by what the share decided.";
        let kind = MetricType::Counter;
        let name = "paceline_client_requests";
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
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

    fn times(&mut self, name: &str, help: &str, times: &Histogram) -> Result<(), Error> {
        let kind = MetricType::Histogram;
        let seconds = Some(&Unit::Seconds);
        let mut encoder = self.0.encode_descriptor(name, help, seconds, kind)?;
        let buckets: Vec<_> = times.buckets().collect();
        // The count is that of the buckets, also while requests are recorded.
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(times.sum(), count, &buckets, None)
    }
}
