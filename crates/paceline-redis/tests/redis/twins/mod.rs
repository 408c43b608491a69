//! Compares each script in Redis with its policy in memory, on a real server.
//!
//! Tests pass their own time, so that a trace of years runs in seconds; tests of lifetimes use the server's clock. The parameters
//! of the scripts are computed here again, independently of the library.

mod alone;
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
mod reserved;
mod retune;
mod returns;
mod subject;
mod trace;
mod traces;
mod turns;
mod whole;

use std::cell::RefCell;
use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use self::asking::Store;

/// A time like today's, in microseconds.
const NOW: u64 = 1_700_000_000_000_000;

/// Uses the server's clock.
const REAL: u64 = 0;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

type Tried = Result<(), TestCaseError>;

/// Tries a law on random values, all on one server.
fn holds<T: Debug>(
    cases: u32,
    values: impl Strategy<Value = T>,
    law: impl Fn(&mut Store, T) -> Tried,
) {
    let store = RefCell::new(Store::start());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&values, |value| law(&mut store.borrow_mut(), value));
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}
