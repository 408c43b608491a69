//! Adapters that join a limit to a sink.
//!
//! Import [`PaceSinkExt`] (or the [prelude](crate::prelude)) and call its methods on any sink. They differ in what they do with
//! an item that is sent too soon, and each has a type of its own:
//!
//! | what is sent too soon | method | type |
//! |---|---|---|
//! | is sent late | [`pace_sends`](PaceSinkExt::pace_sends) | [`PaceSends`] |
//! | the same, and each item pays its cost | [`pace_sends_by_cost`](PaceSinkExt::pace_sends_by_cost) | [`PaceSendsByCost`] |
//! | is returned in an error | [`enforce_sends`](PaceSinkExt::enforce_sends) | [`EnforceSends`] |
//! | is dropped and counted | [`shed_sends`](PaceSinkExt::shed_sends) | [`ShedSends`] |
//! | joins a group, without a limit | [`group_sends`](PaceSinkExt::group_sends) | [`GroupSends`] |
//!
//! # What all of them promise
//!
//! * **Emission** is the instant in which the *inner* sink is given the item. No permit is taken before the inner sink can take
//!   the item, so a slow inner sink does not bring two sends closer together.
//! * **Being ready costs nothing**, however often `poll_ready` is called. An adapter that is ready and does not send does not
//!   hold up others.
//! * **An adapter that waits for the limit flushes the inner sink meanwhile.** So items leave a buffer as far apart as they
//!   went in, and none is kept back by the next one.
//! * **Flush and close** send what is held first. They wait for the limit only if something is held.
//! * **`into_parts` returns whatever is held.** If `poll_ready` or `poll_flush` of the inner sink fails, the held item stays
//!   held. An item that the inner sink was given belongs to the inner sink, even if it failed: see below.
//! * **A cost function that panics** loses nothing: the item stays held, and the next poll calls the function again.
//! * Adapters can be built outside a runtime. They need a tokio runtime with time enabled once there is something to wait for.
//!   Inner sinks need not be `Unpin`. An adapter does not forward the `Stream` of a type that is both.
//!
//! # When the inner sink fails
//!
//! `Sink::start_send` consumes its item and reports only an error, so a sink that fails loses the item it was given; behind
//! [`GroupSends`] that is a whole group. To keep what was not written, use a stream instead of a sink, and keep the item until
//! the write succeeds:
//!
//! ```
//! use futures::StreamExt;
//! use paceline::policy::Interval;
//! use paceline::prelude::*;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let mut written = Vec::new();
//! let mut attempts = 0;
//! // A database that fails once.
//! let mut write = |rows: &[i32]| {
//!     attempts += 1;
//!     if attempts == 2 {
//!         return Err("connection lost");
//!     }
//!     written.extend_from_slice(rows);
//!     Ok(())
//! };
//!
//! let rows = futures::stream::iter(1..=7);
//! let limit = Interval::every(Duration::from_millis(100)).owned();
//! let mut groups = rows.grouped_within(3, Duration::from_millis(20)).pace(limit);
//! while let Some(group) = groups.next().await {
//!     while let Err("connection lost") = write(&group) {
//!         tokio::time::sleep(Duration::from_secs(1)).await; // and write the same group again
//!     }
//! }
//! assert_eq!(written, [1, 2, 3, 4, 5, 6, 7]);
//! # }
//! ```

mod enforce_sends;
mod ext;
mod group_sends;
mod pace_sends;
mod pace_sends_by_cost;
mod shed_sends;

use core::error::Error;
use core::fmt;

pub use enforce_sends::EnforceSends;
pub use ext::PaceSinkExt;
pub use group_sends::GroupSends;
pub use pace_sends::PaceSends;
pub use pace_sends_by_cost::PaceSendsByCost;
pub use shed_sends::ShedSends;

#[doc(no_inline)]
pub use crate::batch::Window;
#[doc(no_inline)]
pub use crate::limiter::Exceeded;

/// Why an item was not sent: the inner sink failed, or the limit refused the item, which is in the error.
///
/// After a refusal the sink can be used as before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "either the inner sink was asked or the item was refused; callers should match"
)]
pub enum SendError<E, R> {
    /// The inner sink failed. This is its error.
    Inner(E),
    /// The limit refused the item. This contains the item.
    Refused(R),
}

impl<E, R: fmt::Display> fmt::Display for SendError<E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(_) => f.write_str("the inner sink failed"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl<E, R> Error for SendError<E, R>
where
    E: Error + 'static,
    R: Error,
{
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Refused(refused) => refused.source(),
        }
    }
}
