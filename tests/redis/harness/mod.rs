//! What the servers of the tests promise to the tests.

mod cluster;
mod one;
mod pair;
mod relay;
