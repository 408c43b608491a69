//! Tests of the test servers.

mod cluster;
mod one;
mod pair;
mod relay;
