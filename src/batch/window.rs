use core::time::Duration;

use crate::time::Tick;

/// Where the window of a group starts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Window {
    /// At the first item of the group. No item waits longer than the window.
    #[default]
    FirstItem,
    /// When the last group left, or at the start. If the window ends while no item is held, the next item leaves at once,
    /// alone.
    LastGroup,
    /// On a grid of whole windows, counted from the start. A full group restarts the grid.
    Grid,
}

/// The windows of consecutive groups.
#[derive(Debug)]
pub(super) struct WindowClock {
    length: Duration,
    pub(super) start: Window,
    /// The origin of the grid, or the start of the last window. Unset before the first window.
    origin: Option<Tick>,
    /// When the current window ends, if there is one.
    pub(super) ends: Option<Tick>,
}

impl WindowClock {
    pub(super) const fn new(length: Duration, start: Window) -> Self {
        Self {
            length,
            start,
            origin: None,
            ends: None,
        }
    }

    /// Starts the first window, unless it has started already.
    pub(super) fn begin(&mut self, now: Tick) {
        if self.origin.is_none() {
            self.restart(now);
        }
    }

    /// Opens the window of a group whose first item arrives `now`.
    pub(super) fn open(&mut self, now: Tick) {
        let from = match self.start {
            Window::FirstItem => now,
            Window::LastGroup => return,
            Window::Grid => now.last_on_grid(self.origin.unwrap_or(now), self.length),
        };
        self.ends = Some(from.after(self.length));
    }

    /// A group leaves `now`: because it was filled, or because its window has ended.
    pub(super) fn close(&mut self, was_filled: bool, now: Tick) {
        if was_filled || self.start == Window::LastGroup {
            self.restart(now);
        }
    }

    /// Whether the window has ended for an item that arrives `now`. A first item may start a window of its own.
    pub(super) fn is_over(&self, is_first: bool, now: Tick) -> bool {
        let continues = !is_first || self.start == Window::LastGroup;
        continues && self.ends.is_some_and(|ends| ends <= now)
    }

    fn restart(&mut self, now: Tick) {
        self.origin = Some(now);
        self.ends = Some(now.after(self.length));
    }
}
