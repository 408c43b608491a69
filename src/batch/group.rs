use core::fmt;
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

/// A group by count or age, whichever comes first.
///
/// ```
/// use paceline::batch::{Group, Window};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let mut group = Group::new(2, Duration::from_nanos(100), Window::FirstItem);
/// let at = Tick::from_nanos;
///
/// assert_eq!(group.push('a', at(30)), None);
/// assert_eq!(group.due(), Some(at(130)));
/// assert_eq!(group.push('b', at(40)), Some(vec!['a', 'b']), "full");
/// ```
pub struct Group<T> {
    items: Vec<T>,
    max: usize,
    length: Duration,
    window: Window,
    /// Where the windows are counted from: the grid's origin, or the start of the last window. Unset before the start.
    origin: Option<Tick>,
    /// When the present window ends, if it has one.
    ends: Option<Tick>,
}

impl<T> Group<T> {
    /// Groups of at most `max` items, of at most `length` each.
    ///
    /// # Panics
    ///
    /// If `max` or `length` is zero.
    #[must_use]
    #[track_caller]
    pub const fn new(max: usize, length: Duration, window: Window) -> Self {
        assert!(max > 0, "a group needs room for at least 1 item, got 0");
        assert!(
            !length.is_zero(),
            "a group needs a window of at least 1 ns, got 0"
        );
        Self {
            items: Vec::new(),
            max,
            length,
            window,
            origin: None,
            ends: None,
        }
    }

    /// Starts the windows, if that has not been done.
    pub fn begin(&mut self, now: Tick) {
        if self.origin.is_none() {
            self.restart(now);
        }
    }

    /// Adds an item that arrived `now`. Gives back the group that is complete thereby: with this item, or before it, if
    /// the window of those held was over when it came.
    ///
    /// In the latter case the item is held as the first of the next group, which may be [due](Self::is_due) at once.
    #[must_use = "a group that is complete should leave at once"]
    pub fn push(&mut self, item: T, now: Tick) -> Option<Vec<T>> {
        self.begin(now);
        let over = self.is_due(now).then(|| self.take(now));
        if self.items.is_empty() {
            self.open(now);
        }
        self.items.push(item);
        over.or_else(|| self.is_due(now).then(|| self.take(now)))
    }

    /// When the window of the items held ends; `None` while there are none.
    #[must_use]
    pub fn due(&self) -> Option<Tick> {
        self.ends.filter(|_| !self.items.is_empty())
    }

    /// Whether a group has to leave `now`: it is full, or its window is over. Never while it is empty.
    #[must_use]
    pub fn is_due(&self, now: Tick) -> bool {
        self.is_full() || self.due().is_some_and(|due| due <= now)
    }

    /// The group, which leaves `now`. The next one begins.
    pub fn take(&mut self, now: Tick) -> Vec<T> {
        if self.is_full() || self.window == Window::LastGroup {
            self.restart(now);
        }
        if self.window == Window::FirstItem {
            self.ends = None;
        }
        core::mem::take(&mut self.items)
    }

    /// How many items are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The most items a group holds.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }

    /// The same, with windows that start elsewhere.
    #[must_use]
    pub fn with_window(self, window: Window) -> Self {
        Self { window, ..self }
    }

    /// The items held.
    #[must_use]
    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.max
    }

    fn restart(&mut self, now: Tick) {
        self.origin = Some(now);
        self.ends = Some(now.after(self.length));
    }

    /// Finds the window that an item belongs to that arrives `now` and is the first of its group.
    fn open(&mut self, now: Tick) {
        let from = match self.window {
            Window::FirstItem => now,
            Window::LastGroup => return,
            Window::Grid => last_on_grid(self.origin.unwrap_or(now), self.length, now),
        };
        self.ends = Some(from.after(self.length));
    }
}

/// Does not ask `T: Debug`, and does not print the items: they may be secret, and they may be large.
impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("len", &self.items.len())
            .field("max", &self.max)
            .field("length", &self.length)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// The last point at or before `now` of a grid of `step` that begins at `origin`.
fn last_on_grid(origin: Tick, step: Duration, now: Tick) -> Tick {
    let past = now.since(origin).as_nanos() % step.as_nanos();
    now.before(Duration::from_nanos(
        u64::try_from(past).unwrap_or(u64::MAX),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(100);

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn started(max: usize, window: Window) -> Group<char> {
        let mut group = Group::new(max, LENGTH, window);
        group.begin(at(0));
        group
    }

    #[test]
    fn an_empty_group_is_never_due() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let group = started(2, window);
            assert_eq!(group.due(), None);
            assert!(!group.is_due(Tick::MAX));
        }
    }

    #[test]
    fn a_window_from_the_first_item_makes_nobody_wait_longer() {
        let mut group = started(3, Window::FirstItem);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.push('b', at(150)), None);
        assert_eq!(group.due(), Some(at(190)));
        assert!(!group.is_due(at(189)));
        assert!(group.is_due(at(190)));
        assert_eq!(group.take(at(190)), ['a', 'b']);
        assert_eq!(group.push('c', at(195)), None);
        assert_eq!(group.due(), Some(at(295)));
    }

    #[test]
    fn a_window_from_the_last_group_that_ends_empty_lets_the_next_out_alone() {
        let mut group = started(9, Window::LastGroup);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(
            group.take(at(130)),
            ['a'],
            "late, and the next window counts from there"
        );
        assert_eq!(group.push('b', at(229)), None);
        assert_eq!(group.take(at(230)), ['b']);
        assert_eq!(
            group.push('c', at(330)),
            Some(vec!['c']),
            "the window ended with the arrival"
        );
    }

    #[test]
    fn a_grid_stays_whatever_is_late_until_a_group_is_full() {
        let mut group = started(2, Window::Grid);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(group.take(at(130)), ['a']);
        assert_eq!(
            group.push('b', at(200)),
            None,
            "the tick is over: it goes first"
        );
        assert_eq!(group.due(), Some(at(300)));
        assert_eq!(group.push('c', at(250)), Some(vec!['b', 'c']));
        assert_eq!(group.push('d', at(1_010)), None);
        assert_eq!(group.due(), Some(at(1_050)));
    }

    #[test]
    fn an_item_that_comes_when_the_window_is_over_is_the_first_of_the_next() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let mut group = started(9, window);
            assert_eq!(group.push('a', at(0)), None);
            assert_eq!(group.push('b', at(100)), Some(vec!['a']), "{window:?}");
            assert_eq!(group.due(), Some(at(200)));
            assert_eq!(group.push('c', at(350)), Some(vec!['b']));
            assert_eq!(group.into_items(), ['c']);
        }
    }

    #[test]
    fn a_group_of_one_is_full_at_once() {
        let mut group = started(1, Window::FirstItem);
        assert_eq!(group.push('a', at(0)), Some(vec!['a']));
        assert_eq!(group.push('b', at(0)), Some(vec!['b']));
        assert!(group.is_empty() && group.due().is_none());
    }

    #[test]
    fn the_longest_window_and_the_largest_group_work() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let mut group = Group::new(usize::MAX, Duration::MAX, window);
            assert_eq!(group.push('a', at(5)), None);
            assert_eq!(group.due(), Some(Tick::MAX));
            assert_eq!(group.take(at(6)), ['a']);
        }
    }

    #[test]
    #[should_panic(expected = "a group needs room for at least 1 item, got 0")]
    fn refuses_groups_of_nothing() {
        let _ = Group::<char>::new(0, LENGTH, Window::Grid);
    }

    #[test]
    #[should_panic(expected = "a group needs a window of at least 1 ns, got 0")]
    fn refuses_a_window_of_nothing() {
        let _ = Group::<char>::new(1, Duration::ZERO, Window::Grid);
    }
}
