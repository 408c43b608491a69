use core::time::Duration;

/// What became of a call, for a controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a call says that there is room, that there is none, or nothing"
)]
pub enum Outcome {
    /// It was answered, after so long.
    Success {
        /// From the emission to the answer, without the wait for a permit.
        latency: Duration,
    },
    /// It says nothing about how much the other side bears: it failed for a reason of its own, or was given up.
    Ignored,
    /// It was too much: refused (429, 503), or not answered in time.
    Dropped,
}
