use core::fmt;
use core::time::Duration;

use crate::time::Tick;

use super::Accumulator;
use super::window::{Window, WindowClock};

/// Holds the latest item until it is due. Earlier items are dropped and counted.
///
/// Every item that was pushed is either returned, held or counted as dropped.
pub(crate) struct LatestItem<T> {
    pub(crate) held: Option<T>,
    /// Each item opens a window. The item is due when the window ends.
    clock: WindowClock,
    /// Whether the held item leaves at the end of the input even if it is not due.
    pub(crate) keeps_last: bool,
    pub(crate) dropped: u64,
}

impl<T> LatestItem<T> {
    /// An item is due when the window that it opens ends. With [`Window::Grid`] that is the next tick of the grid: an item that
    /// arrives at the instant of a tick waits for the next tick.
    pub(crate) const fn new(window: Duration, start: Window, keeps_last: bool) -> Self {
        Self {
            held: None,
            clock: WindowClock::new(window, start),
            keeps_last,
            dropped: 0,
        }
    }
}

impl<T> Accumulator for LatestItem<T> {
    type Item = T;
    type Complete = T;

    fn begin(&mut self, now: Tick) {
        self.clock.begin(now);
    }

    /// Returns the item before this one if that was due, and drops it otherwise.
    fn push(&mut self, item: T, now: Tick) -> Option<T> {
        self.begin(now);
        let was_due = self.is_due(now);
        self.clock.open(now);
        let before = self.held.replace(item)?;
        if was_due {
            return Some(before);
        }
        self.dropped = self.dropped.saturating_add(1);
        None
    }

    fn due(&self) -> Option<Tick> {
        self.clock.ends.filter(|_| self.held.is_some())
    }

    fn take(&mut self, _: Tick) -> Option<T> {
        self.held.take()
    }

    fn end(&mut self, now: Tick) -> Option<T> {
        if self.keeps_last || self.is_due(now) {
            return self.held.take();
        }
        let lost = u64::from(self.held.take().is_some());
        self.dropped = self.dropped.saturating_add(lost);
        None
    }

    fn is_empty(&self) -> bool {
        self.held.is_none()
    }
}

/// Does not require `T: Debug` and does not print the item: it may be secret or large.
impl<T> fmt::Debug for LatestItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestItem")
            .field("held", &usize::from(self.held.is_some()))
            .field("clock", &self.clock)
            .field("keeps_last", &self.keeps_last)
            .field("dropped", &self.dropped)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Duration = Duration::from_nanos(100);

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn a_newer_item_drops_one_that_is_not_due() {
        let mut latest = LatestItem::new(D, Window::FirstItem, true);

        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!(latest.push('b', at(99)), None);
        assert_eq!(latest.dropped, 1);
        assert_eq!(latest.due(), Some(at(199)));
        assert!(!latest.is_due(at(198)) && latest.is_due(at(199)));
        assert_eq!(latest.take(at(199)), Some('b'));
        assert!(latest.is_empty());
    }

    #[test]
    fn a_newer_item_returns_one_that_is_due() {
        let mut latest = LatestItem::new(D, Window::FirstItem, true);

        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!(latest.push('b', at(100)), Some('a'));
        assert_eq!((latest.due(), latest.dropped), (Some(at(200)), 0));
    }

    #[test]
    fn an_item_that_arrives_at_a_tick_of_the_grid_waits_for_the_next_tick() {
        let mut latest = LatestItem::new(D, Window::Grid, false);
        latest.begin(at(5));

        for (arrives, due) in [(5, 105), (104, 105), (105, 205), (1_004, 1_005)] {
            let _ = latest.push('a', at(arrives));
            assert_eq!(latest.due(), Some(at(due)), "{arrives}");
        }
        assert_eq!(latest.dropped, 1);
    }

    #[test]
    fn the_end_drops_an_item_that_is_not_due_unless_the_last_is_kept() {
        let mut latest = LatestItem::new(D, Window::Grid, false);
        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!((latest.end(at(99)), latest.dropped), (None, 1));
        assert_eq!((latest.end(at(99)), latest.dropped), (None, 1));

        assert_eq!(latest.push('b', at(110)), None);
        assert_eq!(latest.end(at(200)), Some('b'), "the tick comes first");

        latest.keeps_last = true;
        assert_eq!(latest.push('c', at(210)), None);
        assert_eq!((latest.end(at(210)), latest.dropped), (Some('c'), 1));
    }

    #[test]
    fn the_longest_delay_and_the_widest_grid_work() {
        for mut latest in [
            LatestItem::new(Duration::MAX, Window::FirstItem, true),
            LatestItem::new(Duration::MAX, Window::Grid, false),
        ] {
            assert_eq!(latest.push('a', at(7)), None);
            assert_eq!(latest.due(), Some(Tick::MAX));
        }
    }

    #[test]
    fn debug_does_not_print_the_item() {
        let mut latest = LatestItem::new(Duration::from_nanos(10), Window::FirstItem, true);
        let _ = latest.push("secret", Tick::ZERO);
        let printed = format!("{latest:?}");
        assert!(
            printed.contains("held: 1") && !printed.contains("secret"),
            "{printed}"
        );
    }
}
