//! Limits from a configuration: as texts and with names, replaced while they are in use.
//!
//! A [`Rate`](crate::time::Rate) and an [`AnyPolicy`](crate::policy::AnyPolicy) are parsed from texts. With feature `serde` they are
//! read from any of its formats, and written as texts. [`NamedLimits`] are made of a [`LimitsConfig`], and go on with another one.
//! Whatever is wrong is an error of the reader, before any limit has changed.
//!
//! # The text of a policy
//!
//! | text | policy |
//! |---|---|
//! | `100/min` or `100/min sliding` | [`SlidingLog`](crate::policy::SlidingLog) |
//! | `100/min sliding 10 buckets` | [`SlidingCounter::strict`](crate::policy::SlidingCounter::strict) |
//! | `100/min smooth` | [`SlidingCounter::smooth`](crate::policy::SlidingCounter::smooth) |
//! | `100/min fixed` | [`FixedWindow`](crate::policy::FixedWindow) |
//! | `5000/day aligned`, `100/month aligned utc-08:00` | [`AlignedWindow`](crate::policy::AlignedWindow) of a minute, hour, day, week, month or any time |
//! | `100/min burst 20` | [`TokenBucket`](crate::policy::TokenBucket) |
//! | `100/min burst 20 start 5 debt` | the same, that starts with 5 tokens, and passes what costs more than 20 |
//! | `every 50ms` | [`Interval`](crate::policy::Interval) |
//! | `every 50ms delayed` | the same, in which the first request waits too |
//! | `1/s to 100/s within 1min restart 5min` | [`Ramp`](crate::policy::Ramp), that may begin again after an idle time |
//! | `10/s margin 80ms`, `5000/day aligned margin 5ms to 80ms` | any of these [for arrivals](crate::policy#a-margin) within 80 ms, or from 5 to 80 ms |
//! | `60/min fixed per request` | [`PerRequest`](crate::policy::PerRequest) of any of these |
//! | `10/s and 500/day` | [all](crate::policy::All) of them |
//! | `unlimited` | [`Unlimited`](crate::policy::Unlimited) |
//!
//! Words are in upper or lower case, and blanks may stand around `/` and before a unit. `and` joins at most 32 limits.
//!
//! A rate alone means what a provider's "100 a minute" means at its strictest: never more than 100 in any minute, wherever it begins.
//! It remembers each request, with 16 bytes. For a large number, `sliding 60 buckets` needs 1 KB at most, and is a little stricter.
//!
//! The units of a time are those of a [`Rate`](crate::time::Rate): `5/250ms`, `every 2h`. `every 0ms` is no limit. An `aligned` window may also be a `week` or
//! a `month`.
//!
//! # A table of limits
//!
//! The value of a name is the text of a policy, or a table of a `policy` and a `mode`: `active`, `shadow` or `off`.
//!
//! ```
//! # #[cfg(feature = "serde")] {
//! use paceline::config::LimitsConfig;
//! use paceline::limiter::Mode;
//!
//! let config: LimitsConfig = toml::from_str(
//!     r#"
//!     api = "100/min burst 20"
//!     search = { policy = "10/s", mode = "shadow" }
//!
//!     [mail]
//!     policy = "10/s and 500/day"
//!     mode = "off"
//!     "#,
//! )?;
//! assert_eq!(config.get("api").unwrap().policy(), &"100/min burst 20".parse().unwrap());
//! assert_eq!(config.get("mail").unwrap().mode(), Mode::Off);
//!
//! let error = toml::from_str::<LimitsConfig>("api = '100/min brust 20'").unwrap_err();
//! assert!(error.to_string().contains("line 1, column 7"));
//! assert!(error.message().ends_with("did you mean `burst`?"));
//! # }
//! # Ok::<(), toml::de::Error>(())
//! ```

//! # Variables of the environment
//!
//! One rule for every file, also one of a program in which such a table is a part: the file may use variables, as
//! `mail = "${MAIL_LIMIT:-10/s}"` does ([`with_variables`]), and a variable with the name of a key goes over what the file says, as
//! `LIMITER_LIMITS__MAIL=20/s` does for `mail` in the table `limits` of a program with the prefix `LIMITER_`. A crate such as
//! [`config`](https://docs.rs/config) does the second; `examples/services/src/bin/sliding_window` has both in one function.

mod limits_config;
mod named_limits;
#[cfg(feature = "serde")]
mod read;
mod variables;

pub use crate::time::error::ConfigError;
pub use limits_config::{LimitConfig, LimitsConfig};
pub use named_limits::{Changes, NamedLimits};
pub use variables::with_variables;
