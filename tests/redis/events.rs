//! What operators hear of a connection, as `tracing` events.
#![cfg(feature = "tracing")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::SlidingLog;
use paceline::prelude::*;
use paceline::redis::OutagePolicy;
use paceline::time::Clock;

use crate::failing::{opened, until_up};
use crate::limits::{MINUTE, pause};
use crate::servers::Server;

/// Writes down every event of level `INFO` and above.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<String>>>);

impl Written {
    fn count(&self, text: &str) -> usize {
        let written = self.0.lock().unwrap();
        written.iter().filter(|event| event.contains(text)).count()
    }
}

impl tracing::Subscriber for Written {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "paceline" && *metadata.level() <= tracing::Level::INFO
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
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

#[tokio::test]
async fn an_outage_and_its_end_are_events() {
    let written = Written::default();
    let _guard = tracing::subscriber::set_default(written.clone());
    let mut server = Server::start().await;
    let redis = opened(&server.url(), OutagePolicy::closed());
    until_up(&redis).await;
    assert_eq!(written.count("the server of limits is up"), 1);
    assert_eq!(written.count("is down"), 0);

    server.kill();
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    while redis.stats().outages == 0 {
        let _ = limit.try_acquire(1).await;
    }
    assert_eq!(written.count("the server of limits is down"), 1);
    server.start_again().await;
    until_up(&redis).await;
    assert!(written.count("the server of limits is up") >= 2);
}

/// A stream cannot return the fault: it stands still, and the event says why.
#[tokio::test]
async fn a_wrong_password_is_said_once_a_second_at_most() {
    let written = Written::default();
    let _guard = tracing::subscriber::set_default(written.clone());
    let server = Server::start().await;
    server
        .cli::<()>(&["CONFIG", "SET", "requirepass", "secret"])
        .await;
    let redis = opened(&server.url(), OutagePolicy::open());
    let limits = redis.keyed("a", SlidingLog::new(5, MINUTE)).unwrap();
    let mut clock = Clock::new();
    let began = clock.now();
    let streams = (0..20).map(|key| {
        let limit = limits.at(&key.to_string()).unwrap();
        stream::iter([1]).pace(limit).count()
    });
    let streams = futures::future::join_all(streams);
    let waited = tokio::time::timeout(Duration::from_millis(1_200), streams).await;
    assert!(waited.is_err(), "something passed");
    pause(Duration::from_millis(1)).await;

    let said = written.count("refuses calls of limits");
    let seconds = usize::try_from(clock.now().since(began).as_secs()).unwrap();
    assert!((1..=seconds + 1).contains(&said), "{said} in {seconds} s");
    assert_eq!(written.count("NOAUTH"), said);
}
