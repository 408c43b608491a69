mod adaptive;
mod admit;
mod claims;
mod cooldown;
mod keyed_permits;
mod network;
mod observed;
mod permits;
mod recorded;
mod resize;
mod switched;
mod within;

use std::task::{Context, Poll, Waker};

use paceline::concurrency::Admit;

type Admitted<A> = Poll<Result<Option<<A as Admit>::Guard>, <A as Admit>::Error>>;

/// Asks without waiting for the answer.
fn asked<A: Admit>(handle: &mut A) -> Admitted<A> {
    handle.poll_admit((), &mut Context::from_waker(Waker::noop()))
}

fn tried<A: Admit>(handle: &mut A) -> Admitted<A> {
    handle.poll_try_admit((), &mut Context::from_waker(Waker::noop()))
}
