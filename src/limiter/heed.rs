use core::hash::Hash;
use core::time::Duration;

use crate::feedback::Feedback;
use crate::policy::Policy;

use super::{Keyed, Shared};

impl<P: Policy> Shared<P> {
    /// Pauses for as long as a provider asks, and says for how long; `None` if it asks for nothing.
    ///
    /// It is [`pause_for`](Self::pause_for) with what [`Feedback::pause`] says: everybody who shares the limit waits, also who
    /// waits already, and nobody asks again before. It goes well with every response, also with those that succeed: when
    /// nothing remains, it is paused before the first refusal.
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
    /// assert_eq!(limit.heed(&fine), None);
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// assert_eq!(limit.heed(&refused), Some(Duration::from_secs(2)));
    ///
    /// limit.acquire(1).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    #[doc(alias("retry-after", "backoff"))]
    #[expect(clippy::must_use_candidate, reason = "to heed is to do something")]
    pub fn heed(&self, feedback: &Feedback) -> Option<Duration> {
        let pause = feedback.pause()?;
        self.pause_for(pause);
        Some(pause)
    }
}

impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// Pauses this key for as long as a provider asks, and says for how long; `None` if it asks for nothing.
    ///
    /// As [`Shared::heed`]: one host that says "too many requests" holds up nobody who asks another.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// assert_eq!(hosts.heed(&"a.example", &refused), Some(Duration::from_secs(2)));
    ///
    /// assert!(!hosts.try_acquire(&"a.example", 1).is_pass());
    /// assert!(hosts.try_acquire(&"b.example", 1).is_pass());
    /// # }
    /// ```
    pub fn heed(&self, key: &K, feedback: &Feedback) -> Option<Duration> {
        let pause = feedback.pause()?;
        self.pause_for(key, pause);
        Some(pause)
    }
}
