use core::fmt;
use core::time::Duration;

use crate::time::Tick;

/// The newest item, held until it is due; the others are dropped and counted.
///
/// What was pushed is always what was given back, what is held and what was dropped.
pub(crate) struct Newest<T> {
    held: Option<(T, Tick)>,
    due: Due,
    /// Whether the end lets out what is held then, due or not.
    keeps_last: bool,
    dropped: u64,
}

/// When an item is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// So long after it arrived.
    After(Duration),
    /// At the first tick after it arrived of a grid from the start, which is unset before the start.
    OnGrid(Duration, Option<Tick>),
}

impl<T> Newest<T> {
    /// Due `delay` after its arrival; the end lets it out.
    pub(crate) const fn after(delay: Duration) -> Self {
        Self {
            held: None,
            due: Due::After(delay),
            keeps_last: true,
            dropped: 0,
        }
    }

    /// Due at the next tick of a grid; the end drops it. A tick comes before what arrives with it.
    pub(crate) const fn on_grid(step: Duration) -> Self {
        Self {
            held: None,
            due: Due::OnGrid(step, None),
            keeps_last: false,
            dropped: 0,
        }
    }

    /// The same, but the end lets out what is held.
    pub(crate) fn keep_last(self) -> Self {
        Self {
            keeps_last: true,
            ..self
        }
    }

    /// Starts the grid, if that has not been done.
    pub(crate) fn begin(&mut self, now: Tick) {
        if let Due::OnGrid(_, origin) = &mut self.due {
            origin.get_or_insert(now);
        }
    }

    /// Adds an item that arrived `now`. Gives back the one before it if that was due by then, and drops it if not.
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

    /// When an item is due that arrives `now`.
    fn due_of(&self, now: Tick) -> Tick {
        match (&self.due, self.due()) {
            // The tick that the one before it waits for is the next one still, and to find it again takes a division.
            (Due::OnGrid(..), Some(next)) if now < next => next,
            (due, _) => due.of(now),
        }
    }

    /// When the item held is due.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.held.as_ref().map(|(_, due)| *due)
    }

    /// Whether the item held has to leave `now`.
    pub(crate) fn is_due(&self, now: Tick) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// The item held, due or not.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.held.take().map(|(item, _)| item)
    }

    /// What is left when nothing comes after `now`.
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

    /// The item held.
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
    /// When an item is due that arrives `now`, by the rule.
    fn of(self, now: Tick) -> Tick {
        match self {
            Self::After(delay) => now.after(delay),
            Self::OnGrid(step, origin) => now.last_on_grid(origin.unwrap_or(now), step).after(step),
        }
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T> fmt::Debug for Newest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newest")
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
    fn a_newer_one_drops_what_is_not_due_yet() {
        let mut newest = Newest::after(D);

        assert_eq!(newest.push('a', at(0)), None);
        assert_eq!(newest.push('b', at(99)), None);
        assert_eq!(newest.dropped_count(), 1);
        assert_eq!(newest.due(), Some(at(199)));
        assert!(!newest.is_due(at(198)) && newest.is_due(at(199)));
        assert_eq!(newest.take(), Some('b'));
        assert!(newest.is_empty());
    }

    #[test]
    fn a_newer_one_gives_back_what_is_due() {
        let mut newest = Newest::after(D);

        assert_eq!(newest.push('a', at(0)), None);
        assert_eq!(newest.push('b', at(100)), Some('a'));
        assert_eq!((newest.due(), newest.dropped_count()), (Some(at(200)), 0));
    }

    #[test]
    fn on_a_grid_an_item_that_comes_with_a_tick_waits_for_the_next() {
        let mut newest = Newest::on_grid(D);
        newest.begin(at(5));

        for (arrives, due) in [(5, 105), (104, 105), (105, 205), (1_004, 1_005)] {
            let _ = newest.push('a', at(arrives));
            assert_eq!(newest.due(), Some(at(due)), "{arrives}");
        }
        assert_eq!(newest.dropped_count(), 1);
    }

    #[test]
    fn the_end_of_a_grid_drops_what_is_not_due_unless_it_is_kept() {
        let mut newest = Newest::on_grid(D);
        assert_eq!(newest.push('a', at(0)), None);
        assert_eq!((newest.end(at(99)), newest.dropped_count()), (None, 1));
        assert_eq!((newest.end(at(99)), newest.dropped_count()), (None, 1));

        assert_eq!(newest.push('b', at(110)), None);
        assert_eq!(newest.end(at(200)), Some('b'), "the tick comes first");

        let mut newest = newest.keep_last();
        assert_eq!(newest.push('c', at(210)), None);
        assert_eq!(
            (newest.end(at(210)), newest.dropped_count()),
            (Some('c'), 1)
        );
    }

    #[test]
    fn the_longest_delay_and_the_widest_grid_work() {
        for mut newest in [Newest::after(Duration::MAX), Newest::on_grid(Duration::MAX)] {
            assert_eq!(newest.push('a', at(7)), None);
            assert_eq!(newest.due(), Some(Tick::MAX));
        }
    }

    #[test]
    fn what_it_prints_does_not_show_the_item() {
        let mut newest = Newest::after(Duration::from_nanos(10));
        let _ = newest.push("secret", Tick::ZERO);
        let printed = format!("{newest:?}");
        assert!(
            printed.contains("held: 1") && !printed.contains("secret"),
            "{printed}"
        );
    }
}
