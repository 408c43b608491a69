//! One binary; its modules mirror `src/`, but for `adapters`, which tells once what all adapters of a kind do.

mod adapters;
mod concurrency;
mod config;
mod feedback;
mod io;
mod judge;
mod limiter;
mod names;
mod neighbours;
mod prelude;
mod retry;
mod shed;
mod sink;
mod stream;
mod time;
mod timed;
mod wait;
#[cfg(feature = "tracing")]
mod written;
