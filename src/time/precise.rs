use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use tokio::time::Instant;

use super::alarm_clock::{AlarmClock, AlarmId};
use super::clock::{instant, is_real};
use super::timer::this_runtime;

/// So little is not worth another round through the runtime.
const AT_ONCE: Duration = Duration::from_micros(1);

/// Two instants so close together are the same: one is computed from several readings of the clock.
const SAME: Duration = Duration::from_micros(1);

/// Waits for instants to the microsecond: is woken a little early, and asks again and again until it is time.
#[derive(Debug, Default)]
pub(super) struct Precise {
    /// Of the runtime in which it waited last.
    clock: Option<Arc<AlarmClock>>,
    alarm: Option<Alarm>,
}

/// An alarm that was set and maybe has rung.
#[derive(Debug)]
struct Alarm {
    id: AlarmId,
    due: Instant,
    waker: core::task::Waker,
}

impl Precise {
    pub(super) const fn new() -> Self {
        Self {
            clock: None,
            alarm: None,
        }
    }

    /// Whether it can wait: on tokio's paused clock no timer of the kernel can.
    pub(super) fn is_possible() -> bool {
        is_real()
    }

    pub(super) fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock_here();
        let now = instant();
        self.learn_if_rung(&clock, now);
        let left = due.saturating_duration_since(now);
        if left <= AT_ONCE {
            self.forget();
            while instant() < due {
                core::hint::spin_loop();
            }
            return Poll::Ready(());
        }
        let lead = clock.lead();
        if left <= lead {
            self.forget();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !self.is_set_for(due, cx) {
            self.forget();
            let waker = cx.waker().clone();
            let id = clock.set(due - lead, waker.clone());
            self.alarm = Some(Alarm { id, due, waker });
        }
        Poll::Pending
    }

    /// Nobody waits any more.
    pub(super) fn forget(&mut self) {
        if let (Some(clock), Some(alarm)) = (&self.clock, self.alarm.take()) {
            clock.cancel(alarm.id);
        }
    }

    fn is_set_for(&self, due: Instant, cx: &Context<'_>) -> bool {
        self.alarm.as_ref().is_some_and(|alarm| {
            let is_same = due.saturating_duration_since(alarm.due) < SAME
                && alarm.due.saturating_duration_since(due) < SAME;
            is_same && alarm.waker.will_wake(cx.waker())
        })
    }

    fn learn_if_rung(&mut self, clock: &AlarmClock, now: Instant) {
        let rung = self.alarm.take_if(|alarm| alarm.id.0 <= now);
        if let Some(alarm) = rung {
            clock.cancel(alarm.id);
            clock.learn(now - alarm.id.0);
        }
    }

    fn clock_here(&mut self) -> Arc<AlarmClock> {
        if let Some(clock) = &self.clock {
            if Some(clock.home()) == this_runtime() && !clock.has_stopped() {
                return Arc::clone(clock);
            }
        }
        self.forget();
        Arc::clone(self.clock.insert(AlarmClock::here()))
    }
}

impl Drop for Precise {
    fn drop(&mut self) {
        self.forget();
    }
}
