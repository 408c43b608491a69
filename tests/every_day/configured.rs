//! Limits that are chosen while the program runs.

mod dyn_limiter;
mod named;
mod policy;
mod read;
