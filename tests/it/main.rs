//! One binary; its modules mirror `src/`.

mod concurrency;
mod feedback;
mod io;
mod laws;
mod layering;
mod limiter;
mod names;
mod neighbours;
mod sink;
mod source;
mod stream;
mod structure;
mod time;
mod timed;
mod tree;
