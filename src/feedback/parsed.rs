use core::time::Duration;

use crate::time::Rate;

use super::finding::{Findings, is_same};
use super::told::Told;
use super::{Caps, Ignored};

/// What the headers of one response say about the provider's limit.
///
/// See the [module](super) for the headers that are read, and for how they are taken when they disagree.
///
/// ```
/// use paceline::feedback::Feedback;
/// use std::time::Duration;
///
/// let now_unix = Duration::from_secs(1_700_000_000);
/// let feedback = Feedback::parse(
///     [
///         ("x-ratelimit-limit", "5000"),
///         ("x-ratelimit-remaining", "0"),
///         ("x-ratelimit-reset", "1700000120"),
///     ],
///     now_unix,
/// );
///
/// assert_eq!(feedback.quota(), Some(5_000));
/// assert_eq!(feedback.remaining(), Some(0));
/// assert_eq!(feedback.pause(), Some(Duration::from_secs(120)));
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[doc(alias("429", "retry-after"))]
pub struct Feedback {
    retry_after: Option<Duration>,
    pause: Option<Duration>,
    reset_in: Option<Duration>,
    remaining: Option<u64>,
    quota: Option<u64>,
    limits: Vec<Rate>,
    was_capped: bool,
    ignored: Vec<Ignored>,
}

impl Feedback {
    /// Reads the headers of a response, with the [default caps](Caps::new).
    ///
    /// They come in pairs of name and value, as text or bytes: `response.headers()` of `http`, `hyper`, `reqwest` or `ureq`
    /// is fine. Names may be in upper or lower case.
    ///
    /// `now_unix` is how long it is since 1970, in UTC: `SystemTime::now().duration_since(UNIX_EPOCH)`. It counts where the
    /// response has no `Date` of its own. With zero, every date without one is as far away as the caps allow.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use http::header::{HeaderMap, RETRY_AFTER};
    /// use std::time::Duration;
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert(RETRY_AFTER, "Tue, 14 Nov 2023 22:13:30 GMT".parse().unwrap());
    ///
    /// let now_unix = Duration::from_secs(1_700_000_000);
    /// let feedback = Feedback::parse(&headers, now_unix);
    /// assert_eq!(feedback.retry_after(), Some(Duration::from_secs(10)));
    /// ```
    #[must_use]
    pub fn parse<N, V>(headers: impl IntoIterator<Item = (N, V)>, now_unix: Duration) -> Self
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        Self::parse_capped(headers, now_unix, Caps::new())
    }

    /// As [`parse`](Self::parse), and believes the provider as far as `caps` go.
    ///
    /// ```
    /// use paceline::feedback::{Caps, Feedback};
    /// use std::time::Duration;
    ///
    /// let a_day = Duration::from_secs(86_400);
    /// let caps = Caps::new().with_longest_pause(a_day);
    /// let feedback = Feedback::parse_capped([("Retry-After", "7200")], Duration::ZERO, caps);
    /// assert_eq!(feedback.retry_after(), Some(Duration::from_secs(7_200)));
    /// ```
    #[must_use]
    pub fn parse_capped<N, V>(
        headers: impl IntoIterator<Item = (N, V)>,
        now_unix: Duration,
        caps: Caps,
    ) -> Self
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut findings = Findings::new(now_unix);
        for (name, value) in headers {
            findings.read(name.as_ref(), value.as_ref());
        }
        Self::concluded(findings, caps)
    }

    /// How long to send nothing: [`retry_after`](Self::retry_after), or until a limit of which nothing remains is reset,
    /// whichever is longer.
    ///
    /// Where neither is told, it is the window of a limit of which nothing remains. `None` if nothing asks for a pause; zero
    /// if the next request may go at once. This is what [`Shared::apply_feedback`](crate::limiter::Shared::apply_feedback) obeys.
    ///
    /// A response that *refuses* says so with its status, which is not among the headers. If it says no more than when the
    /// limit is reset, fall back on that, and then on a wait of your own:
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// // 429 Too Many Requests
    /// let feedback = Feedback::parse([("X-RateLimit-Reset", "17")], Duration::ZERO);
    ///
    /// assert_eq!(feedback.pause(), None);
    /// let pause = feedback.pause().or(feedback.reset_in()).unwrap_or(Duration::from_secs(30));
    /// assert_eq!(pause, Duration::from_secs(17));
    /// ```
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// How long the provider says to wait, in so many words.
    ///
    /// Some providers send it with every response, also with those that succeed.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let feedback = Feedback::parse([("Retry-After", "1.5")], Duration::ZERO);
    /// assert_eq!(feedback.retry_after(), Some(Duration::from_millis(1_500)));
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The slowest rate of all that are told: so many requests in each window.
    ///
    /// Spread evenly, with [`Interval::from_rate`](crate::policy::Interval::from_rate), it keeps all of them. A
    /// [`SlidingLog`](crate::policy::SlidingLog) of it keeps this one alone: with bursts, ask for all [`limits`](Self::limits).
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::{Decision, SlidingLog};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = SlidingLog::new(100, Duration::from_secs(60)).shared();
    ///
    /// let headers = [("RateLimit-Policy", r#""default";q=2;w=10"#)];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// if let Some(rate) = feedback.limit() {
    ///     limit.retune(SlidingLog::new(rate.permits(), rate.period()));
    /// }
    /// assert!(limit.try_acquire(2).is_pass());
    /// assert_eq!(
    ///     limit.try_acquire(1),
    ///     Decision::Wait { retry_in: Duration::from_secs(10) }
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn limit(&self) -> Option<Rate> {
        self.limits.first().copied()
    }

    /// Every rate that is told, the slowest first; 16 at most.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let headers = [("RateLimit-Policy", r#""burst";q=10;w=1, "daily";q=5000;w=86400"#)];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// assert_eq!(feedback.limits(), [Rate::per_day(5_000), Rate::per_second(10)]);
    /// ```
    #[must_use]
    pub fn limits(&self) -> &[Rate] {
        &self.limits
    }

    /// How many requests there are in a window, also where nobody says how long that is; of the limit that will be used up
    /// first.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let feedback = Feedback::parse([("X-RateLimit-Limit", "5000")], Duration::ZERO);
    /// assert_eq!(feedback.quota(), Some(5_000));
    /// assert_eq!(feedback.limit(), None);
    /// ```
    #[must_use]
    pub fn quota(&self) -> Option<u64> {
        self.quota
    }

    /// How many requests are left, of the limit that will be used up first: the one with the fewest, or of two with as many
    /// the one that is reset later.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let headers = [("RateLimit", r#""burst";r=3;t=1, "daily";r=900;t=40000"#)];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// assert_eq!(feedback.remaining(), Some(3));
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// How long it is until there are more, of the limit that will be used up first.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let headers = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-reset-requests", "6m0s")];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// assert_eq!(feedback.reset_in(), Some(Duration::from_secs(360)));
    /// ```
    #[must_use]
    pub fn reset_in(&self) -> Option<Duration> {
        self.reset_in
    }

    /// Whether a wait or a rate was cut to the [`Caps`].
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let feedback = Feedback::parse([("Retry-After", "99999999999999999999")], Duration::ZERO);
    /// assert!(feedback.was_capped());
    /// assert_eq!(feedback.retry_after(), Some(Duration::from_secs(3_600)));
    /// ```
    #[must_use]
    pub fn was_capped(&self) -> bool {
        self.was_capped
    }

    /// The headers that were not understood, in whole or in part; 16 at most. Those that are about something else are not
    /// among them.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// let headers = [("Content-Length", "none"), ("Retry-After", "soon")];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    ///
    /// assert_eq!(feedback.pause(), None);
    /// assert_eq!(feedback.ignored().len(), 1);
    /// assert_eq!(feedback.ignored()[0].header(), "retry-after");
    /// ```
    #[must_use]
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    fn concluded(findings: Findings, caps: Caps) -> Self {
        let now = findings.their_now();
        let told = &findings.told;
        let retry_after = findings.retry_after.from(now);
        let until_reset = told.iter().filter_map(|told| told.exhausted_for(now)).max();
        let windows = told.iter().filter_map(Told::exhausted_window);
        let pause = retry_after.max(until_reset).or_else(|| windows.max());
        let first = told
            .iter()
            .filter(|told| told.is_of_requests)
            .min_by_key(|told| told.used_up(now));

        let mut was_capped = findings.was_cut;
        let mut cut = |told: Option<Duration>| {
            let kept = told.map(|told| caps.pause(told));
            was_capped |= kept != told;
            kept
        };
        let (retry_after, pause) = (cut(retry_after), cut(pause));
        let reset_in = cut(first.and_then(|first| first.reset.from(now)));

        let mut limits: Vec<Rate> = findings.rates.iter().map(|told| caps.rate(*told)).collect();
        was_capped |= limits != findings.rates;
        limits.dedup_by(|one, other| is_same(*one, *other));
        Self {
            retry_after,
            pause,
            reset_in,
            remaining: first.and_then(Told::remaining),
            quota: first.and_then(Told::quota),
            limits,
            was_capped,
            ignored: findings.ignored,
        }
    }
}
