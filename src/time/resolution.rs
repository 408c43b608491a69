/// How exactly a [`Timer`](super::Timer) waits.
///
/// No timer is ever early. The resolution says how late it may be on an idle machine.
///
/// ```
/// use core::future::poll_fn;
/// use paceline::time::{Resolution, Timer};
/// use std::time::{Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let start = Instant::now();
/// let mut timer = Timer::new().with_resolution(Resolution::Millis);
///
/// timer.arm(Duration::from_micros(250));
/// poll_fn(|cx| timer.poll_elapsed(cx)).await;
/// assert!(start.elapsed() >= Duration::from_micros(250));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Resolution {
    /// To the microsecond, by a timer of the kernel. This needs Linux, feature `precise` (a default feature), tokio's real clock
    /// and a runtime with I/O enabled. Elsewhere it is the same as [`Millis`](Self::Millis).
    #[default]
    Exact,
    /// To the millisecond, by tokio's own timers. It saves power where many timers wait or the exact instant does not matter.
    Millis,
}
