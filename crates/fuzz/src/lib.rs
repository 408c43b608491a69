//! Hostile bytes for `paceline`. Each function makes a trace of calls from any bytes, and panics if the library breaks a
//! promise.
//!
//! `cargo fuzz` runs the functions on the inputs that it finds, and `tests/bodies.rs` on thousands of random inputs.

use std::path::Path;

mod dice;
mod feedback;
mod mirror;
mod queues;
mod rate;
mod switch_mirror;

/// The laws of the policies with their models and bounds, included from their tests.
#[path = "../../laws"]
#[expect(dead_code, reason = "only the tests use the rest")]
mod laws {
    mod answers;
    mod bounds;
    mod changes;
    mod edges;
    mod model;
    #[path = "../fuzz/src/policies.rs"]
    pub(super) mod policies;
    mod reading;
    mod settle;
    mod subject;
    mod trace;
}

pub use feedback::feedback;
pub use laws::policies::policies;
pub use queues::{keyed, shared};
pub use rate::rate;

/// Runs `body` on each file of the command line.
///
/// # Errors
///
/// If a file cannot be read.
pub fn replay(body: fn(&[u8])) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        println!("{}", Path::new(&path).display());
        body(&std::fs::read(path)?);
    }
    Ok(())
}
