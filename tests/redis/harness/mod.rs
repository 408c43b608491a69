//! What the servers of the tests promise to the tests.

mod one;
mod pair;
