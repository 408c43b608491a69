//! Compares each script in Redis with its policy in memory, on a real server.
//!
//! Tests pass their own time, so that a trace of years runs in seconds; tests of lifetimes use the server's clock. The parameters
//! of the scripts are computed here again, independently of the library.

mod asking;
mod beside;
mod edges;
mod faults;
mod foreign;
mod lifetimes;
mod lost;
mod many;
mod numbers;
mod outage;
mod retune;
mod returns;
mod set_back;
mod subject;
mod trace;
mod traces;
mod turns;
mod whole;

/// A time like today's, in microseconds.
const NOW: u64 = 1_700_000_000_000_000;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
