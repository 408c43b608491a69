use core::fmt;
use core::time::Duration;

use crate::time::Tick;

/// Holds the latest item until it is due. Earlier items are dropped and counted.
///
/// Every item that was pushed is either returned, held or counted as dropped.
pub(crate) struct LatestItem<T> {
    held: Option<(T, Tick)>,
    due: Due,
    /// Whether the held item leaves at the end of the input even if it is not due.
    keeps_last: bool,
    dropped: u64,
}

/// When an item is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// This long after it arrived.
    After(Duration),
    /// At the first tick of a grid after it arrived. The grid has this step and this origin; the origin is unset before the
    /// start.
    OnGrid(Duration, Option<Tick>),
}

impl<T> LatestItem<T> {
    /// An item is due `delay` after its arrival, or at the end of the input.
    pub(crate) const fn after(delay: Duration) -> Self {
        Self {
            held: None,
            due: Due::After(delay),
            keeps_last: true,
            dropped: 0,
        }
    }

    /// An item is due at the next tick of a grid. The end of the input drops it. An item that arrives at the instant of a
    /// tick waits for the next tick.
    pub(crate) const fn on_grid(step: Duration) -> Self {
        Self {
            held: None,
            due: Due::OnGrid(step, None),
            keeps_last: false,
            dropped: 0,
        }
    }

    /// The same, but the held item leaves at the end of the input.
    pub(crate) fn keep_last(self) -> Self {
        Self {
            keeps_last: true,
            ..self
        }
    }

    /// Starts the grid, unless it has started already.
    pub(crate) fn begin(&mut self, now: Tick) {
        if let Due::OnGrid(_, origin) = &mut self.due {
            origin.get_or_insert(now);
        }
    }

    /// Adds an item that arrives `now`. Returns the item before it if that was due, and drops it otherwise.
    #[must_use = "an item that is due should leave at once"]
    pub(crate) fn push(&mut self, item: T, now: Tick) -> Option<T> {
        self.begin(now);
        let due = self.due_of(now);
        let (before, was_due) = self.held.replace((item, due))?;
        if was_due <= now {
            return Some(before);
        }
        self.dropped = self.dropped.saturating_add(1);
        None
    }

    /// When an item that arrives `now` is due.
    fn due_of(&self, now: Tick) -> Tick {
        match (&self.due, self.due()) {
            // The held item waits for the next tick too. Reusing its tick saves a division.
            (Due::OnGrid(..), Some(next)) if now < next => next,
            (due, _) => due.of(now),
        }
    }

    /// When the held item is due.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.held.as_ref().map(|(_, due)| *due)
    }

    /// Whether the held item has to leave `now`.
    pub(crate) fn is_due(&self, now: Tick) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Takes the held item, due or not.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.held.take().map(|(item, _)| item)
    }

    /// The item that leaves when the input ends `now`.
    pub(crate) fn end(&mut self, now: Tick) -> Option<T> {
        if self.keeps_last || self.is_due(now) {
            return self.take();
        }
        let lost = u64::from(self.take().is_some());
        self.dropped = self.dropped.saturating_add(lost);
        None
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// The held item.
    pub(crate) fn into_item(mut self) -> Option<T> {
        self.take()
    }

    pub(crate) const fn keeps_last(&self) -> bool {
        self.keeps_last
    }

    /// How many items were dropped.
    pub(crate) const fn dropped_count(&self) -> u64 {
        self.dropped
    }
}

impl Due {
    /// When an item that arrives `now` is due.
    fn of(self, now: Tick) -> Tick {
        match self {
            Self::After(delay) => now.after(delay),
            Self::OnGrid(step, origin) => now.last_on_grid(origin.unwrap_or(now), step).after(step),
        }
    }
}

/// Does not require `T: Debug` and does not print the item: it may be secret or large.
impl<T> fmt::Debug for LatestItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestItem")
            .field("held", &usize::from(self.held.is_some()))
            .field("due", &self.due)
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
        assert_eq!(latest.take(), Some('b'));
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

        let mut latest = latest.keep_last();
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
