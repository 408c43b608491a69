use core::error::Error;
use core::fmt;

/// More permits at once than there are.
///
/// It is said about the limit as it was then; [`Permits::resize`](super::Permits::resize) may have moved it since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooMany {
    asked: u32,
    limit: u32,
}

impl TooMany {
    pub(super) const fn new(asked: u32, limit: u32) -> Self {
        Self { asked, limit }
    }

    /// How many were asked for.
    #[must_use]
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// How many there were.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} permits can never be had at once of {}",
            self.asked, self.limit
        )
    }
}

impl Error for TooMany {}
