use std::future::Future;
use std::time::Duration;

/// Runs the future on a paused clock that starts with it.
pub(crate) fn in_virtual_time(trace: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime without input and output");
    runtime.block_on(trace);
}

/// Rounds to whole milliseconds, as timers do.
pub(crate) fn in_millis(time: Duration, round: fn(u128, u128) -> u128) -> Duration {
    let millis = round(time.as_nanos(), 1_000_000);
    Duration::from_millis(u64::try_from(millis).expect("less than an age"))
}
