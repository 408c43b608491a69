//! Tools to test paceline's adapters: virtual time, exact equality, and failures that are shown as timelines.
//!
//! * [`marble`]: timelines drawn as rows, `a - b |`, played into an adapter and compared with what came out.
//! * [`wakes`]: futures and streams polled by hand, and where their wakers are.
//! * [`clock`]: leaps and stopwatches on tokio's paused clock.
//! * [`probe`]: a source and a sink driven by hand, one step at a time.
//! * `browser`: a page in a browser without a window (feature `browser`).
//! * [`queue`]: an oracle for wait queues, which says who passes when.
//! * [`program`]: a small program that cargo builds.
//! * [`source`]: the public names in the source of a crate.
//! * [`turns`]: keys that take turns in a limit, and that divide permits, as a plain list.
//! * [`conformance`]: the rules that every adapter of streams or sinks and every service keeps, checked on any of them.
//!
//! Nothing here knows paceline: an adapter is handed over by a closure. So the same rows and rules fit any stream or sink.

#[cfg(feature = "browser")]
pub mod browser;
pub mod clock;
pub mod conformance;
pub mod marble;
pub mod probe;
pub mod program;
pub mod queue;
pub mod source;
pub mod turns;
pub mod wakes;

mod patience;
