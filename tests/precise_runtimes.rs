//! The kernel timer where runtimes end, lack a driver, or have a paused clock. Lower bounds and liveness only.
#![cfg(all(feature = "precise", target_os = "linux"))]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a clock that shares nothing with the one under test"
)]

use std::convert::Infallible;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::panic::{self, PanicHookInfo};
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::{StreamExt, poll, stream};
use paceline::concurrency::Permits;
use paceline::limiter::{Gate, Limiter};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use paceline::time::{Resolution, Timer};
use testkit::program::Program;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn on_one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn without_io() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

async fn elapsed(timer: &mut Timer) {
    poll_fn(|cx| timer.poll_elapsed(cx)).await;
}

async fn is_pending(timer: &mut Timer) -> bool {
    poll_fn(|cx| Poll::Ready(timer.poll_elapsed(cx).is_pending())).await
}

/// A task that waits 20 ms.
async fn waiting() -> JoinHandle<()> {
    let task = tokio::spawn(async {
        let mut timer = Timer::new();
        timer.arm(ms(20));
        elapsed(&mut timer).await;
    });
    yield_now().await;
    task
}

#[test]
fn a_wait_ends_if_the_clock_is_paused_or_stood_still_meanwhile() {
    for goes_on in [false, true] {
        on_one_thread().block_on(async {
            let start = tokio::time::Instant::now();
            let task = waiting().await;
            tokio::time::pause();
            if goes_on {
                std::thread::sleep(ms(5));
                tokio::time::resume();
            }
            task.await.unwrap();
            assert!(start.elapsed() >= ms(20));
        });
    }
}

/// A wheel timer that has its memory already is set to thirty years.
#[tokio::test]
async fn a_clock_that_is_paused_before_the_first_poll_does_not_leap() {
    let mut timer = Timer::of_this_runtime();
    let start = tokio::time::Instant::now();
    timer.arm(ms(20));
    tokio::time::pause();
    elapsed(&mut timer).await;
    let waited = start.elapsed();
    assert!(waited >= ms(20));
    assert!(waited < ms(1_000), "{waited:?} of the paused clock");
}

/// On some machines such a wait is over before it is polled, on others it is spent in a loop.
#[test]
fn the_shortest_waits_yield_to_other_tasks() {
    on_one_thread().block_on(async {
        for nanos in [0, 50, 900, 4_000] {
            let other = tokio::spawn(async {});
            let mut timer = Timer::new();
            let mut waits = 0;
            while !other.is_finished() {
                waits += 1;
                assert!(waits < 1_000, "{nanos} ns");
                timer.arm(Duration::from_nanos(nanos));
                elapsed(&mut timer).await;
            }
        }
    });
}

/// An executor that is not tokio's may poll what belongs to a runtime.
#[test]
fn a_timer_that_is_polled_outside_any_runtime_waits_in_its_own() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let start = Instant::now();
    let mut timer = Timer::new();
    let inside = runtime.enter();
    timer.arm(ms(20));
    assert!(futures::executor::block_on(is_pending(&mut timer)));
    drop(inside);
    futures::executor::block_on(elapsed(&mut timer));
    assert!(start.elapsed() >= ms(20));
}

#[test]
fn a_timer_may_go_to_and_fro_between_runtimes() {
    let (here, there) = (on_one_thread(), on_one_thread());
    let mut timer = Timer::new();
    for n in 0..100 {
        let (begins, ends) = if n % 3 == 0 {
            (&here, &there)
        } else {
            (&there, &here)
        };
        let start = Instant::now();
        let wait = Duration::from_micros(300 + n * 10);
        begins.block_on(async {
            timer.arm(wait);
            assert!(is_pending(&mut timer).await || start.elapsed() >= wait);
        });
        ends.block_on(elapsed(&mut timer));
        assert!(start.elapsed() >= wait);
    }
}

#[test]
fn in_a_runtime_without_io_the_wait_is_on_tokios_timers() {
    let bare = without_io();
    let mut timer = Timer::new();
    for _ in 0..3 {
        let start = Instant::now();
        timer.arm(ms(3));
        bare.block_on(elapsed(&mut timer));
        assert!(start.elapsed() >= ms(3));
        assert!(!Timer::new().is_of_this_runtime());
    }
    timer.arm(ms(1));
    on_one_thread().block_on(elapsed(&mut timer));
}

/// But for the last 100 µs at most, and although another timer is due sooner and one is given up.
#[tokio::test]
async fn a_wait_polls_once_and_then_sleeps() {
    let mut sooner = Timer::new();
    sooner.arm(ms(50));
    assert!(is_pending(&mut sooner).await);
    let sooner = tokio::spawn(async move { elapsed(&mut sooner).await });
    let mut given_up = Timer::new();
    given_up.arm(ms(80));
    assert!(is_pending(&mut given_up).await);
    given_up.disarm();

    let mut timer = Timer::new();
    let start = Instant::now();
    timer.arm(ms(200));
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        let soon = Duration::from_micros(100);
        assert!(polls == 1 || start.elapsed() + soon >= ms(200), "{polls}");
        timer.poll_elapsed(cx)
    })
    .await;
    sooner.await.unwrap();
}

#[test]
fn a_timer_knows_its_runtime() {
    let (here, there) = (on_one_thread(), on_one_thread());
    let mut timer = Timer::new();
    assert!(!timer.is_of_this_runtime());
    here.block_on(async {
        assert!(!timer.is_of_this_runtime(), "it has not waited yet");
        timer.arm(ms(20));
        assert!(is_pending(&mut timer).await);
        assert!(timer.is_of_this_runtime());
    });
    there.block_on(async { assert!(!timer.is_of_this_runtime()) });
}

/// A limiter that always has to wait.
struct Waits(Resolution);

impl Limiter for Waits {
    type Error = Infallible;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        let retry_in = ms(60_000);
        Poll::Ready(Ok(Decision::Wait { retry_in }))
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        self.poll_decide(cost, cx)
    }

    fn give_up(&mut self) {}

    fn resolution(&self) -> Resolution {
        self.0
    }
}

/// How many tasks there are while it waits. A timer of the kernel has one.
fn tasks_while_waiting(wait: impl Future) -> usize {
    on_one_thread().block_on(async {
        assert!(poll!(pin!(wait)).is_pending());
        Handle::current().metrics().num_alive_tasks()
    })
}

#[test]
fn every_wait_for_a_limit_has_the_resolution_of_the_limit() {
    for (resolution, tasks) in [(Resolution::Exact, 1), (Resolution::Millis, 0)] {
        let mut gate = Gate::new(Waits(resolution));
        let passes = poll_fn(|cx| gate.poll_one(cx));
        assert_eq!(tasks_while_waiting(passes), tasks, "a gate");
        let opens = poll_fn(|cx| gate.poll_open(cx));
        assert_eq!(tasks_while_waiting(opens), tasks, "the same gate");

        let interval = Interval::every(ms(60_000));
        let owned = interval.owned().with_resolution(resolution);
        let paced = stream::repeat(()).pace(owned);
        let second = async { paced.skip(1).next().await };
        assert_eq!(tasks_while_waiting(second), tasks, "an owned limit");

        let shared = interval.shared().with_resolution(resolution);
        assert!(shared.try_acquire(1).is_pass());
        assert_eq!(tasks_while_waiting(shared.acquire(1)), tasks, "shared");
        let within = shared.acquire_within(1, ms(90_000));
        assert_eq!(tasks_while_waiting(within), tasks, "shared, for a time");

        let keyed = interval.keyed::<u8>().with_resolution(resolution);
        assert!(keyed.try_acquire(&1, 1).is_pass());
        assert_eq!(tasks_while_waiting(keyed.acquire(1, 1)), tasks, "a key");

        let permits = Permits::new(1).with_cooldown(ms(60_000));
        let permits = permits.with_resolution(resolution);
        drop(permits.try_acquire());
        assert_eq!(tasks_while_waiting(permits.acquire()), tasks, "permits");
    }
}

/// The timer of the queue wakes a waiter that became the head. Beside it there is the task of the head-of-line timeout.
#[test]
fn a_queued_waiter_is_woken_with_the_resolution_of_its_handle() {
    for (resolution, tasks) in [(Resolution::Exact, 2), (Resolution::Millis, 1)] {
        let limit = Interval::every(ms(60_000)).shared();
        let limit = limit.with_resolution(resolution);
        assert!(limit.try_acquire(1).is_pass());
        on_one_thread().block_on(async {
            let mut first = Box::pin(limit.acquire(1));
            let mut second = pin!(limit.acquire(1));
            assert!(poll!(&mut first).is_pending());
            assert!(poll!(&mut second).is_pending());
            drop(first);
            let metrics = Handle::current().metrics();
            assert_eq!(metrics.num_alive_tasks(), tasks, "{resolution:?}");
        });
    }
}

const IN_A_CHILD: &str = "PACELINE_IN_A_CHILD";

#[test]
fn without_file_descriptors_the_wait_is_on_tokios_timers() {
    let name = "without_file_descriptors_the_wait_is_on_tokios_timers";
    in_a_child(name, "ulimit -n 40", || {
        on_one_thread().block_on(async {
            let all: Vec<File> = core::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            assert!((1..40).contains(&all.len()));
            let mut paced = stream::iter(0..4).min_interval(ms(5));
            let start = Instant::now();
            assert_eq!(paced.by_ref().take(2).count().await, 2);
            drop(all);
            assert_eq!(paced.count().await, 2);
            assert!(start.elapsed() >= ms(15));
        });
    });
}

/// The hook that prints the message is that of the process, in which this is the only test.
#[test]
fn tokios_message_appears_once_for_each_of_64_runtimes_without_io() {
    static MESSAGES: AtomicU32 = AtomicU32::new(0);
    let name = "tokios_message_appears_once_for_each_of_64_runtimes_without_io";
    in_a_child(name, "true", || {
        let count = |_: &PanicHookInfo<'_>| {
            MESSAGES.fetch_add(1, Ordering::Relaxed);
        };
        let bare: Vec<_> = core::iter::repeat_with(without_io).take(65).collect();
        let messages_after_waits_in = |runtimes: &[Runtime]| {
            for runtime in runtimes {
                let mut timer = Timer::new();
                timer.arm(ms(60_000));
                assert!(runtime.block_on(is_pending(&mut timer)));
            }
            MESSAGES.load(Ordering::Relaxed)
        };
        let printing = panic::take_hook();
        panic::set_hook(Box::new(count));
        let messages =
            [..64, ..64, ..65, ..1].map(|runtimes| messages_after_waits_in(&bare[runtimes]));
        panic::set_hook(printing);
        assert_eq!(
            messages,
            [64, 64, 65, 66],
            "with the 65th, all are forgotten"
        );
    });
}

/// It is built and run by cargo. Tests themselves are always built to unwind.
#[test]
fn in_a_program_that_aborts_on_panic_the_wait_is_on_tokios_timers() {
    let package = Program::new(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/aborts_on_panic"),
        "[dependencies]\npaceline.path = '{workspace}'\ntokio = { version = '1', features = ['rt', 'time'] }\n\
         [profile.dev]\npanic = 'abort'",
    );
    let program = r"
        use std::{future::poll_fn, task::Poll, time::{Duration, Instant}};
        use paceline::time::Timer;
        use tokio::runtime::{Builder, Handle};

        fn main() {
            let without_io = Builder::new_current_thread().enable_time().build().unwrap();
            let with_io = Builder::new_current_thread().enable_all().build().unwrap();
            for runtime in [without_io, with_io] {
                let mut timer = Timer::new();
                runtime.block_on(async {
                    timer.arm(Duration::from_secs(60));
                    poll_fn(|cx| Poll::Ready(assert!(timer.poll_elapsed(cx).is_pending()))).await;
                    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);

                    let start = Instant::now();
                    timer.arm(Duration::from_millis(3));
                    poll_fn(|cx| timer.poll_elapsed(cx)).await;
                    assert!(start.elapsed() >= Duration::from_millis(3));
                });
            }
        }
    ";
    let ran = package.cargo(&["run"], "main.rs", program);
    assert!(ran.status.success(), "{ran:?}");
}

/// Runs a test in a process of its own, after a command of the shell.
fn in_a_child(name: &str, before: &str, test: impl FnOnce()) {
    if std::env::var_os(IN_A_CHILD).is_some() {
        return test();
    }
    let this = std::env::current_exe().unwrap();
    let child = Command::new("sh")
        .arg("-c")
        .arg(format!("{before} && exec \"$0\" --exact \"$1\""))
        .arg(this)
        .arg(name)
        .env(IN_A_CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

/// Waiting tasks are dropped while others wait, in all orders.
#[test]
fn a_runtime_ends_with_all_tasks_that_wait_in_it() {
    for threads in [0, 2] {
        let mut runtime = Builder::new_multi_thread();
        let runtime = if threads == 0 {
            on_one_thread()
        } else {
            let runtime = runtime.worker_threads(threads).enable_all();
            runtime.build().unwrap()
        };
        let limit = Interval::every(ms(60_000)).shared();
        let permits = Permits::new(1).with_cooldown(ms(60_000));
        assert!(limit.try_acquire(1).is_pass());
        drop(permits.try_acquire());
        for _ in 0..500 {
            let (limit, permits) = (limit.clone(), permits.clone());
            runtime.spawn(async move { limit.acquire(1).await });
            runtime.spawn(async move { drop(permits.acquire().await) });
            let paced = stream::repeat(()).min_interval(ms(60_000));
            runtime.spawn(paced.for_each(|()| yield_now()));
        }
        runtime.block_on(async { tokio::time::sleep(ms(20)).await });
        drop(runtime);
        assert_eq!(limit.stats().waiting, 0);

        let (mut first, mut second) = (Box::pin(limit.acquire(1)), Box::pin(limit.acquire(1)));
        on_one_thread().block_on(async {
            assert!(poll!(&mut first).is_pending());
            assert!(poll!(&mut second).is_pending());
        });
        drop(first);
        drop(second);
    }
}

/// A waker that drops its timers when it is woken, and waits on another one.
#[derive(Default)]
struct Foreign {
    dropped: Mutex<Vec<Timer>>,
    timer: Mutex<Option<Timer>>,
    wakes: Mutex<u32>,
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        let dropped = core::mem::take(&mut *self.dropped.lock().unwrap());
        drop(dropped);
        *self.wakes.lock().unwrap() += 1;
        let waker = Waker::from(Arc::clone(&self));
        let mut timer = self.timer.lock().unwrap();
        if let Some(again) = timer.as_mut().filter(|_| *self.wakes.lock().unwrap() < 5) {
            again.arm(ms(2));
            assert!(
                again
                    .poll_elapsed(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        } else {
            drop(timer.take());
        }
    }
}

#[test]
fn a_waker_may_drop_timers_and_wait_anew() {
    on_one_thread().block_on(async {
        let foreign = Arc::new(Foreign::default());
        let waker = Waker::from(Arc::clone(&foreign));
        for _ in 0..3 {
            let mut timer = Timer::new();
            timer.arm(ms(2));
            let elapsed = timer.poll_elapsed(&mut Context::from_waker(&waker));
            assert!(elapsed.is_pending());
            foreign.dropped.lock().unwrap().push(timer);
        }
        *foreign.timer.lock().unwrap() = Some(Timer::new());
        while foreign.timer.lock().unwrap().is_some() {
            tokio::time::sleep(ms(1)).await;
        }
        assert!(*foreign.wakes.lock().unwrap() >= 5);
        yield_now().await;
        yield_now().await;
        let tasks = Handle::current().metrics();
        assert_eq!(tasks.num_alive_tasks(), 0, "the listener has ended");
    });
}
