//! A capacity that clients share, cycle by cycle: one that needs more borrows what others leave.

// Until `limiter::Fair` calls it.
#![allow(dead_code, unused_imports)]

mod accounts;
mod claim;
mod client;
mod clients;
mod divide;
mod fair_share;
mod report;
mod wide;

pub(crate) use accounts::Accounts;
pub use claim::{Claim, Division, Terms};
pub(crate) use clients::OVERFLOW;
pub use divide::divide;
pub use fair_share::{FairShare, Newcomers};
pub use report::{ClientShare, Cycle};
