use core::fmt;
use core::time::Duration;

use crate::time::Tick;

use super::items::Items;
use super::window::{Window, Windows};

/// A group by count or weight, or by age, whichever comes first. By count is by weight where each item weighs 1.
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
    items: Items<T>,
    /// What the items weigh together: at most `max`, unless there is only one.
    weight: u64,
    max: u64,
    windows: Windows,
}

impl<T> Group<T> {
    /// Groups of at most `max` items, of at most `length` each. Each item weighs 1: see [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// If `max` or `length` is zero.
    #[must_use]
    #[track_caller]
    pub const fn new(max: usize, length: Duration, window: Window) -> Self {
        assert!(max > 0, "a group needs room for at least 1 item, got 0");
        Self::weighing(max as u64, length, window)
    }

    /// Groups that weigh at most `max` each, of at most `length` each.
    ///
    /// ```
    /// use paceline::batch::{Group, Window};
    /// use paceline::time::Tick;
    /// use std::time::Duration;
    ///
    /// let mut group = Group::weighing(10, Duration::from_nanos(100), Window::FirstItem);
    /// let now = Tick::ZERO;
    ///
    /// assert_eq!(group.push_weighing('a', 6, now), None);
    /// assert_eq!(group.push_weighing('b', 6, now), Some(vec!['a']), "b has no room beside it");
    /// assert_eq!(group.push_weighing('c', 4, now), Some(vec!['b', 'c']), "full");
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` or `length` is zero.
    #[must_use]
    #[track_caller]
    pub const fn weighing(max: u64, length: Duration, window: Window) -> Self {
        assert!(
            max > 0,
            "a group needs room for a weight of at least 1, got 0"
        );
        Self {
            items: Items::new(),
            weight: 0,
            max,
            windows: Windows::new(length, window),
        }
    }

    /// Starts the windows, if that has not been done.
    pub fn begin(&mut self, now: Tick) {
        self.windows.begin(now);
    }

    /// Adds an item that arrived `now` and weighs 1: as [`push_weighing`](Self::push_weighing) does.
    #[must_use = "a group that is complete should leave at once"]
    pub fn push(&mut self, item: T, now: Tick) -> Option<Vec<T>> {
        self.push_weighing(item, 1, now)
    }

    /// Adds an item that arrived `now`. Gives back the group that is complete thereby: with this item, or before it, if
    /// the window of those held was over when it came or if it has no room beside them.
    ///
    /// In the latter cases the item is held as the first of the next group, which may be [due](Self::is_due) at once: one
    /// that fills a group by itself completes two, the one before and its own.
    #[must_use = "a group that is complete should leave at once"]
    #[inline]
    pub fn push_weighing(&mut self, item: T, weight: u64, now: Tick) -> Option<Vec<T>> {
        self.begin(now);
        let before = if self.is_due(now) {
            Some(self.take(now))
        } else if self.has_room_for(weight) {
            None
        } else {
            Some(self.close(true, now))
        };
        if self.items.is_empty() {
            self.windows.open(now);
        }
        self.items.push(item);
        self.weight = self.weight.saturating_add(weight);
        before.or_else(|| self.is_due(now).then(|| self.take(now)))
    }

    /// When the window of the items held ends; `None` while there are none.
    #[must_use]
    pub fn due(&self) -> Option<Tick> {
        self.windows.ends().filter(|_| !self.items.is_empty())
    }

    /// Whether a group has to leave `now`: it is full, or its window is over. Never while it is empty.
    #[must_use]
    pub fn is_due(&self, now: Tick) -> bool {
        self.is_full() || self.due().is_some_and(|due| due <= now)
    }

    /// The group, which leaves `now`. The next one begins, unless there was none.
    pub fn take(&mut self, now: Tick) -> Vec<T> {
        self.close(self.is_full(), now)
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

    /// The most that a group weighs, unless a single item is heavier: the most items it holds, if each weighs 1.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The same, with windows that start elsewhere.
    #[must_use]
    pub fn with_window(self, window: Window) -> Self {
        Self {
            windows: self.windows.with_rule(window),
            ..self
        }
    }

    /// Keeps the memory of a group for one to come. What is still in it is dropped.
    pub fn recycle(&mut self, group: Vec<T>) {
        self.items.recycle(group);
    }

    /// The items held.
    #[must_use]
    pub fn into_items(self) -> Vec<T> {
        self.items.into_vec()
    }

    const fn is_full(&self) -> bool {
        self.weight >= self.max
    }

    /// Whether an item of that weight can join. The first of a group always can.
    fn has_room_for(&self, weight: u64) -> bool {
        self.items.is_empty() || weight <= self.max.saturating_sub(self.weight)
    }

    /// Takes the items, which leave `now`: because the group was filled, or because its window is over.
    fn close(&mut self, was_filled: bool, now: Tick) -> Vec<T> {
        if self.items.is_empty() {
            return Vec::new();
        }
        self.windows.close(was_filled, now);
        self.weight = 0;
        self.items.take()
    }
}

/// Does not ask `T: Debug`, and does not print the items: they may be secret, and they may be large.
impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("len", &self.items.len())
            .field("weight", &self.weight)
            .field("max", &self.max)
            .field("windows", &self.windows)
            .finish_non_exhaustive()
    }
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
            assert!(!group.is_empty() && format!("{group:?}").contains("len: 1"));
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
    fn by_weight_the_maximum_exactly_closes_a_group() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 4, at(0)), None);
        assert_eq!(group.push_weighing('b', 6, at(1)), Some(vec!['a', 'b']));
        assert!(group.is_empty());
    }

    #[test]
    fn an_item_without_room_closes_the_group_and_starts_the_next() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 6, at(0)), None);
        assert_eq!(group.push_weighing('b', 5, at(30)), Some(vec!['a']));
        assert_eq!(group.due(), Some(at(130)), "its own window");
        assert!(!group.is_due(at(30)));
        assert_eq!(group.push_weighing('c', 5, at(40)), Some(vec!['b', 'c']));
    }

    #[test]
    fn one_that_is_too_heavy_leaves_alone_with_no_empty_group_before_it() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 11, at(0)), Some(vec!['a']));
        assert_eq!(group.push_weighing('b', 1, at(0)), None);
        assert_eq!(group.due(), Some(at(100)));
    }

    #[test]
    fn one_that_completes_two_groups_is_held_and_due() {
        for weight in [10, 11, u64::MAX] {
            let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
            assert_eq!(group.push_weighing('a', 1, at(0)), None);
            assert_eq!(group.push_weighing('b', weight, at(0)), Some(vec!['a']));
            assert!(group.is_due(at(0)));
            assert_eq!(group.push_weighing('c', weight, at(0)), Some(vec!['b']));
            assert_eq!(group.take(at(0)), ['c']);
            assert!(group.is_empty() && !group.is_due(Tick::MAX));
        }
    }

    #[test]
    fn a_group_that_an_item_closes_restarts_the_grid_as_a_full_one_does() {
        let mut group = Group::weighing(10, LENGTH, Window::Grid);
        group.begin(at(0));
        assert_eq!(group.push_weighing('a', 6, at(20)), None);
        assert_eq!(group.push_weighing('b', 6, at(30)), Some(vec!['a']));
        assert_eq!(group.due(), Some(at(130)));
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let mut group = Group::weighing(u64::MAX, LENGTH, Window::FirstItem);
        let most = u64::MAX - 1;
        assert_eq!(group.push_weighing('a', most, at(0)), None);
        assert_eq!(group.push_weighing('b', most, at(0)), Some(vec!['a']));
        assert_eq!(group.push_weighing('c', 1, at(0)), Some(vec!['b', 'c']));
    }

    #[test]
    fn what_weighs_nothing_waits_for_time() {
        let mut group = Group::weighing(1, LENGTH, Window::FirstItem);
        for _ in 0..9 {
            assert_eq!(group.push_weighing('a', 0, at(0)), None);
        }
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(group.push_weighing('b', 2, at(1)), Some(vec!['a'; 9]));
        assert_eq!(group.take(at(1)), ['b']);
    }

    #[test]
    fn to_take_nothing_starts_no_window() {
        let mut group = started(9, Window::LastGroup);
        assert!(group.take(at(50)).is_empty());
        assert_eq!(group.push('a', at(60)), None);
        assert_eq!(group.due(), Some(at(100)));
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
    #[should_panic(expected = "a group needs room for a weight of at least 1, got 0")]
    fn refuses_groups_of_no_weight() {
        let _ = Group::<char>::weighing(0, LENGTH, Window::Grid);
    }

    #[test]
    #[should_panic(expected = "a group needs a window of at least 1 ns, got 0")]
    fn refuses_a_window_of_nothing() {
        let _ = Group::<char>::new(1, Duration::ZERO, Window::Grid);
    }
}
