//! One binary; its modules mirror `src/`.

mod feedback;
mod laws;
mod layering;
mod limiter;
mod names;
mod neighbours;
mod stream;
mod time;
mod timed;
mod tree;
