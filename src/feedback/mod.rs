//! What a provider says about its limit in the headers of a response: how long to wait, how many are left, how many there
//! are.
//!
//! [`Feedback::parse`] reads them, whatever HTTP library they come from, and
//! [`Shared::apply_feedback`](crate::limiter::Shared::apply_feedback) obeys. Nothing here has a clock or sends anything; retries, and which
//! requests may be repeated at all, are the caller's.
//!
//! ```
//! use paceline::feedback::Feedback;
//! use paceline::limiter::PolicyExt;
//! use paceline::policy::Interval;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let start = tokio::time::Instant::now();
//! let limit = Interval::every(Duration::from_millis(100)).shared();
//!
//! // Of a response with the status 429; with `http` it is `response.headers()`.
//! let headers = [("Retry-After", "2"), ("RateLimit-Policy", r#""default";q=60;w=60"#)];
//! let now_unix = Duration::from_secs(1_700_000_000);
//! let feedback = Feedback::parse(headers, now_unix);
//!
//! if limit.apply_feedback(&feedback).is_none() {
//!     limit.pause_for(Duration::from_secs(30)); // it did not say for how long
//! }
//! if let Some(rate) = feedback.limit() {
//!     limit.retune(Interval::from_rate(rate));
//! }
//! limit.acquire(1).await.unwrap();
//! assert_eq!(start.elapsed(), Duration::from_secs(2));
//! limit.acquire(1).await.unwrap();
//! assert_eq!(start.elapsed(), Duration::from_secs(3));
//! # }
//! ```
//!
//! # What is read
//!
//! | header | is |
//! |---|---|
//! | `Retry-After`, `X-RateLimit-Retry-After` | seconds, or a date in any of the three formats of RFC 9110 |
//! | `Retry-After-Ms`, `X-Ms-Retry-After-Ms` | milliseconds |
//! | `RateLimit-Policy`, `RateLimit` | the structured fields of draft-ietf-httpapi-ratelimit-headers: `q`, `w`, `qu`, and `r`, `t`; also as earlier versions wrote them |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | its versions before; also with `X-` before it, and as `X-Rate-Limit-` |
//! | `X-RateLimit-Reset-After` | seconds |
//! | `X-RateLimit-Limit-Requests`, `-Remaining-Tokens` and so on | the same of one limit among several |
//! | `X-RateLimit-Limit-Minute` and so on | a quota with its window: second, minute, hour, day, month or year |
//! | `Anthropic-RateLimit-Requests-Limit` and so on | the same, the other way round |
//! | `X-Shopify-Shop-Api-Call-Limit` | `32/40`: used, of so many |
//! | `Date` | the provider's own clock |
//!
//! Every wait may be seconds with a fraction, a duration as in `6m0s` or `120ms`, an HTTP date, or a timestamp of RFC 3339.
//!
//! # How it is taken
//!
//! Always so that nobody asks too early:
//!
//! * **Fractions** of a second are rounded up to nanoseconds, and of a request down.
//! * **Of two waits the longer one counts**, whether they are in one header, in two of the same name or in different ones: to
//!   wait too long costs time, to ask too early may cost the account. (The draft gives `Retry-After` precedence, and wants it
//!   not to be earlier than the end of the window; where it is, a limit that is exhausted for longer would refuse the next
//!   request all the same.) Of two numbers of requests the smaller one.
//! * **A reset** of less than 10⁹ is in seconds from now; of less than 10¹² it is in seconds since 1970, and from there on in
//!   milliseconds since 1970. Milliseconds from now cannot be told from seconds and are taken for those. `Retry-After`,
//!   `Reset-After` and `t` are always from now.
//! * **Dates** are compared with the `Date` of the same response, so that a clock that is wrong here does no harm, and with
//!   the caller's clock where there is none. A date that is over means no wait.
//! * **Hostile values** are cut to [`Caps`], and [`was_capped`](Feedback::was_capped) says so. What is not understood is
//!   [`ignored`](Feedback::ignored) with a reason. A remaining number below zero is none; a negative wait is no wait that
//!   anybody could mean, and is ignored.
//!
//! # A quota that is lowered
//!
//! A provider that counts a sliding window counts what was sent before the quota was lowered too. [`retune`] alone keeps the new
//! rate from now on, and may overstep in a window that reaches back: pause for one new window as well,
//! `limit.pause_for(rate.period())`. [`SlidingLog`](crate::policy::SlidingLog) needs no pause: it remembers what was sent.
//! [`limit`](Feedback::limit) leaves out what is counted in other units than requests.
//!
//! [`retune`]: crate::limiter::Shared::retune
//!
//! # Several limits at once
//!
//! [`pause`](Feedback::pause) is long enough for all of them. [`limit`](Feedback::limit) is the slowest, and
//! [`limits`](Feedback::limits) are all. [`remaining`](Feedback::remaining), [`reset_in`](Feedback::reset_in) and
//! [`quota`](Feedback::quota) are of the one that will be used up first. What is counted in tokens or bytes and not in
//! requests has a say in the pause, and in nothing else. Partition keys (`pk`) are not told apart.
//!
//! Whose limit it is nobody can read from the headers: keep one `Shared` for each thing that the provider limits by itself
//! (a host, an account, Discord's `X-RateLimit-Bucket`), so that the wait of one does not hold up another. A response that
//! comes out of a cache says what was true when it was stored: do not heed it.

mod caps;
mod date;
mod fields;
mod finding;
mod header;
mod ignored;
mod parsed;
mod told;
mod wait;

pub use caps::Caps;
pub use ignored::Ignored;
pub use parsed::Feedback;
