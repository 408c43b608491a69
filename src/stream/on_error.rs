use core::fmt;

use crate::batch::Group;
use crate::time::Tick;

/// What an error in the input does to the group that was being collected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum OnError {
    /// The group leaves first, and the error in the same instant.
    #[default]
    Flush,
    /// The group is dropped, and its items are counted. One whose window was over when the error came leaves first.
    Discard,
}

/// The errors of a grouping adapter: the one that waits behind its group, and what they made it drop.
pub(super) struct Errors<E> {
    rule: OnError,
    held: Option<E>,
    dropped: u64,
}

impl<E> Errors<E> {
    pub(super) const fn new() -> Self {
        Self {
            rule: OnError::Flush,
            held: None,
            dropped: 0,
        }
    }

    pub(super) fn with_rule(self, rule: OnError) -> Self {
        Self { rule, ..self }
    }

    /// Holds an error that came `now`, and says what leaves before it, which may be nothing.
    pub(super) fn hold<T>(&mut self, error: E, group: &mut Group<T>, now: Tick) -> Vec<T> {
        self.held = Some(error);
        let flushes = self.rule == OnError::Flush || group.is_due(now);
        let items = group.take(now);
        if flushes {
            return items;
        }
        let lost = u64::try_from(items.len()).unwrap_or(u64::MAX);
        self.dropped = self.dropped.saturating_add(lost);
        Vec::new()
    }

    pub(super) fn take(&mut self) -> Option<E> {
        self.held.take()
    }

    /// What leaves when so much is complete: the group if it has items, and else the error.
    pub(super) fn behind<T>(&mut self, complete: Option<Vec<T>>) -> Option<Result<Vec<T>, E>> {
        match complete {
            Some(group) if !group.is_empty() => Some(Ok(group)),
            _ => self.take().map(Err),
        }
    }

    /// What is still to come besides so many groups.
    pub(super) fn size_hint_with(&self, groups: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let (lower, upper) = groups;
        (
            lower.saturating_add(self.len()),
            upper.and_then(|upper| upper.checked_add(self.len())),
        )
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    pub(super) const fn dropped_count(&self) -> u64 {
        self.dropped
    }

    /// What was taken from the input and has not left, as the input gave it.
    pub(super) fn into_results<T>(self, group: Group<T>) -> Vec<Result<T, E>> {
        let items = group.into_items().into_iter().map(Ok);
        items.chain(self.held.map(Err)).collect()
    }

    fn len(&self) -> usize {
        usize::from(self.held.is_some())
    }
}

/// Does not ask `E: Debug`, and does not print the error: it may be secret, and it may be large.
impl<E> fmt::Debug for Errors<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errors")
            .field("rule", &self.rule)
            .field("held", &self.len())
            .field("dropped", &self.dropped)
            .finish()
    }
}
