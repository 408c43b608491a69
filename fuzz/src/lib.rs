//! Hostile bytes for `paceline`: each function takes any bytes, makes a trace of calls of them, and panics if the library
//! does what it says it never does.
//!
//! `cargo fuzz` runs them on what it finds worth trying, and `tests/bodies.rs` on thousands of random inputs.

use std::path::Path;

mod dice;
mod expected;
mod feedback;
mod keyed;
mod mirror;
mod rate;
mod shared;
mod virtual_time;

/// What the tests of the laws know of each policy, read where it stands.
#[path = "../../laws"]
mod laws {
    #[expect(dead_code, reason = "the tests look for more")]
    mod bounds;
    mod model;
    #[path = "../fuzz/src/policies.rs"]
    pub(super) mod policies;
    #[path = "../fuzz/src/steps.rs"]
    mod steps;
    mod subject;
    #[expect(dead_code, reason = "proptest makes the traces of the tests")]
    mod trace;
}

pub use feedback::feedback;
pub use keyed::keyed;
pub use laws::policies::policies;
pub use rate::rate;
pub use shared::shared;

/// Runs `body` on each file that the program was given.
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
