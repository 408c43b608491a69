//! What a switch promises: which requests it limits, and what it counts.

use paceline::limiter::{Mode, Switch};

/// How a request reaches the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Direct,
    /// As an item of a stream that pays what it costs.
    Stream,
    Switched,
}

impl Way {
    /// From the bits of the byte of a step that do not say which step it is.
    pub(crate) const fn of(kind: u8) -> Self {
        match kind / 64 {
            2 => Self::Stream,
            3 => Self::Direct,
            _ => Self::Switched,
        }
    }
}

/// A switch, and what it has to count.
pub(crate) struct SwitchMirror {
    switch: Switch,
    mode: Mode,
    shadowed: u64,
    held_back: u64,
}

impl SwitchMirror {
    pub(crate) fn new(switch: Switch) -> Self {
        Self {
            switch,
            mode: Mode::Active,
            shadowed: 0,
            held_back: 0,
        }
    }

    /// The mode that applies to a request.
    pub(crate) fn mode_of(&self, way: Way) -> Mode {
        match way {
            Way::Direct | Way::Stream => Mode::Active,
            Way::Switched => self.mode,
        }
    }

    /// Mostly active. Returns whether that is a change.
    pub(crate) fn set_any_mode(&mut self, kind: u8) -> bool {
        let mode = match kind {
            0..192 => Mode::Active,
            192..224 => Mode::Shadow,
            _ => Mode::Off,
        };
        self.switch.set_mode(mode);
        std::mem::replace(&mut self.mode, mode) != mode
    }

    /// Counts a request that passed without being limited, whether or not the limit let it pass too.
    pub(crate) fn count(&mut self, would_pass: bool) {
        self.shadowed += 1;
        self.held_back += u64::from(!would_pass);
    }

    pub(crate) fn counts_are_right(&self) {
        let stats = self.switch.stats();
        assert_eq!(
            (stats.shadowed, stats.held_back, stats.unreachable),
            (self.shadowed, self.held_back, 0)
        );
    }
}
