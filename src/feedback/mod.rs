//! What a provider says about its limit in the headers of a response: how long to wait, how many requests remain, how many
//! are allowed.
//!
//! [`Feedback::parse`] reads the headers of any HTTP library, and [`Shared::apply_feedback`](crate::limiter::Shared::apply_feedback) obeys them.
//! [`LimitHeaders`] is the other side: it writes the headers that say what a limit of this side has left.
//!
//! Nothing in this module has a clock or sends anything. The caller does the retries and decides which requests may be
//! repeated: a loop in which each attempt waits for the limit, as in `examples/retry_politely.rs`. In a client made of
//! `tower` layers, `PaceLayer::obeying` of `paceline-tower` waits and obeys, and the layer that retries goes around it.
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
//!     limit.pause_for(Duration::from_secs(30)); // the headers do not say how long
//! }
//! if let Some(rate) = feedback.limit() {
//!     limit.retune(Interval::from_rate(rate));
//! }
//! limit.acquire_one().await;
//! assert_eq!(start.elapsed(), Duration::from_secs(2));
//! limit.acquire_one().await;
//! assert_eq!(start.elapsed(), Duration::from_secs(3));
//! # }
//! ```
//!
//! # Which headers are read
//!
//! | header | meaning |
//! |---|---|
//! | `Retry-After`, `X-RateLimit-Retry-After` | seconds, or a date in any of the three formats of RFC 9110 |
//! | `Retry-After-Ms`, `X-Ms-Retry-After-Ms` | milliseconds |
//! | `RateLimit-Policy`, `RateLimit` | the structured fields of draft-ietf-httpapi-ratelimit-headers: `q`, `w`, `qu`, and `r`, `t`; also in the form of earlier versions |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | the headers of its first versions; also as `X-RateLimit-` and `X-Rate-Limit-`. The windows may follow the limit: `100, 100;w=60, 10000;window=86400` |
//! | `X-RateLimit-Reset-After` | seconds |
//! | `X-RateLimit-Limit-Requests`, `-Remaining-Tokens` and so on | the same for one limit among several |
//! | `X-RateLimit-Limit-Minute` and so on | a quota with its window: second, minute, hour, day, month or year |
//! | `Anthropic-RateLimit-Requests-Limit` and so on | the same with the parts in another order |
//! | `X-HubSpot-RateLimit-Max`, `-Remaining`, `-Interval-Milliseconds`, `-Daily`, `-Secondly`, `-Daily-Remaining`, `-Secondly-Remaining` | quotas with their windows, and the remaining requests |
//! | `X-App-Rate-Limit`, `X-Method-Rate-Limit` | `20:1,100:120`: quotas, each with its window in seconds |
//! | `X-App-Rate-Limit-Count`, `X-Method-Rate-Limit-Count` | `3:1,17:120`: the used requests in each window |
//! | `X-Shopify-Shop-Api-Call-Limit` | `32/40`: the used requests and the quota |
//! | `Date` | the clock of the provider |
//!
//! Every wait may be in seconds with a fraction, a duration such as `6m0s` or `120ms`, an HTTP date, or a timestamp such as
//! `2023-11-14T22:20:00Z`, `2023-11-14T22:20Z` or `2023-11-14T23:20:00+0100`.
//!
//! # How values are read
//!
//! Always so that no request is too early:
//!
//! * **Fractions** of a second are rounded up to nanoseconds. Fractions of a request are rounded down.
//! * **Of two waits the longer one counts**, in one header, in two headers of the same name or in different headers. Waiting
//!   too long costs time; asking too early may cost the account. (In the draft, `Retry-After` has precedence over a reset and
//!   should not be earlier than it. If it is earlier, the exhausted limit would refuse the next request.) Of two numbers of
//!   requests the smaller one counts.
//! * **A reset** below 10⁹ is in seconds from now, a reset below 10¹² in seconds since 1970, and a larger one in milliseconds
//!   since 1970. Milliseconds from now look like seconds and are read as seconds. `Retry-After`, `Reset-After` and `t` are
//!   always from now.
//! * **Dates** are compared with the `Date` of the same response, so that a wrong clock on this side does no harm. Without a
//!   `Date`, the caller's clock is used. A date in the past means no wait.
//! * **A long pause** is kept in full: if a quota is reset in 20 hours, the pause takes 20 hours.
//!   [`pause_is_long`](Feedback::pause_is_long) reports a pause of more than an hour.
//! * **Hostile values** are cut to the [`Caps`], and [`was_capped`](Feedback::was_capped) reports it. The longest pause is 31
//!   days by default.
//! * **Other values** are [`ignored`](Feedback::ignored), with a reason. A negative number of remaining requests means 0. A
//!   negative wait has no meaning and is ignored.
//!
//! # If a quota is lowered
//!
//! A provider that counts in a sliding window also counts the requests from before the change. [`retune`] alone keeps the new
//! rate from now on, and can exceed the new quota in a window that reaches back. So pause for one new window too:
//! `limit.pause_for(rate.period())`. A [`SlidingLog`](crate::policy::SlidingLog) needs no pause, since it remembers those
//! requests. [`limit`](Feedback::limit) leaves out quotas in units other than requests.
//!
//! [`retune`]: crate::limiter::Shared::retune
//!
//! # Several limits at once
//!
//! [`pause`](Feedback::pause) is long enough for all of them. [`limit`](Feedback::limit) is the slowest one and
//! [`limits`](Feedback::limits) are all. [`remaining`](Feedback::remaining), [`reset_in`](Feedback::reset_in) and
//! [`quota`](Feedback::quota) belong to the limit that will be exhausted first: the first two are what
//! [`Shared::set_remaining`](crate::limiter::Shared::set_remaining) takes. A limit that counts tokens or bytes affects
//! only the pause. Partition keys (`pk`) are not distinguished.
//!
//! The headers do not say what a limit covers. Keep one `Shared` for each thing that the provider limits separately (a host,
//! an account, Discord's `X-RateLimit-Bucket`), so that one of them does not hold up another. A response from a cache
//! contains the state at the time when it was stored: do not apply it.

mod caps;
mod date;
mod header;
mod parse;
mod reader;
mod value;
mod write;

pub use caps::Caps;
pub use parse::Feedback;
pub use reader::Ignored;
pub use write::{LimitHeaders, QuotaUnit};
