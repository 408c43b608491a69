//! Limits as [`tower`](https://docs.rs/tower) layers, for services and for outbound clients. Feature `tower`.

mod admission;
mod answer;
mod call;
mod concurrency;
mod enforce;
mod error;
mod failure;
mod held;
mod pace;
mod refusal;
mod terms;

pub use answer::{Answer, AsError, AsResponse, Respond};
pub use concurrency::{Concurrency, ConcurrencyFuture, ConcurrencyLayer};
pub use enforce::{Enforce, EnforceFuture, EnforceLayer};
pub use error::Error;
pub use failure::{Failures, OnFailure};
pub use held::{Held, Hold, UntilBody, UntilResponse};
pub use pace::{Pace, PaceFuture, PaceLayer};
pub use refusal::Refusal;
pub use terms::{BadKey, ByKey, Costed, Direct, PermitsByKey, Terms};
