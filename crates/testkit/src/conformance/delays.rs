//! The delays of an adapter, which its schedules are made for.

use std::time::Duration;

use super::schedule::whole_ms;

/// The default for the typical gap in a schedule.
const SCALE: Duration = Duration::from_millis(10);

/// What a subject says about its delays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    pub(super) spacing: Option<Duration>,
    pub(super) scale: Option<Duration>,
}

impl Delays {
    /// The typical gap in a schedule, in whole milliseconds, which tokio's timers keep exactly.
    pub(super) fn gaps(self) -> Duration {
        let asked = self.scale.or(self.spacing).unwrap_or(SCALE);
        whole_ms(asked).max(Duration::from_millis(1))
    }

    /// After this long a consumer or a producer gives up a wait.
    pub(super) fn patience(self) -> Duration {
        (self.gaps() / 4).max(Duration::from_millis(1))
    }

    /// Whether no two of these instants are closer than the spacing.
    pub(super) fn are_kept(
        self,
        what: &str,
        at: impl Iterator<Item = Duration>,
    ) -> Result<(), String> {
        let spacing = self.spacing.unwrap_or_default();
        let instants: Vec<Duration> = at.collect();
        let mut pairs = instants.windows(2);
        match pairs.find(|pair| pair[1].saturating_sub(pair[0]) < spacing) {
            Some(pair) => Err(format!(
                "{what} at {:?} and {:?} are closer than {spacing:?}",
                pair[0], pair[1]
            )),
            None => Ok(()),
        }
    }
}
