use core::cmp::Reverse;
use core::time::Duration;

use crate::time::Rate;

use super::Caps;
use super::date::http_date;
use super::reader::{HeaderReader, Ignored, LimitInfo, is_same};

/// What the headers of one response say about the provider's limit.
///
/// The [module](super) lists the headers that are read, and the rules for headers that disagree.
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

/// A longer pause is long.
const LONG: Duration = Duration::from_secs(3_600);

impl Feedback {
    /// Reads the headers of a response, with the [default caps](Caps::new).
    ///
    /// The headers are pairs of name and value, as text or bytes, such as `response.headers()` of `http`, `hyper`, `reqwest`
    /// or `ureq`. Names may be in upper or lower case.
    ///
    /// `now_unix` is the time since 1970 in UTC, `SystemTime::now().duration_since(UNIX_EPOCH)`. It is used if the response
    /// has no `Date` header. If it is zero, a date in such a response is as far away as the caps allow.
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

    /// The same as [`parse`](Self::parse), with other `caps`.
    ///
    /// ```
    /// use paceline::feedback::{Caps, Feedback};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let caps = Caps::new().with_longest_pause(minute);
    /// let feedback = Feedback::parse_capped([("Retry-After", "7200")], Duration::ZERO, caps);
    /// assert_eq!(feedback.retry_after(), Some(minute));
    /// assert!(feedback.was_capped());
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
        let headers: Vec<(N, V)> = headers.into_iter().collect();
        let date_of = |(name, value): &(N, V)| {
            let is_date = name.as_ref().eq_ignore_ascii_case(b"date");
            let value = core::str::from_utf8(value.as_ref()).ok()?;
            http_date(value.trim(), now_unix).filter(|_| is_date)
        };
        // With two dates, the earlier one makes waits longer.
        let their_now = headers.iter().filter_map(date_of).min();
        let mut reader = HeaderReader::new(their_now.unwrap_or(now_unix));
        for (name, value) in &headers {
            reader.read(name.as_ref(), value.as_ref());
        }
        Self::conclude(reader, caps)
    }

    /// How long to send nothing: [`retry_after`](Self::retry_after) or the time until an exhausted limit is reset, whichever
    /// is longer.
    ///
    /// If the headers say neither, it is the window of an exhausted limit. `None` if no header asks for a pause; zero if the
    /// next request may be sent at once. [`Shared::apply_feedback`](crate::limiter::Shared::apply_feedback) obeys this pause.
    ///
    /// The pause can be [long](Self::pause_is_long): if a daily quota is exhausted, up to a day.
    ///
    /// A *refusal* is in the status of a response, which is not among the headers. If a refusal has no pause, use the reset,
    /// and then a wait of your own:
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

    /// Whether the pause is longer than an hour.
    ///
    /// A limiter keeps a long pause as it keeps a short one, so that no request is early. For the program this can look like
    /// a standstill: log it, or tell a human.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// // A daily quota that is reset in 20 hours.
    /// let headers = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "72000")];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// assert_eq!(feedback.pause(), Some(Duration::from_secs(72_000)));
    /// assert!(feedback.pause_is_long());
    /// ```
    #[must_use]
    pub fn pause_is_long(&self) -> bool {
        self.pause.is_some_and(|pause| pause > LONG)
    }

    /// The wait of a `Retry-After` header or one of its relatives.
    ///
    /// Some providers send it with every response, also after a success.
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

    /// The slowest rate among the limits: the requests per window.
    ///
    /// Evenly spread with [`Interval::from_rate`](crate::policy::Interval::from_rate), it keeps all limits. A
    /// [`SlidingLog`](crate::policy::SlidingLog) of it keeps only this one. If bursts should pass, use all
    /// [`limits`](Self::limits).
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
    ///     limit.retune(SlidingLog::from_rate(rate));
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

    /// The rates of all limits, the slowest first; at most 16.
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

    /// The quota of requests per window, of the limit that will be exhausted first. It can be known where the length of the
    /// window is not.
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

    /// The remaining requests of the limit that will be exhausted first. This is the limit with the fewest remaining
    /// requests, and among equals the one that is reset last.
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

    /// The time until the reset of the limit that will be exhausted first.
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
    /// assert_eq!(feedback.retry_after(), Some(Duration::from_secs(31 * 86_400)));
    /// ```
    #[must_use]
    pub fn was_capped(&self) -> bool {
        self.was_capped
    }

    /// The headers about limits that were not understood, in whole or in part; at most 16.
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

    /// For a refusal whose headers ask for no pause: then the pause lasts until the [reset](Self::reset_in), and without one as
    /// long as this.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use std::time::Duration;
    ///
    /// // 429 Too Many Requests
    /// let otherwise = Duration::from_secs(30);
    /// let pause = |headers: &[(&str, &str)]| {
    ///     let headers = headers.iter().copied();
    ///     Feedback::parse(headers, Duration::ZERO).or_pause(otherwise).pause()
    /// };
    /// assert_eq!(pause(&[("Retry-After", "2")]), Some(Duration::from_secs(2)));
    /// assert_eq!(pause(&[("X-RateLimit-Reset", "17")]), Some(Duration::from_secs(17)));
    /// assert_eq!(pause(&[]), Some(otherwise));
    /// ```
    #[must_use]
    pub fn or_pause(mut self, otherwise: Duration) -> Self {
        self.pause = self.pause.or(self.reset_in).or(Some(otherwise));
        self
    }

    fn conclude(mut reader: HeaderReader, caps: Caps) -> Self {
        let retry_after = reader.retry_after;
        let limits = reader.limits();
        let exhausted = || limits.iter().filter(|limit| limit.remaining() == Some(0));
        let until_reset = exhausted().filter_map(|limit| limit.reset_in).max();
        let window = exhausted().filter_map(|limit| limit.window).max();
        let pause = retry_after.max(until_reset).or(window);
        let requests = limits.iter().filter(|limit| limit.counts_requests);
        let first = requests.min_by_key(|limit| {
            let remaining = limit.remaining().unwrap_or(u64::MAX);
            (remaining, Reverse(limit.reset_in))
        });
        let reset_in = first.and_then(|limit| limit.reset_in);
        let remaining = first.and_then(LimitInfo::remaining);
        let quota = first.and_then(|limit| limit.quota);

        let waits = [retry_after, pause, reset_in];
        let kept = waits.map(|wait| wait.map(|wait| caps.pause(wait)));
        let mut limits: Vec<Rate> = reader.rates.iter().map(|rate| caps.rate(*rate)).collect();
        let was_capped = reader.was_cut || kept != waits || limits != reader.rates;
        limits.dedup_by(|one, other| is_same(*one, *other));
        let [retry_after, pause, reset_in] = kept;
        Self {
            retry_after,
            pause,
            reset_in,
            remaining,
            quota,
            limits,
            was_capped,
            ignored: reader.ignored,
        }
    }
}
