//! A capacity that clients share, cycle by cycle: one that needs more borrows what others leave.

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
pub(crate) use report::{ClientShare, Cycle};
