use std::collections::VecDeque;

use super::Ticket;

/// Waiters by ticket, in its order.
///
/// Whoever leaves from the middle leaves a gap, which goes when it comes to the front, or when there are more gaps than
/// waiters. So to join and to leave takes no memory that is not there already, and a time that is logarithmic at most.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// The first is never a gap.
    places: VecDeque<(Ticket, Option<T>)>,
    len: usize,
}

/// So many places are not worth to be given back, and so many gaps not to be closed.
const FEW: usize = 32;

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<(Ticket, &T)> {
        self.iter().next()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let places = self.places.iter();
        places.filter_map(|(ticket, waiter)| waiter.as_ref().map(|waiter| (*ticket, waiter)))
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&T> {
        let index = self.position(ticket).ok()?;
        self.places[index].1.as_ref()
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let index = self.position(ticket).ok()?;
        self.places[index].1.as_mut()
    }

    /// At the end, for a ticket that is later than all, and else in between.
    pub(super) fn insert(&mut self, ticket: Ticket, waiter: T) {
        let before = match self.position(ticket) {
            Ok(index) => self.places[index].1.replace(waiter),
            Err(index) => {
                self.places.insert(index, (ticket, Some(waiter)));
                None
            }
        };
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let index = self.position(ticket).ok()?;
        let removed = self.places[index].1.take()?;
        self.len -= 1;
        self.close_gaps();
        Some(removed)
    }

    pub(super) fn pop_first(&mut self) -> Option<(Ticket, T)> {
        let (ticket, _) = self.first()?;
        self.remove(ticket).map(|waiter| (ticket, waiter))
    }

    fn position(&self, ticket: Ticket) -> Result<usize, usize> {
        // Most ask from the front or come to the end.
        match (self.places.front(), self.places.back()) {
            (Some((first, _)), _) if *first == ticket => Ok(0),
            (_, Some((last, _))) if *last < ticket => Err(self.places.len()),
            _ => self.places.binary_search_by_key(&ticket, |place| place.0),
        }
    }

    fn close_gaps(&mut self) {
        while self
            .places
            .front()
            .is_some_and(|(_, waiter)| waiter.is_none())
        {
            self.places.pop_front();
        }
        if self.places.len() > 2 * self.len + FEW {
            self.places.retain(|(_, waiter)| waiter.is_some());
        }
        if self.places.is_empty() && self.places.capacity() > FEW {
            self.places = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map_in_the_order_of_tickets_whoever_comes_and_leaves() {
        let mut queue = Queue::new();
        let mut map = BTreeMap::new();
        let mut dice = 1_u64;
        for next in 0..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (kind, which) = (dice >> 60, (dice >> 20) % (next + 1));
            match kind {
                0..6 => {
                    queue.insert(next, next);
                    map.insert(next, next);
                }
                6..8 => {
                    queue.insert(which, next);
                    map.insert(which, next);
                }
                8..14 => assert_eq!(queue.remove(which), map.remove(&which)),
                _ => assert_eq!(queue.pop_first(), map.pop_first()),
            }
            assert_eq!(queue.len(), map.len());
            assert_eq!(queue.is_empty(), map.is_empty());
            assert_eq!(queue.get(which), map.get(&which));
            assert_eq!(queue.get_mut(which), map.get_mut(&which));
            assert_eq!(
                queue.first(),
                map.iter().next().map(|(at, item)| (*at, item))
            );
            assert!(queue.places.len() <= 2 * queue.len() + FEW);
        }
        assert!(queue.iter().eq(map.iter().map(|(at, item)| (*at, item))));
    }

    #[test]
    fn memory_is_used_again_and_much_of_it_is_given_back() {
        let mut queue = Queue::new();
        queue.insert(0, ());
        let capacity = queue.places.capacity();
        for ticket in 1..1_000 {
            queue.insert(ticket, ());
            assert!(queue.remove(ticket - 1).is_some());
        }
        assert_eq!(queue.places.capacity(), capacity);
        (1_000..2_000).for_each(|ticket| queue.insert(ticket, ()));
        while queue.pop_first().is_some() {}
        assert_eq!(queue.places.capacity(), 0);
    }
}
