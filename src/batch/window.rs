use core::time::Duration;

use crate::time::Tick;

/// Where the window of a group starts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Window {
    /// At the first item of the group: nobody waits longer than the window.
    #[default]
    FirstItem,
    /// At the last group that left, or the start. A window that ends empty lets the next item out at once, alone.
    LastGroup,
    /// On a grid of whole windows from the start. A full group starts the grid anew.
    Grid,
}

/// The windows of one group after the other.
#[derive(Debug)]
pub(super) struct Windows {
    length: Duration,
    rule: Window,
    /// Where the windows are counted from: the grid's origin, or the start of the last window. Unset before the start.
    origin: Option<Tick>,
    /// When the present window ends, if it has one.
    ends: Option<Tick>,
}

impl Windows {
    #[track_caller]
    pub(super) const fn new(length: Duration, rule: Window) -> Self {
        assert!(
            !length.is_zero(),
            "a group needs a window of at least 1 ns, got 0"
        );
        Self {
            length,
            rule,
            origin: None,
            ends: None,
        }
    }

    pub(super) const fn with_rule(self, rule: Window) -> Self {
        Self { rule, ..self }
    }

    /// Starts the windows, if that has not been done.
    pub(super) fn begin(&mut self, now: Tick) {
        if self.origin.is_none() {
            self.restart(now);
        }
    }

    /// Finds the window that an item belongs to that arrives `now` and is the first of its group.
    pub(super) fn open(&mut self, now: Tick) {
        let from = match self.rule {
            Window::FirstItem => now,
            Window::LastGroup => return,
            Window::Grid => now.last_on_grid(self.origin.unwrap_or(now), self.length),
        };
        self.ends = Some(from.after(self.length));
    }

    /// A group leaves `now`: because it was filled, or because its window is over.
    pub(super) fn close(&mut self, was_filled: bool, now: Tick) {
        if was_filled || self.rule == Window::LastGroup {
            self.restart(now);
        }
    }

    /// When the window ends of a group that is not empty.
    pub(super) const fn ends(&self) -> Option<Tick> {
        self.ends
    }

    fn restart(&mut self, now: Tick) {
        self.origin = Some(now);
        self.ends = Some(now.after(self.length));
    }
}
