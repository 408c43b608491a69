//! Limits that are chosen while the program runs.

mod named;
mod policy;
#[cfg(feature = "serde")]
mod read;
mod variables;
