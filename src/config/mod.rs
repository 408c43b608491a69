//! Limits from a configuration: as texts, as tables, and with names, replaced while they are in use.
//!
//! A [`Rate`](crate::time::Rate) and an [`AnyPolicy`](crate::policy::AnyPolicy) are parsed from texts. With feature `serde` they are
//! read from any of its formats, and written as texts. [`NamedLimits`] are made of a [`LimitsConfig`], and go on with another one.
//! Whatever is wrong is an error of the reader, before any limit has changed.
//!
//! # The text of a policy
//!
//! | text | policy | fields of a table |
//! |---|---|---|
//! | `100/min` or `100/min sliding` | [`SlidingLog`](crate::policy::SlidingLog) | `rate`, or `limit` and `window`; `kind` |
//! | `100/min sliding 10 buckets` | [`SlidingCounter::strict`](crate::policy::SlidingCounter::strict) | and `buckets` |
//! | `100/min smooth` | [`SlidingCounter::smooth`](crate::policy::SlidingCounter::smooth) | `rate`, `kind` |
//! | `100/min fixed` | [`FixedWindow`](crate::policy::FixedWindow) | `rate`, `kind` |
//! | `5000/day aligned`, `100/month aligned utc-08:00` | [`AlignedWindow`](crate::policy::AlignedWindow) of a minute, hour, day, week, month or any time | `rate`, `kind`, `utc` |
//! | `100/min burst 20` | [`TokenBucket`](crate::policy::TokenBucket) | `rate`, `burst` |
//! | `100/min burst 20 start 5 debt` | the same, that starts with 5 tokens, and passes what costs more than 20 | and `start`, `debt` |
//! | `every 50ms` | [`Interval`](crate::policy::Interval) | `every` |
//! | `every 50ms delayed` | the same, in which the first request waits too | and `delayed` |
//! | `60/min fixed per request` | [`PerRequest`](crate::policy::PerRequest) of any of these | and `per_request` |
//! | `10/s and 500/day` | [all](crate::policy::All) of them | none: write a text |
//! | `unlimited` | [`Unlimited`](crate::policy::Unlimited) | none: write a text |
//!
//! A rate alone means what a provider's "100 a minute" means at its strictest: never more than 100 in any minute, wherever it begins.
//! It remembers each request, with 16 bytes. For a large number, `sliding 60 buckets` needs 1 KB at most, and is a little stricter.
//!
//! The units of a time are those of a [`Rate`](crate::time::Rate): `5/250ms`, `every 2h`. `every 0ms` is no limit. An `aligned` window may also be a `week` or
//! a `month`. A table has a `kind` of `sliding`, `smooth`, `fixed` or `aligned`; its numbers are numbers, its flags are `true` or
//! `false`, and all else is text.
//!
//! # A table of limits
//!
//! The value of a name is a policy, as a text or as a table. In a table, `mode` may be `active`, `shadow` or `off`. A text that needs
//! a mode stands in `policy`:
//!
//! ```
//! # #[cfg(feature = "serde")] {
//! use paceline::config::LimitsConfig;
//! use paceline::limiter::Mode;
//!
//! let config: LimitsConfig = toml::from_str(
//!     r#"
//!     api = "100/min burst 20"
//!     search = { rate = "10/s", mode = "shadow" }
//!
//!     [mail]
//!     policy = "10/s and 500/day"
//!     mode = "off"
//!     "#,
//! )?;
//! assert_eq!(config.get("api").unwrap().policy(), &"100/min burst 20".parse().unwrap());
//! assert_eq!(config.get("mail").unwrap().mode(), Mode::Off);
//!
//! let error = toml::from_str::<LimitsConfig>("api = { rate = '100/min', brust = 20 }").unwrap_err();
//! assert!(error.to_string().contains("line 1, column 27"));
//! assert!(error.message().starts_with("unknown field `brust`, expected one of `rate`,"));
//! # }
//! # Ok::<(), toml::de::Error>(())
//! ```

mod limits_config;
mod named_limits;
#[cfg(feature = "serde")]
mod read;

pub use crate::time::error::ConfigError;
pub use limits_config::{LimitConfig, LimitsConfig};
pub use named_limits::{Changes, NamedLimits};
