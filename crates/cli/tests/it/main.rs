//! Runs the command as a user does. Times have lower bounds only.
#![cfg(unix)]

mod arguments;
mod batches;
mod bytes;
mod ends;
mod keys;
mod lines;
mod plan;
mod readme;
#[cfg(feature = "redis")]
mod redis;
mod rest;
mod slow_reader;
mod support;
mod terminal;
