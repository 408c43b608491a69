//! The public port: listeners, connections, and how they end.

mod connection;
mod heads;
mod life;
mod listen;
mod places;
mod socket;
mod watchdog;
mod worker;

pub(crate) use self::life::{Signals, run};
pub(crate) use self::places::Places;
