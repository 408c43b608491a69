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
mod stream;
mod time;
mod timed;
mod tree;
mod wait;
