//! So many at once: permits, and what moves their number.
//!
//! A rate limits how often something begins; [`Permits`] limit how much is under way. They are also the only limit that
//! can promise what a provider counts *on arrival*: see [`with_cooldown`](Permits::with_cooldown).
//!
//! How many permits a provider bears is often not known, and changes. A controller finds out from what becomes of the
//! calls:
//!
//! | | goes by | for |
//! |---|---|---|
//! | [`Aimd`] | refusals: one more while all is well, a part of it after a refusal | a provider that says when it is too much |
//! | [`Gradient`] | latency: the long-term average against the present one | a provider that grows slow first |
//!
//! Controllers are sums: they are given each [`Outcome`] and the time, have no clock and no lock, and know nothing of the
//! permits. To join them is one line, `permits.resize(controller.limit())`; see the example at [`Aimd`].
//!
//! What is not here: a queue with a deadline (`tokio::time::timeout` around [`acquire`](Permits::acquire) is one, since
//! giving up costs nothing), and permits that processes share.

mod acquire;
mod aimd;
mod desk;
mod error;
mod gradient;
mod outcome;
mod permit;
mod permits;
mod stock;

pub use acquire::{AcquirePermit, AcquirePermits};
pub use aimd::Aimd;
pub use error::TooMany;
pub use gradient::Gradient;
pub use outcome::Outcome;
pub use permit::Permit;
pub(crate) use permits::Missed;
pub use permits::Permits;
