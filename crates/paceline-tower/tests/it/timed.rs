//! Instants in milliseconds.
#![expect(
    clippy::disallowed_methods,
    reason = "a clock of the tests, which shares nothing with the timers under test"
)]

use tokio::time::Instant;

pub(crate) use testkit::clock::ms;

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whole milliseconds since then; anything in between is a mistake in a test.
#[track_caller]
pub(crate) fn since(start: Instant) -> u64 {
    let elapsed = start.elapsed();
    assert_eq!(elapsed.subsec_nanos() % 1_000_000, 0, "{elapsed:?}");
    u64::try_from(elapsed.as_millis()).unwrap()
}

pub(crate) async fn sleep(millis: u64) {
    tokio::time::sleep(ms(millis)).await;
}
