use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use tokio::runtime::Id;
use tokio::task::coop::poll_proceed;
use tokio::time::Instant;

use super::alarm_clock::{AlarmClock, AlarmId};
use super::clock::{instant, is_real};
use super::here::this_runtime;
use super::lead::Span;

/// So little is not worth another round through the runtime.
const AT_ONCE: Duration = Duration::from_micros(5);

/// More looks at the clock than go into that.
const LOOKS: u32 = 1_000;

/// Two instants so close together are the same: one is computed from several readings of the clock.
const SAME: Duration = Duration::from_micros(1);

/// Waits for instants to the microsecond: is woken a little early, and asks again and again until it is time.
///
/// It takes memory (one box) when it first has to wait.
#[derive(Debug)]
pub(super) struct Precise {
    wait: Option<Box<Wait>>,
}

/// For what it waits, and where.
#[derive(Debug, Default)]
struct Wait {
    /// Of the runtime in which it waited last.
    clock: Option<Arc<AlarmClock>>,
    alarm: Option<Alarm>,
}

/// An alarm that was set and maybe has rung.
#[derive(Debug)]
struct Alarm {
    id: AlarmId,
    due: Instant,
    span: Span,
    waker: core::task::Waker,
}

impl Precise {
    pub(super) const fn new() -> Self {
        Self { wait: None }
    }

    /// The runtime in which it waited last.
    pub(super) fn home(&self) -> Option<Id> {
        let clock = self.wait.as_ref()?.clock.as_ref();
        clock.map(|clock| clock.home())
    }

    /// `None` if it cannot wait: on tokio's paused clock no timer of the kernel can, and maybe there is none to be had.
    pub(super) fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let answer = if is_real() {
            self.wait.get_or_insert_default().poll_until(due, cx)
        } else {
            None
        };
        if answer.is_none() {
            self.wait = None;
        }
        answer
    }

    /// Nobody waits any more. If that is because it was late, there is something to learn: whoever waits for a limit asks that
    /// first, and need not ask here again.
    pub(super) fn forget(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.forget();
        }
    }
}

impl Wait {
    fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let clock = self.clock_here()?;
        self.poll_on(&clock, due, cx)
    }

    fn poll_on(
        &mut self,
        clock: &AlarmClock,
        due: Instant,
        cx: &mut Context<'_>,
    ) -> Option<Poll<()>> {
        let now = instant();
        self.learn_if_rung(now);
        let left = due.saturating_duration_since(now);
        if left <= AT_ONCE {
            self.forget();
            return Some(poll_at_once(due, cx));
        }
        let span = Span::of(left);
        let lead = clock.lead(span);
        if left <= lead {
            self.forget();
            cx.waker().wake_by_ref();
        } else if !self.is_set_for(due, cx) {
            self.forget();
            let waker = cx.waker().clone();
            let id = clock.set(due - lead, waker.clone())?;
            self.alarm = Some(Alarm {
                id,
                due,
                span,
                waker,
            });
        }
        Some(Poll::Pending)
    }

    fn forget(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            self.done_with(&alarm, instant());
        }
    }

    fn is_set_for(&self, due: Instant, cx: &Context<'_>) -> bool {
        self.alarm.as_ref().is_some_and(|alarm| {
            let is_same = due.saturating_duration_since(alarm.due) < SAME
                && alarm.due.saturating_duration_since(due) < SAME;
            is_same && alarm.waker.will_wake(cx.waker())
        })
    }

    fn learn_if_rung(&mut self, now: Instant) {
        let rung = self.alarm.take_if(|alarm| alarm.id.0 <= now);
        if let Some(alarm) = rung {
            self.done_with(&alarm, now);
        }
    }

    fn done_with(&self, alarm: &Alarm, now: Instant) {
        if let Some(clock) = &self.clock {
            clock.cancel(alarm.id, alarm.span, now);
        }
    }

    /// That of the runtime in which it is polled. Polled outside any it stays where it is.
    fn clock_here(&mut self) -> Option<Arc<AlarmClock>> {
        let here = this_runtime();
        if let Some(clock) = &self.clock {
            if here.is_none_or(|here| here == clock.home()) && !clock.has_stopped() {
                return Some(Arc::clone(clock));
            }
        }
        self.forget();
        self.clock = AlarmClock::here();
        self.clock.clone()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Waits on the spot, which is never pending: so it uses up the task's budget, or other tasks would never have their turn.
fn poll_at_once(due: Instant, cx: &mut Context<'_>) -> Poll<()> {
    if instant() >= due {
        return Poll::Ready(());
    }
    let turn = ready!(poll_proceed(cx));
    // Not for ever, should it be a clock after all that stands still.
    for _ in 0..LOOKS {
        core::hint::spin_loop();
        if instant() >= due {
            turn.made_progress();
            return Poll::Ready(());
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}
