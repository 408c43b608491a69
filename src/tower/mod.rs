//! Limits as [`tower`](https://docs.rs/tower) layers, for services and for outbound clients. Feature `tower`.

mod refusal;

pub use refusal::Refusal;
