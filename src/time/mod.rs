//! Readings and doors to clocks: the only place where time is read or slept.
//!
//! Everything that decides is *given* the time as a [`Tick`]; everything that waits does so through a [`Timer`]. Both
//! follow tokio's clock, so that a test on its paused clock (`#[tokio::test(start_paused = true)]`) sees exact instants
//! and waits for nothing.

#[cfg(all(feature = "precise", target_os = "linux"))]
mod alarm_clock;
mod clock;
mod coarse;
mod here;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod lead;
mod out_of_range;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod precise;
mod precision;
mod rate;
mod rate_text;
mod resolution;
mod tick;
mod timer;

pub use clock::Clock;
pub(crate) use clock::is_real;
pub(crate) use here::this_runtime;
pub use out_of_range::OutOfRange;
pub(crate) use precision::Precision;
pub use rate::{Rate, RateError};
pub use rate_text::ParseRateError;
pub use resolution::Resolution;
pub use tick::Tick;
pub use timer::Timer;
