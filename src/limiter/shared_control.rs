use core::time::Duration;

use crate::feedback::Feedback;
use crate::policy::Policy;

use super::{Event, Mode, Shared};

/// Changes of the limit, and of what it has counted.
impl<P: Policy> Shared<P> {
    /// Gives back `cost` permits that passed and were not used; waiters may pass sooner.
    ///
    /// The limit never becomes better than full. Permits that are given back after others passed come on top of the bound of
    /// a window that holds those others: see [`Policy::refund`].
    pub fn refund(&self, cost: u32) {
        self.queue.update(|limit, now| limit.refund(now, cost));
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

    /// Ends every pause. Waiters pass as soon as the policy allows it.
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
