//! Limits on how much is under way at once: permits, and controllers that move their number.
//!
//! A rate limits how often something begins; [`Permits`] limit how much is under way. They are also the only limit that
//! can promise what a provider counts *on arrival*: see [`with_cooldown`](Permits::with_cooldown).
//!
//! How many permits a provider bears is often not known, and changes. A controller finds out from the outcomes of the
//! calls:
//!
//! | | goes by | for |
//! |---|---|---|
//! | [`Aimd`] | refusals: one more while all is well, a part of it after a refusal | a provider that says when it is too much |
//! | [`Gradient`] | latency: the long-term average against the present one | a provider that grows slow first |
//!
//! Controllers are arithmetic: they are given each [`Outcome`] and the time, have no clock and no lock, and know nothing of the
//! permits. One line joins them, `permits.resize(controller.limit())`; see the example at [`Aimd`].
//!
//! What is not here: a queue with a deadline (`tokio::time::timeout` around [`acquire`](Permits::acquire) is one, since
//! giving up costs nothing). Permits that processes share are in `redis` (feature `redis`).

mod aimd;
mod gradient;
mod permits;
mod semaphore;

use core::time::Duration;

pub use aimd::Aimd;
pub use gradient::Gradient;
pub(crate) use permits::Missed;
pub use permits::{AcquirePermit, AcquirePermits, Permit, Permits, TooMany};

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
