use core::time::Duration;

use crate::feedback::Feedback;
use crate::policy::Policy;

use super::limit::LimitState;
use super::{Event, Mode, Shared};

/// Changes of the limit, and of what it has counted.
impl<P: Policy> Shared<P> {
    /// Gives back `cost` permits that passed and were not used; waiters may pass sooner.
    ///
    /// The limit never becomes better than full. Permits that are given back after others passed come on top of the bound of
    /// a window that holds those others: see [`Policy::refund`].
    #[doc(alias("addTokens", "incrementReservoir"))]
    pub fn refund(&self, cost: u32) {
        self.queue.update(|limit, now| limit.refund(now, cost));
    }

    /// Counts `cost` permits that were used without having been asked for: those of a call that has cost more than was known, or
    /// of work that could not wait.
    ///
    /// Permits that are not there are owed. It takes effect at once: queued requests wait until the debt is paid. What a limit
    /// owes at most, and for how long, depends on the policy: a [`TokenBucket`](crate::policy::TokenBucket) pays with the
    /// tokens that flow in, and a window counts until it is over. In [`Mode::Shadow`] it is counted too, and in [`Mode::Off`]
    /// nothing is. The statistics do not count it, since it is no request.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(10), 5).shared();
    ///
    /// limit.charge(8);
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_millis(400)); // 3 are owed
    /// # }
    /// ```
    ///
    /// **Window bound**: what is charged comes on top of it.
    #[doc(alias("consumeIgnoringRateLimits", "debt", "penalty"))]
    pub fn charge(&self, cost: u32) {
        self.queue.update(|limit, now| limit.charge(now, cost));
    }

    /// Begins anew, as if the limit had never been used: nothing is spent, and no pause is under way. The parameters stay those
    /// of the last [`retune`](Self::retune). It takes effect at once, for queued requests too.
    ///
    /// What was spent comes on top of the window bound.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_secs(3600)).shared();
    /// limit.acquire_one().await;
    ///
    /// limit.reset();
    /// assert!(limit.try_acquire(1).is_pass());
    /// # }
    /// ```
    #[doc(alias("refill"))]
    pub fn reset(&self) {
        self.queue.update(LimitState::reset);
        self.report(Event::Resumed);
    }

    /// Goes on with other parameters. What was spent stays spent. They take effect at once, for queued requests too.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_secs(3600)).shared();
    /// limit.acquire_one().await;
    ///
    /// let waiting = tokio::spawn(limit.acquire_one());
    /// tokio::time::sleep(Duration::from_secs(1)).await;
    /// limit.retune(Interval::every(Duration::from_secs(5)));
    ///
    /// waiting.await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_secs(5));
    /// # }
    /// ```
    #[doc(alias("setRate", "replaceConfiguration", "updateSettings"))]
    pub fn retune(&self, policy: P) {
        self.queue
            .update_all(|limit, now| limit.retune(now, policy));
        self.report(Event::Retuned);
    }

    /// Lets no request pass before `duration` is over: after a provider has said "too many requests".
    ///
    /// It holds for waiters too. Of two pauses the later end counts. A request that can never pass is still refused, and cost 0
    /// passes.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.pause_for(Duration::from_secs(2));
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    pub fn pause_for(&self, duration: Duration) {
        let duration = self.pause(duration);
        self.report(Event::Paused { duration });
    }

    /// Pauses for as long as a provider asks, and says for how long; `None` if it asks for nothing.
    ///
    /// It is [`pause_for`](Self::pause_for) with what [`Feedback::pause`] says: every request waits, those that are queued
    /// included. Call it with every response, also with those that succeed: when nothing remains of the quota, the limit pauses
    /// before the first refusal.
    ///
    /// If many programs wait for the same instant, add a random time of your own:
    /// `limit.pause_for(pause + jitter)`; of two pauses the later end counts.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// let fine = Feedback::parse([("X-RateLimit-Remaining", "7")], Duration::ZERO);
    /// assert_eq!(limit.apply_feedback(&fine), None);
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// assert_eq!(limit.apply_feedback(&refused), Some(Duration::from_secs(2)));
    ///
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    #[doc(alias("retry-after", "backoff"))]
    #[expect(clippy::must_use_candidate, reason = "the pause is the effect")]
    pub fn apply_feedback(&self, feedback: &Feedback) -> Option<Duration> {
        let asked = feedback.pause()?;
        let pause = self.pause(asked);
        self.report(Event::FeedbackApplied { pause });
        Some(asked)
    }

    /// Lets at most `remaining` more permits pass before `reset_in` is over, whatever the policy has: from the headers of a
    /// provider that says what it has left.
    ///
    /// It never lets more pass than the policy does. With 0 it is a pause. A request for more than remains waits until the
    /// reset; after the reset it changes nothing any more. A refund does not raise it, a [`charge`](Self::charge) lowers it, and
    /// [`resume`](Self::resume) ends it.
    ///
    /// A later call replaces the earlier one, since the provider may have refilled early, or have been reset. So replies that
    /// come out of order can leave an older number in force, until the next reply or the reset. A reply does not know of the
    /// requests that are under way when it is written, either: the provider may refuse as many as were. Where that matters,
    /// subtract them: `remaining - permits.in_use()`.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(100), 100).shared();
    ///
    /// let headers = [("X-RateLimit-Remaining", "2"), ("X-RateLimit-Reset", "30")];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// if let (Some(left), Some(reset_in)) = (feedback.remaining(), feedback.reset_in()) {
    ///     limit.set_remaining(u32::try_from(left).unwrap_or(u32::MAX), reset_in);
    /// }
    ///
    /// limit.acquire(2).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(30));
    /// # }
    /// ```
    ///
    /// While it is in force, nothing is [prefetched](Self#prefetch). An observer does not see it. Before it, settle what the call
    /// has cost: a charge that comes afterwards counts as permits that the provider does not know of yet.
    #[doc(alias("reservoir", "X-RateLimit-Remaining", "updateSettings"))]
    pub fn set_remaining(&self, remaining: u32, reset_in: Duration) {
        self.queue
            .update(|limit, now| limit.set_remaining(now, remaining, reset_in));
    }

    /// Ends every pause, and what [`set_remaining`](Self::set_remaining) has said. Waiters pass as soon as the policy allows it.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.pause_for(Duration::MAX);
    /// assert!(!limit.try_acquire(1).is_pass());
    /// limit.resume();
    /// assert!(limit.try_acquire(1).is_pass());
    /// # }
    /// ```
    pub fn resume(&self) {
        self.queue.update(|limit, _| limit.resume());
        self.report(Event::Resumed);
    }

    /// Makes the limit active, shadow or off: see [`Mode`]. It takes effect at once, for queued requests too.
    ///
    /// ```
    /// use paceline::limiter::{Mode, PolicyExt};
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.set_mode(Mode::Shadow);
    /// for _ in 0..3 {
    ///     assert!(limit.try_acquire(1).is_pass());
    /// }
    /// assert_eq!(limit.stats().held_back, 2);
    /// # }
    /// ```
    pub fn set_mode(&self, mode: Mode) {
        // This does not start the clock of a limit that has not been used yet.
        self.queue.with(|limit, _| limit.set_mode(mode));
        self.queue.wake_all();
        self.report(Event::ModeChanged { mode });
    }

    /// Pauses, and returns for how long.
    fn pause(&self, duration: Duration) -> Duration {
        self.queue
            .update(|limit, now| limit.pause_for(now, duration))
    }
}
