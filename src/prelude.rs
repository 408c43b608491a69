//! What most programs need: `use paceline::prelude::*;`.
//!
//! The extension traits are nameless. The types are the policies to begin with, and what they are made of.
//!
//! ```
//! use paceline::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let limit = TokenBucket::new(Rate::per_second(30), 5).shared();
//! limit.acquire_one().await;
//! # }
//! ```

#[doc(no_inline)]
pub use core::time::Duration;

pub use crate::io::{PaceReadExt as _, PaceWriteExt as _};
pub use crate::limiter::LimiterExt as _;
pub use crate::limiter::PolicyExt as _;
pub use crate::limiter::Settle as _;
pub use crate::limiter::SwitchExt as _;
pub use crate::policy::{Interval, SlidingLog, TokenBucket};
pub use crate::sink::PaceSinkExt as _;
pub use crate::stream::PaceStreamExt as _;
pub use crate::stream::PaceTryStreamExt as _;
pub use crate::time::Rate;
