//! A source and a sink driven by hand, one step at a time, and a [`service`] that records how it is used.
//!
//! One half goes into the adapter. The test keeps the handle, which decides what the other half does next and records the
//! calls on it.

pub mod service;
mod sink;
mod source;

pub use self::{
    sink::{Broken, Sink, SinkHandle, sink},
    source::{Source, SourceHandle, source},
};

use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
