use std::collections::BTreeMap;

use crate::limiter::Mode;
use crate::policy::AnyPolicy;

/// A limit for each name, as a configuration has it.
///
/// With feature `serde` it is read from a table of any format. See [the module](super) for what a table may hold.
///
/// ```
/// use paceline::config::{LimitConfig, LimitsConfig};
/// use paceline::limiter::Mode;
/// use paceline::policy::AnyPolicy;
///
/// let mail: AnyPolicy = "10/s and 500/day".parse().unwrap();
/// let config = LimitsConfig::new()
///     .with("mail", LimitConfig::new(mail.clone()).with_mode(Mode::Shadow));
///
/// assert_eq!(config.get("mail").unwrap().policy(), &mail);
/// assert_eq!(config.get("search"), None);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[doc(alias("RateLimiterConfig", "BucketConfiguration"))]
pub struct LimitsConfig {
    limits: BTreeMap<String, LimitConfig>,
}

impl LimitsConfig {
    /// No limit.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            limits: BTreeMap::new(),
        }
    }

    /// With this limit in addition, or in place of that of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, limit: LimitConfig) -> Self {
        self.limits.insert(name.into(), limit);
        self
    }

    /// What it says of one limit; `None` if there is none of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&LimitConfig> {
        self.limits.get(name)
    }

    /// The names and what it says of each, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &LimitConfig)> {
        self.limits.iter().map(|(name, limit)| (&**name, limit))
    }
}

/// What a configuration says of one limit: its policy, and how it is enforced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitConfig {
    policy: AnyPolicy,
    mode: Mode,
}

impl LimitConfig {
    /// A limit of this policy, active.
    #[must_use]
    pub fn new(policy: impl Into<AnyPolicy>) -> Self {
        Self {
            policy: policy.into(),
            mode: Mode::Active,
        }
    }

    /// Active, shadow or off.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &AnyPolicy {
        &self.policy
    }

    /// Active, shadow or off.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}
