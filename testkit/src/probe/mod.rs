//! A source and a sink driven by hand, one step at a time.
//!
//! The half that goes into the adapter is dumb; the handle that stays with the test says what it does next, and what
//! was done to it.

mod sink;
mod source;

pub use self::{
    sink::{Broken, Sink, SinkHandle, sink},
    source::{Source, SourceHandle, source},
};
