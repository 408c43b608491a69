//! Limits as [`tower`](https://docs.rs/tower) layers, for services and for outbound clients. Feature `tower`.

mod answer;
mod error;
mod refusal;

pub use answer::{Answer, AsError, AsResponse, Respond};
pub use error::Error;
pub use refusal::Refusal;
