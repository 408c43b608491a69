//! The scripts in Redis beside the policies whose twins they are, on a real server.
//!
//! Tests bring their own time, so that a trace of years runs in no time; where the server's own clock matters, it is used. What a
//! script is told of a policy is computed here once more, apart from the library.

mod asking;
mod beside;
mod blind;
mod edges;
mod faults;
mod foreign;
mod lifetimes;
mod lost;
mod numbers;
mod retune;
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
