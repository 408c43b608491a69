//! The ready observers, behind features.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt, stream};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use paceline::limiter::{Metrics, Observed, Observer, TracingObserver};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use crate::timed::ms;

/// Two pass, one after a wait; one is too costly, one is refused, one gives up.
async fn five_requests(observer: impl Observer + Clone) {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    let limit = Observed::new(limit, observer);
    let costs = stream::iter([2, 1, 9]).pace_by_cost(limit.clone(), |cost| *cost);
    assert_eq!(costs.count().await, 3);
    assert_eq!(stream::iter([1]).enforce(limit.clone()).count().await, 1);
    let mut waits = stream::iter([1]).pace(limit);
    assert!(waits.next().now_or_never().is_none());
    jump(ms(30)).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_count_requests_permits_and_waits() {
    let recorder = DebuggingRecorder::new();
    let shots = recorder.snapshotter();
    let metrics = metrics::with_local_recorder(&recorder, || Metrics::new("sms"));
    five_requests(metrics).await;

    let mut seen: Vec<String> = shots
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            let value = match value {
                DebugValue::Histogram(values) => {
                    format!(
                        "{:?}",
                        values.into_iter().map(f64::from).collect::<Vec<_>>()
                    )
                }
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Gauge(_) => unreachable!(),
            };
            format!("{}{{{labels}}} {value}", key.key().name())
        })
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "paceline_permits_total{limit=sms} 3",
            "paceline_requests_total{limit=sms,outcome=gave_up} 1",
            "paceline_requests_total{limit=sms,outcome=passed} 2",
            "paceline_requests_total{limit=sms,outcome=refused} 1",
            "paceline_requests_total{limit=sms,outcome=too_costly} 1",
            "paceline_wait_seconds{limit=sms} [0.0, 0.1]",
        ]
    );
}

/// Writes down every event.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Written {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "paceline" && *metadata.level() == tracing::Level::DEBUG
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
async fn tracing_events_say_what_happened_to_each_request() {
    let written = Written::default();
    let guard = tracing::subscriber::set_default(written.clone());
    five_requests(TracingObserver::new("sms")).await;
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
