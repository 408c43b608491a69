//! One binary; its modules mirror `src/`.

mod adapters;
mod concurrency;
mod config;
mod feedback;
mod io;
mod limiter;
mod names;
mod neighbours;
mod prelude;
mod shed;
mod sink;
mod stream;
mod time;
mod timed;
mod wait;
#[cfg(feature = "tracing")]
mod written;
