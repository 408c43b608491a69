//! What examples with a strict provider share: how it counts, how it is served on loopback, and how it is called.

mod http;
mod site;
mod sliding;

pub(crate) use self::{
    http::{client, reason},
    site::{Arrival, in_background, listen, refused, serve},
    sliding::Sliding,
};

/// Three digits are all anybody reads.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
