//! What the rest of the crate still calls. Every timer is precise by itself; this goes with the last `.precise()`.

use super::Timer;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Precision {
    #[default]
    Coarse,
    #[cfg(feature = "precise")]
    Precise,
}

impl Precision {
    pub(crate) const BEST: Self = {
        #[cfg(feature = "precise")]
        let best = Self::Precise;
        #[cfg(not(feature = "precise"))]
        let best = Self::Coarse;
        best
    };

    #[expect(clippy::unused_self, reason = "it goes with its callers")]
    pub(crate) const fn timer(self) -> Timer {
        Timer::new()
    }
}
