//! The ready observers, behind features.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt, stream};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use paceline::limiter::{Metrics, Observed, Observer, TracingObserver};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use crate::timed::ms;

/// Two pass, one after a wait; one is too costly, one is refused, one gives up.
async fn a_day_in_the_life(observer: impl Observer + Clone) {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    let limit = Observed::new(limit, observer);
    let costs = stream::iter([2, 1, 9]).pace_by_cost(limit.clone(), |cost| *cost);
    assert_eq!(costs.count().await, 3);
    assert_eq!(stream::iter([1]).enforce(limit.clone()).count().await, 1);
    let mut waits = stream::iter([1]).pace(limit);
    assert!(waits.next().now_or_never().is_none());
    jump(ms(30)).await;
}

/// Every value that a counter or a histogram was given, by its name and labels.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Recorded {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        Arc::new(Series {
            name: format!("{}{{{labels}}}", key.name()),
            all: self.clone(),
        })
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        unreachable!("there are no gauges")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

struct Series {
    name: String,
    all: Recorded,
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        let mut all = self.all.0.lock().unwrap();
        all.entry(self.name.clone()).or_default().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        let mut all = self.all.0.lock().unwrap();
        let count = all.entry(self.name.clone()).or_insert_with(|| vec![0.0]);
        count[0] += f64::from(u32::try_from(by).unwrap());
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters are only incremented")
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_count_requests_permits_and_waits() {
    let recorded = Recorded::default();
    let metrics = metrics::with_local_recorder(&recorded, || Metrics::new("sms"));
    a_day_in_the_life(metrics).await;

    let recorded = recorded.0.lock().unwrap();
    let seen: Vec<String> = recorded
        .iter()
        .map(|(name, values)| format!("{name} {values:?}"))
        .collect();
    assert_eq!(
        seen,
        [
            "paceline_permits_total{limit=sms} [3.0]",
            "paceline_requests_total{limit=sms,outcome=gave_up} [1.0]",
            "paceline_requests_total{limit=sms,outcome=passed} [2.0]",
            "paceline_requests_total{limit=sms,outcome=refused} [1.0]",
            "paceline_requests_total{limit=sms,outcome=too_costly} [1.0]",
            "paceline_wait_seconds{limit=sms} [0.0, 0.1]",
        ]
    );
}

/// Writes down every event.
#[derive(Clone, Default)]
pub(crate) struct Written(pub(crate) Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Written {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "paceline" && *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0.trim_end().to_owned());
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

#[tokio::test(start_paused = true)]
async fn traces_say_what_happened_to_each_request() {
    let written = Written::default();
    let guard = tracing::subscriber::set_default(written.clone());
    a_day_in_the_life(TracingObserver::new("sms")).await;
    drop(guard);
    assert_eq!(
        *written.0.lock().unwrap(),
        [
            "message=passed limit=\"sms\" cost=2 waited=0ns",
            "message=passed limit=\"sms\" cost=1 waited=100ms",
            "message=too costly limit=\"sms\" cost=9 capacity=2",
            "message=refused limit=\"sms\" cost=1 retry_in=100ms",
            "message=gave up limit=\"sms\" waited=30ms",
        ]
    );
}
