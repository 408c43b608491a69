use core::time::Duration;
use std::collections::VecDeque;

use crate::time::{OutOfRange, Rate, Tick, or_panic};

use super::rate_rule::{SECOND, USED, Usage, checked, checked_start, interval, per_second};
use super::{CallOutcome, RateRule};

/// Finds the rate that a provider allows, stays a little below it, and probes from time to time whether it has risen.
///
/// 1. **Start.** The rate doubles each second until the first refusal, after a second in which ¾ of it was accepted.
/// 2. **Cut.** `top` is the rate at a refusal, or what was accepted in the last second if that is less than ¾ of the rate. The rate
///    falls to 0.9 · `top`. A refusal counts if its call was sent after the last cut.
/// 3. **One call at a time**, until one is accepted. Each further refusal doubles the wait for the next call, from 0.25 s to 15 s.
///    A longer `Retry-After` is obeyed, also after the first refusal.
/// 4. **Hold.** Within 5 s the rate climbs to 0.98 · `top`, and stays there for 20 s. If it was refused before it grew again, other
///    clients use the quota too: it climbs to 0.95 · `top`, so that they become equal.
/// 5. **Probe.** It grows by (t / 12 s)³ calls a second, only after a second in which at least ¾ of it was accepted. After 20 s without
///    such a second it holds again.
/// 6. **Long windows.** After refusals of more than 3 s, `top` is the mean that was accepted since the last such time. The rate grows by
///    0.12 calls a second each second, without a hold.
/// 7. **A quota in the headers**: 0.97 of it at once, and never more.
///
/// Growth is absolute, so that clients of one provider become equal, in about 20 minutes: three at a provider of 40 calls a second made
/// 26, 6 and 6 a second in the first 10 minutes, then 20, 10 and 9, then 14, 14 and 11, then 14, 13 and 13. Below two calls a second it
/// finds the rate slowly.
///
/// ```
/// use paceline::limiter::{CallOutcome, HoldAndProbe, RateRule};
/// use paceline::time::{Rate, Tick};
/// use std::time::Duration;
///
/// let mut rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000)).with_start(Rate::per_second(100));
/// let mut now = Tick::ZERO;
/// for _ in 0..100 {
///     now = now + Duration::from_millis(10);
///     rule.observe(now, now, CallOutcome::Accepted);
/// }
/// rule.observe(now, now, CallOutcome::Refused { retry_after: None });
/// assert_eq!(rule.rate(now), 90.0);
/// assert_eq!(rule.one_at_a_time(), Some(now));
///
/// rule.observe(now, now, CallOutcome::Accepted);
/// assert_eq!(rule.one_at_a_time(), None);
/// assert_eq!(rule.rate(now + Duration::from_secs(25)), 98.0);
/// ```
#[doc(alias("CUBIC", "adaptive retry", "AutoThrottle"))]
#[derive(Clone, Debug)]
pub struct HoldAndProbe {
    floor: f64,
    ceiling: f64,
    quota: Option<Rate>,
    phase: Phase,
    /// The highest rate that the provider seems to allow.
    top: f64,
    /// How much of it is used between probes.
    share: f64,
    /// The provider counts in long windows.
    is_long: bool,
    /// When the last phase began.
    cut_at: Option<Tick>,
    usage: Usage,
    /// The end of the last second that used the rate.
    used_at: Option<Tick>,
    accepted: Accepted,
}

impl HoldAndProbe {
    /// A rate that starts at `floor` and stays between `floor` and `ceiling`.
    ///
    /// # Panics
    ///
    /// If the floor is above the ceiling; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(floor: Rate, ceiling: Rate) -> Self {
        or_panic(Self::try_new(floor, ceiling))
    }

    /// [`new`](Self::new), for rates from a configuration.
    ///
    /// # Errors
    ///
    /// If the floor is above the ceiling.
    pub fn try_new(floor: Rate, ceiling: Rate) -> Result<Self, OutOfRange> {
        let (floor, ceiling) = checked(floor, ceiling)?;
        Ok(Self {
            floor,
            ceiling,
            quota: None,
            phase: Phase::Start { rate: floor },
            top: floor,
            share: HELD,
            is_long: false,
            cut_at: None,
            usage: Usage::default(),
            used_at: None,
            accepted: Accepted::default(),
        })
    }

    /// Starts at this rate instead of the floor.
    ///
    /// # Panics
    ///
    /// If `start` is below the floor or above the ceiling; see [`try_with_start`](Self::try_with_start).
    #[must_use]
    #[track_caller]
    pub fn with_start(self, start: Rate) -> Self {
        or_panic(self.try_with_start(start))
    }

    /// [`with_start`](Self::with_start), for a rate from a configuration.
    ///
    /// # Errors
    ///
    /// If `start` is below the floor or above the ceiling.
    pub fn try_with_start(mut self, start: Rate) -> Result<Self, OutOfRange> {
        let rate = checked_start(start, self.floor, self.ceiling)?;
        self.phase = Phase::Start { rate };
        Ok(self)
    }

    fn refused(&mut self, now: Tick, retry_after: Duration) {
        if let Phase::Refused { next_at, wait, .. } = &mut self.phase {
            *next_at = now.after(retry_after.max(*wait));
            *wait = (*wait * 2).min(LONGEST_WAIT);
            return;
        }
        let rate = self.rate(now);
        let is_held = matches!(self.phase, Phase::Steady { .. }) && self.usage.grown(now).is_zero();
        self.share = if is_held { SHARED } else { HELD };
        // A second may hold two fewer by chance.
        let accepted = self.accepted.in_last_second() + 2.0;
        let is_estimate = accepted < USED * rate;
        self.top = if is_estimate { accepted } else { rate };
        let phase = Phase::Refused {
            since: now,
            next_at: now.after(retry_after),
            wait: FIRST_WAIT,
            hold: if is_estimate { Duration::ZERO } else { HOLD },
        };
        self.enter(now, phase);
    }

    fn accepted(&mut self, now: Tick) {
        let Phase::Refused { since, hold, .. } = self.phase else {
            return;
        };
        let (held_from, mut hold) = (now.after(CLIMB), hold);
        self.is_long = now.since(since) > SHORT_REFUSAL;
        if self.is_long {
            hold = Duration::ZERO;
            self.top = self.accepted.take_mean(now);
        }
        self.enter(now, Phase::Steady { held_from, hold });
    }

    fn enter(&mut self, now: Tick, phase: Phase) {
        (self.phase, self.cut_at) = (phase, Some(now));
        self.usage.restart();
    }

    /// After a time in which the rate was hardly used, a provider may have saved up room that a probe would take for more.
    fn hold_after_light_use(&mut self, now: Tick) {
        let used_at = self.used_at.replace(now).unwrap_or(now);
        if matches!(self.phase, Phase::Steady { .. })
            && now.since(used_at) > HOLD.max(interval(self.rate(now)).saturating_mul(10))
        {
            self.hold_from(now);
        }
    }

    fn hold_from(&mut self, held_from: Tick) {
        let hold = HOLD;
        self.phase = Phase::Steady { held_from, hold };
        self.usage.restart();
    }

    /// What a probe has added. A provider that counts in windows of a minute refuses once a window, and tells no more than that:
    /// there the rate grows evenly.
    fn probed(&self, now: Tick) -> f64 {
        let grown = self.usage.grown(now);
        let t = grown.div_duration_f64(PROBE);
        if self.is_long {
            SLOPE * grown.as_secs_f64()
        } else {
            t * t * t
        }
    }

    /// From when on the rate may grow.
    fn grows_from(&self) -> Tick {
        match self.phase {
            Phase::Start { .. } => Tick::ZERO,
            Phase::Refused { .. } => Tick::MAX,
            Phase::Steady { held_from, hold } => held_from.after(hold),
        }
    }
}

impl RateRule for HoldAndProbe {
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        let is_used = (self.usage).count(now, outcome, self.rate(now), self.grows_from());
        if is_used {
            self.hold_after_light_use(now);
            if let Phase::Start { rate } = &mut self.phase {
                *rate = (*rate * 2.0).min(self.ceiling);
            }
        }
        self.accepted.count(now, sent_at, outcome);
        let is_after_cut = self.cut_at.is_none_or(|cut_at| sent_at >= cut_at);
        match outcome {
            CallOutcome::Refused { retry_after } if is_after_cut => {
                self.refused(now, retry_after.unwrap_or_default());
            }
            CallOutcome::Accepted if is_after_cut => self.accepted(now),
            _ => {}
        }
    }

    fn rate(&self, now: Tick) -> f64 {
        let rate = match self.phase {
            Phase::Start { rate } => rate,
            Phase::Refused { .. } => CUT * self.top,
            Phase::Steady { held_from, .. } => {
                let left = held_from.since(now).div_duration_f64(CLIMB);
                let below = (self.share - CUT) * left * left * left;
                self.top * (self.share - below) + self.probed(now)
            }
        };
        let quota = self.quota.map_or(f64::INFINITY, per_second);
        rate.min(OF_QUOTA * quota).min(self.ceiling).max(self.floor)
    }

    fn observe_quota(&mut self, now: Tick, quota: Rate) {
        if self.quota == Some(quota) {
            return;
        }
        self.quota = Some(quota);
        (self.top, self.share) = (OF_QUOTA / HELD * per_second(quota), HELD);
        if !matches!(self.phase, Phase::Refused { .. }) {
            self.hold_from(now);
        }
    }

    fn one_at_a_time(&self) -> Option<Tick> {
        match self.phase {
            Phase::Refused { next_at, .. } => Some(next_at),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// There was no refusal yet.
    Start { rate: f64 },
    /// One call at a time.
    Refused {
        since: Tick,
        next_at: Tick,
        /// The wait after the next refusal.
        wait: Duration,
        /// How long the rate is held afterwards.
        hold: Duration,
    },
    /// It climbs until then, holds and probes.
    Steady { held_from: Tick, hold: Duration },
}

/// The calls that were accepted.
#[derive(Clone, Debug, Default)]
struct Accepted {
    /// When, in the last second.
    last: VecDeque<Tick>,
    /// How many since the last long refusal.
    count: u32,
    since: Option<Tick>,
}

impl Accepted {
    fn count(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        self.since.get_or_insert(sent_at);
        if outcome == CallOutcome::Accepted {
            self.count = self.count.saturating_add(1);
            self.last.push_back(now);
        }
        while self.last.front().is_some_and(|at| at.after(SECOND) < now) {
            self.last.pop_front();
        }
    }

    /// As of the last count.
    fn in_last_second(&self) -> f64 {
        u32::try_from(self.last.len()).map_or(f64::INFINITY, f64::from)
    }

    /// Calls a second since the last time.
    fn take_mean(&mut self, now: Tick) -> f64 {
        let since = self.since.replace(now).unwrap_or(now);
        f64::from(core::mem::take(&mut self.count)) / now.since(since).max(SECOND).as_secs_f64()
    }
}

/// The share of `top` right after a refusal.
const CUT: f64 = 0.9;

/// The share of `top` that is held.
const HELD: f64 = 0.98;

/// The same, if the rate was refused there.
const SHARED: f64 = 0.95;

/// The share of a quota that the provider names.
const OF_QUOTA: f64 = 0.97;

const CLIMB: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_secs(20);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Longer refusals are those of a long window.
const SHORT_REFUSAL: Duration = Duration::from_secs(3);

/// After this time a probe has added one call a second.
const PROBE: Duration = Duration::from_secs(12);

/// Calls a second that linear growth adds each second.
const SLOPE: f64 = 0.12;
