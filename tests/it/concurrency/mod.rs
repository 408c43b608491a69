mod adaptive;
mod admit;
mod claims;
mod cooldown;
mod fair_permits;
mod keyed_permits;
mod network;
mod observed;
mod permits;
mod recorded;
mod resize;
mod switched;
mod within;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use paceline::concurrency::Admit;

type Admitted<A> = Poll<Result<Option<<A as Admit>::Guard>, <A as Admit>::Error>>;

/// A call panics while it holds a permit, and that is the panic which is seen.
fn panics_with<G>(permit: impl FnOnce() -> G) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permit();
        panic!("the call panics");
    }));
    let message = panicked.unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the call panics"));
}

/// Asks without waiting for the answer.
fn asked<A: Admit>(handle: &mut A) -> Admitted<A> {
    handle.poll_admit((), &mut Context::from_waker(Waker::noop()))
}

fn tried<A: Admit>(handle: &mut A) -> Admitted<A> {
    handle.poll_try_admit((), &mut Context::from_waker(Waker::noop()))
}
