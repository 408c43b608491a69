//! The wait queue, through the kinds of limit that have one: a shared limit, one whose keys take turns, one by deadline, one key of a
//! keyed limit, permits, and permits that keys divide.
//!
//! A claim is written once, as a function over a [`Kind`], and runs for each of them. Claims that do not depend on the order also run
//! where the newest waiter is always first. Claims in which permits come back only when they are given back also run for one client
//! of a fair share.

use std::future::Future;
use std::thread;
use std::time::Duration;

use testkit::clock::paused_runtime;
use tokio::runtime::{Builder, Runtime};

use crate::timed::{ms, now, since};
use kinds::{
    DEADLINES, FairLimit, KeyedLimit, Kind, NEWEST, OLDEST, PermitLimit, Request, SharedLimit,
    TURNS,
};

/// A test of each claim for each of these kinds. A claim that is `paused` is asynchronous, on a paused clock. One that is `bare` makes the
/// runtimes that it needs.
macro_rules! claims {
    ($clock:ident: $($name:ident: $($kinds:ident)+,)+) => {$(
        mod $name {
            $(claims! { @$kinds $clock $name })+
        }
    )+};
    (@in_order $clock:ident $name:ident) => {
        claims! { @$clock shared, crate::wait::SharedLimit, $name }
        claims! { @$clock by_turns, crate::wait::SharedLimit<{ crate::wait::TURNS }>, $name }
        claims! { @$clock by_deadline, crate::wait::SharedLimit<{ crate::wait::DEADLINES }>, $name }
        claims! { @$clock keyed, crate::wait::KeyedLimit, $name }
        claims! { @$clock permits, crate::wait::PermitLimit, $name }
        claims! { @$clock divided, crate::wait::PermitLimit<{ crate::wait::TURNS }>, $name }
    };
    (@newest $clock:ident $name:ident) => {
        claims! { @$clock newest_of_shared, crate::wait::SharedLimit<{ crate::wait::NEWEST }>, $name }
        claims! { @$clock newest_of_permits, crate::wait::PermitLimit<{ crate::wait::NEWEST }>, $name }
    };
    // Who waits for the end of a cycle needs a runtime.
    (@fair bare $name:ident) => {
        #[test]
        fn fair() {
            let runtime = crate::wait::paused_runtime();
            let _inside = runtime.enter();
            super::$name::<crate::wait::FairLimit>();
        }
    };
    (@fair paused $name:ident) => {
        claims! { @paused fair, crate::wait::FairLimit, $name }
    };
    (@bare $test:ident, $kind:ty, $name:ident) => {
        #[test]
        fn $test() {
            super::$name::<$kind>();
        }
    };
    (@paused $test:ident, $kind:ty, $name:ident) => {
        #[tokio::test(start_paused = true)]
        async fn $test() {
            super::$name::<$kind>().await;
        }
    };
}

mod cancelling;
mod head_timeout;
#[expect(
    dead_code,
    reason = "handles are for the schedules of the package `laws`"
)]
mod kinds;
mod lost_wakes;
mod newest_first;
mod order;
mod overload;
mod runtimes;
mod threads;
mod wakers;

/// What a test waits on at the most where a fault would be a wait without end.
const LONG: Duration = Duration::from_secs(20);

/// A runtime of one thread on the real clock, which runs only inside `block_on`.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime on the real clock with threads of its own.
fn runtime_with_threads(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs a future on this runtime, and fails where it would never end.
fn block_on<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let limited = async { tokio::time::timeout(LONG, future).await };
    runtime.block_on(limited).expect("it ends")
}

/// While all tasks wait, a paused clock moves to the next timer, if there is one.
async fn is_any_timer_armed() -> bool {
    let start = now();
    let (sender, is_over) = futures::channel::oneshot::channel();
    let thread = thread::spawn(move || {
        thread::sleep(ms(50));
        sender.send(()).unwrap();
    });
    is_over.await.unwrap();
    thread.join().unwrap();
    since(start) > 0
}
