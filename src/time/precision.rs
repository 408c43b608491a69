use super::Timer;

/// How precisely a handle waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Precision {
    /// To the millisecond.
    #[default]
    Coarse,
    /// To the microsecond, where that is possible.
    #[cfg(feature = "precise")]
    Precise,
}

impl Precision {
    /// The finest there is.
    pub(crate) const BEST: Self = {
        #[cfg(feature = "precise")]
        let best = Self::Precise;
        #[cfg(not(feature = "precise"))]
        let best = Self::Coarse;
        best
    };

    /// A timer that waits so.
    pub(crate) fn timer(self) -> Timer {
        match self {
            Self::Coarse => Timer::new(),
            #[cfg(feature = "precise")]
            Self::Precise => Timer::new().precise(),
        }
    }
}
