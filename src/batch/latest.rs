use core::fmt;
use core::time::Duration;

use crate::time::Tick;

use super::Accumulator;
use super::window::{Window, WindowClock};

/// Holds the latest item until it is due. Earlier items are dropped and counted.
///
/// Every item that was pushed is either returned, held or counted as dropped.
pub(crate) struct LatestItem<T> {
    held: Option<T>,
    /// Each item opens a window. The item is due when the window ends.
    clock: WindowClock,
    /// Whether the held item leaves at the end of the input even if it is not due.
    keeps_last: bool,
    dropped: u64,
}

impl<T> LatestItem<T> {
    /// An item is due `delay` after its arrival, or at the end of the input.
    pub(crate) const fn after(delay: Duration) -> Self {
        Self {
            held: None,
            clock: WindowClock::new(delay, Window::FirstItem),
            keeps_last: true,
            dropped: 0,
        }
    }

    /// An item is due at the next tick of a grid. The end of the input drops it. An item that arrives at the instant of a
    /// tick waits for the next tick.
    pub(crate) const fn on_grid(step: Duration) -> Self {
        Self {
            held: None,
            clock: WindowClock::new(step, Window::Grid),
            keeps_last: false,
            dropped: 0,
        }
    }

    /// The same, but the held item leaves at the end of the input.
    pub(crate) fn with_keep_last(mut self) -> Self {
        self.keeps_last = true;
        self
    }

    /// The held item.
    pub(crate) fn into_item(self) -> Option<T> {
        self.held
    }

    pub(crate) const fn keeps_last(&self) -> bool {
        self.keeps_last
    }

    /// How many items were dropped.
    pub(crate) const fn dropped_count(&self) -> u64 {
        self.dropped
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
        self.clock.ends().filter(|_| self.held.is_some())
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
        let mut latest = LatestItem::after(D);

        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!(latest.push('b', at(99)), None);
        assert_eq!(latest.dropped_count(), 1);
        assert_eq!(latest.due(), Some(at(199)));
        assert!(!latest.is_due(at(198)) && latest.is_due(at(199)));
        assert_eq!(latest.take(at(199)), Some('b'));
        assert!(latest.is_empty());
    }

    #[test]
    fn a_newer_item_returns_one_that_is_due() {
        let mut latest = LatestItem::after(D);

        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!(latest.push('b', at(100)), Some('a'));
        assert_eq!((latest.due(), latest.dropped_count()), (Some(at(200)), 0));
    }

    #[test]
    fn an_item_that_arrives_at_a_tick_of_the_grid_waits_for_the_next_tick() {
        let mut latest = LatestItem::on_grid(D);
        latest.begin(at(5));

        for (arrives, due) in [(5, 105), (104, 105), (105, 205), (1_004, 1_005)] {
            let _ = latest.push('a', at(arrives));
            assert_eq!(latest.due(), Some(at(due)), "{arrives}");
        }
        assert_eq!(latest.dropped_count(), 1);
    }

    #[test]
    fn the_end_drops_an_item_that_is_not_due_unless_the_last_is_kept() {
        let mut latest = LatestItem::on_grid(D);
        assert_eq!(latest.push('a', at(0)), None);
        assert_eq!((latest.end(at(99)), latest.dropped_count()), (None, 1));
        assert_eq!((latest.end(at(99)), latest.dropped_count()), (None, 1));

        assert_eq!(latest.push('b', at(110)), None);
        assert_eq!(latest.end(at(200)), Some('b'), "the tick comes first");

        let mut latest = latest.with_keep_last();
        assert_eq!(latest.push('c', at(210)), None);
        assert_eq!(
            (latest.end(at(210)), latest.dropped_count()),
            (Some('c'), 1)
        );
    }

    #[test]
    fn the_longest_delay_and_the_widest_grid_work() {
        for mut latest in [
            LatestItem::after(Duration::MAX),
            LatestItem::on_grid(Duration::MAX),
        ] {
            assert_eq!(latest.push('a', at(7)), None);
            assert_eq!(latest.due(), Some(Tick::MAX));
        }
    }

    #[test]
    fn debug_does_not_print_the_item() {
        let mut latest = LatestItem::after(Duration::from_nanos(10));
        let _ = latest.push("secret", Tick::ZERO);
        let printed = format!("{latest:?}");
        assert!(
            printed.contains("held: 1") && !printed.contains("secret"),
            "{printed}"
        );
    }
}
