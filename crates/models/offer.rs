//! Every order in which threads can take permits of an offer and give them back while another thread reclaims them.

#[path = "../../src/wait/offer.rs"]
mod offer;

// The file imports it from its own crate.
#[derive(Clone, Copy)]
pub(crate) enum Intent {
    Acquire,
    Peek,
}
