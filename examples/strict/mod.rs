//! The parts that the examples with a strict provider share: its judge, its server on loopback, and its client. Each example
//! includes this folder by its path.

mod http;
mod site;
mod sliding;

pub(crate) use self::{
    http::{client, reason},
    site::{Arrival, in_background, listen, refused, serve},
    sliding::Sliding,
};

/// Rounds to three decimals.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
