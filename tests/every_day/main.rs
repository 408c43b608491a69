//! What users of limiters ask for every day, each as its claim.
#![expect(
    clippy::disallowed_methods,
    reason = "tests measure on tokio's paused clock"
)]

mod aligned;
mod combine;
mod configured;
mod line;
mod priorities;
mod settle;
