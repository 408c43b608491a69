//! Clocks and timers: the only module that reads the time or sleeps.
//!
//! Code that decides is given the time as a [`Tick`]. Code that waits uses a [`Timer`]. Both follow tokio's clock, so a test on
//! tokio's paused clock (`#[tokio::test(start_paused = true)]`) sees exact instants and takes no time.
//!
//! | to | take |
//! |---|---|
//! | say how much in which time, also as a text | [`Rate`] |
//! | decide in a policy of your own | [`Tick`], from a [`Clock`] |
//! | wait as exactly as the limits do | [`Timer`], with a [`Resolution`] |
//! | align windows with the calendar, in tests too | [`WallClock`] |
//!
//! # Clocks and runtimes
//!
//! What passes at once needs no runtime, and neither does `acquire_blocking`. A future or a stream that has to wait needs a tokio
//! runtime with `enable_time`, and panics in any other place. In another executor, poll it under a guard of
//! [`Handle::enter`](tokio::runtime::Handle::enter) of a tokio runtime that runs beside it.
//!
//! `wasm32-unknown-unknown` has no clock. A [`Policy`](crate::policy::Policy) works there, with times of your own as [`Tick`]s; the
//! methods of [`PolicyExt`](crate::limiter::PolicyExt) do not compile, and what else reads a clock panics.

mod civil;
mod clock;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod early_wake;
pub(crate) mod error;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod kernel_timer;
mod rate;
mod tick;
mod timer;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod timer_fd;
mod wall_clock;
mod wheel_timer;

pub(crate) use civil::{days_of_month, first_day, first_day_of_next_month};
pub use clock::Clock;
#[cfg(feature = "metrics")]
pub(crate) use clock::since_1970;
pub(crate) use clock::{FAR_AHEAD, instant, is_real, require_clock, this_runtime};
pub use error::OutOfRange;
pub(crate) use error::or_panic;
pub use rate::Rate;
pub(crate) use rate::{in_units, parse_period, parse_rate, shortened, unit_nanos};
pub use tick::Tick;
pub(crate) use tick::saturating_duration;
pub use timer::{Resolution, Timer};
pub use wall_clock::WallClock;
