use core::fmt;
use core::str::FromStr;

use crate::time::error::ConfigError;

/// Whether a limit is enforced: active, shadow or off.
///
/// With feature `serde` it is one of these words, in lower case, as in [a table of limits](crate::config#a-table-of-limits). A
/// [`Switch`](super::Switch) changes it while the program runs.
#[doc(alias("dry run", "shadow mode", "kill switch"))]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a limit is enforced, only counts, or is off"
)]
pub enum Mode {
    /// The limit is enforced.
    #[default]
    Active,
    /// Everything passes. What conforms is charged, and what would have waited or been refused is counted as
    /// [`held_back`](super::SwitchStats::held_back), to see what a limit would do before it is enforced. The limit's own
    /// [`Stats`](super::Stats) count it as refused. An observer around the switch gets [`Event::Shadowed`](super::Event::Shadowed).
    Shadow,
    /// Everything passes, and nothing is charged or counted: a kill switch.
    Off,
}

/// One of the words `active`, `shadow` and `off`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Shadow => "shadow",
            Self::Off => "off",
        })
    }
}

/// From one of the words `active`, `shadow` and `off`.
///
/// ```
/// use paceline::limiter::Mode;
///
/// assert_eq!("shadow".parse(), Ok(Mode::Shadow));
/// let error = "on".parse::<Mode>().unwrap_err();
/// assert_eq!(error.to_string(), "a mode is `active`, `shadow` or `off`, got `on`");
/// ```
impl FromStr for Mode {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let modes = [Self::Active, Self::Shadow, Self::Off];
        let found = modes.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| {
            ConfigError::new(format!(
                "a mode is `active`, `shadow` or `off`, got `{text}`"
            ))
        })
    }
}
