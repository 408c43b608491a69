//! Adapters that join a limit to a sink.
//!
//! Import [`PaceSinkExt`] (or the [prelude](crate::prelude)) and call its methods on any sink. What they do when something
//! is sent too soon differs, and so do their types: late rather than never ([`PaceSends`], [`PaceSendsByCost`]), an error
//! that gives the item back ([`EnforceSends`]), or dropped and counted ([`ShedSends`]).
//!
//! # What all of them promise
//!
//! * **Emission** is the instant in which the *inner* sink is given the item: no permit is taken before the inner sink can
//!   take what it is for, so that a slow one does not make two sends come closer.
//! * **To be ready costs nothing**, however often it is asked, and a ready sink that does not send holds up nobody.
//! * **What was sent is not kept back by what comes next**: an adapter that waits for the limit flushes the inner sink
//!   meanwhile, so that items leave a buffer as far apart as they went in.
//! * **To flush and to close** is to send what is held first. They wait for the limit only if something is held.
//! * **Nothing is held that `into_parts` does not give back.** If the inner sink fails when it is asked whether it is ready,
//!   or when it is flushed, what is held stays held. What it was given is its own.
//! * They can be built outside a runtime; a tokio runtime with time enabled is needed once there is something to wait for.
//!   Inner sinks need not be `Unpin`. An adapter does not forward the `Stream` of a type that is both.

mod enforce_sends;
mod error;
mod ext;
mod group_sends;
mod outlet;
mod pace_sends;
mod pace_sends_by_cost;
mod shed_sends;

pub use enforce_sends::EnforceSends;
pub use error::SendError;
pub use ext::PaceSinkExt;
pub use group_sends::GroupSends;
pub use pace_sends::PaceSends;
pub use pace_sends_by_cost::PaceSendsByCost;
pub use shed_sends::ShedSends;

#[doc(no_inline)]
pub use crate::batch::Window;
#[doc(no_inline)]
pub use crate::limiter::Exceeded;
