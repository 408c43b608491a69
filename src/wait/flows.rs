use core::hash::{BuildHasherDefault, Hasher};
use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Priority;
use super::in_order::InOrder;
use super::waiters::{Ticket, Waiter};

/// Whose requests a request belongs to, where flows take turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Flow {
    /// The hash of its key. Two keys with one hash are one flow.
    id: u64,
    pub(super) weight: NonZeroU32,
}

impl Flow {
    /// All requests without a key.
    pub(crate) const OF_NO_KEY: Self = Self::new(0, NonZeroU32::MIN);

    pub(crate) const fn new(hash: u64, weight: NonZeroU32) -> Self {
        Self { id: hash, weight }
    }

    /// The requests of one class are a flow of their own. Two bits of the hash give way to the class.
    pub(super) const fn in_class(self, priority: Priority) -> u64 {
        (self.id & !CLASS) | priority as u64
    }
}

const CLASS: u64 = 3;

/// The waiters of each flow, which take turns by weight: deficit round robin (M. Shreedhar and G. Varghese, 1995).
///
/// The flows of a class are served in rounds. In each round a flow may take its weight in permits, and saves what its next request
/// costs more. A flow that begins to wait has its first turn at the beginning of the next round; after that, flows have their turns
/// in the order in which they began. One without waiters is forgotten and saves nothing. Only the flow that was served last may come
/// back into its turn, until another is served: so callers that ask one after the other have their weight, too.
///
/// No round is walked over. A flow knows in which round it can pay for its first request, and the earliest of these turns is the
/// next. So a grant takes logarithmic time in the number of flows that wait.
#[derive(Default)]
pub(super) struct Flows {
    lanes: HashMap<u64, Lane, BuildHasherDefault<IsHashed>>,
    classes: [Rounds; 3],
    /// Whether the oldest waiters of each class are known: for one class alone nobody asks.
    has_classes: bool,
}

/// When a flow has a turn. Those that begin in a round come before the others.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
struct Turn {
    round: u64,
    has_begun: bool,
    number: u64,
}

/// The flows of one class.
#[derive(Default)]
struct Rounds {
    /// The next turn, those after it, and the first waiter of the flow that has it. Most often a flow that was served has the next turn
    /// again, and the map stays as it is.
    next: Option<(Turn, Ticket)>,
    later: BTreeMap<Turn, Ticket>,
    /// The oldest waiter of each flow.
    oldest: BTreeSet<Ticket>,
    /// The turn of the last grant.
    now: Turn,
    /// How many flows have begun.
    begun: u64,
    /// The flow that was served last, if it has no waiter.
    last: Option<(u64, Lane)>,
}

/// The waiters of one flow.
struct Lane {
    waiters: InOrder,
    weight: u32,
    /// That of its newest request. It holds from its next turn on.
    next_weight: u32,
    /// How many flows have begun before.
    number: u64,
    /// Its last turn, or else its first one, and how many permits it had then. Each round after it adds the weight.
    turn: Turn,
    saved: i64,
    /// Its next turn with enough for its first waiter.
    next: Turn,
}

impl Flows {
    /// Serves the class first whose oldest waiter is the first in the order of tickets.
    pub(super) fn serve_by_class(&mut self) {
        self.has_classes = true;
        for (id, lane) in &self.lanes {
            let oldest = &mut self.classes[class_of(*id)].oldest;
            oldest.extend(lane.waiters.end(false));
        }
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Ticket> {
        let class = if self.has_classes {
            let classes = self.classes.iter();
            let waiting = classes.filter(|class| class.next.is_some());
            waiting.min_by_key(|class| class.oldest.first())?
        } else {
            &self.classes[Priority::Normal as usize]
        };
        class.next.map(|(_, head)| head)
    }

    pub(super) fn head_mut(&mut self) -> Option<(Ticket, &mut Waiter)> {
        let head = self.head()?;
        self.lanes.get_mut(&head.flow)?.waiters.end_mut(false)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        self.lanes.get_mut(&ticket.flow)?.waiters.get_mut(ticket)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.lanes
            .values_mut()
            .flat_map(|lane| lane.waiters.iter_mut())
    }

    pub(super) fn insert(&mut self, ticket: Ticket, waiter: Waiter, weight: u32) {
        let rounds = &mut self.classes[class_of(ticket.flow)];
        let lane = self.lanes.entry(ticket.flow);
        let lane = lane.or_insert_with(|| rounds.begin(ticket.flow));
        let first = lane.waiters.end(false);
        lane.next_weight = weight;
        lane.waiters.insert(ticket, waiter);
        if first.is_none_or(|first| ticket < first) {
            self.first_has_changed(ticket.flow, first);
        }
    }

    /// `paid`: it leaves since it has passed, at this cost.
    pub(super) fn remove(&mut self, ticket: Ticket, paid: Option<u32>) -> Option<Waiter> {
        let lane = self.lanes.get_mut(&ticket.flow)?;
        let is_first = lane.waiters.end(false) == Some(ticket);
        let removed = lane.waiters.remove(ticket)?;
        if is_first {
            if let Some(cost) = paid {
                let rounds = &mut self.classes[class_of(ticket.flow)];
                lane.go_on(lane.next);
                lane.saved -= i64::from(cost);
                (rounds.now, rounds.last) = (lane.turn, None);
            }
            self.first_has_changed(ticket.flow, Some(ticket));
            self.forget_if_empty(ticket.flow, paid.is_some());
        }
        Some(removed)
    }

    /// Counts permits that a request of a flow has taken without being queued.
    pub(super) fn charge(&mut self, ticket: Ticket, cost: u32) {
        if let Some(lane) = self.lanes.get_mut(&ticket.flow) {
            lane.saved -= i64::from(cost);
            let first = lane.waiters.end(false);
            self.first_has_changed(ticket.flow, first);
        }
    }

    pub(super) fn cost_has_changed(&mut self, ticket: Ticket) {
        let lane = self.lanes.get(&ticket.flow);
        let first = lane.and_then(|lane| lane.waiters.end(false));
        if first == Some(ticket) {
            self.first_has_changed(ticket.flow, first);
        }
    }

    /// The first waiter of a flow is another one, or costs something else.
    fn first_has_changed(&mut self, id: u64, before: Option<Ticket>) {
        let rounds = &mut self.classes[class_of(id)];
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        if let Some(before) = before {
            rounds.remove(lane.next);
            rounds.oldest.remove(&before);
        }
        if let Some((ticket, waiter)) = lane.waiters.end_mut(false) {
            let cost = waiter.cost;
            lane.place(cost, rounds.now);
            rounds.insert(lane.next, ticket);
            if self.has_classes {
                rounds.oldest.insert(ticket);
            }
        }
        rounds.next = rounds.next.or_else(|| rounds.later.pop_first());
    }

    fn forget_if_empty(&mut self, id: u64, is_last: bool) {
        if self
            .lanes
            .get(&id)
            .is_some_and(|lane| lane.waiters.is_empty())
        {
            let lane = self.lanes.remove(&id).map(|lane| (id, lane));
            if is_last {
                self.classes[class_of(id)].last = lane;
            }
            if self.lanes.is_empty() && self.lanes.capacity() > FEW {
                self.lanes = HashMap::default();
            }
        }
    }
}

/// An empty map with at most this much room keeps its memory.
const FEW: usize = 64;

impl Rounds {
    /// A flow begins to wait, or waits again in its turn.
    fn begin(&mut self, id: u64) -> Lane {
        if let Some((_, lane)) = self.last.take_if(|(last, _)| *last == id) {
            return lane;
        }
        self.begun += 1;
        let turn = Turn {
            round: self.now.round + 1,
            has_begun: false,
            number: self.begun,
        };
        Lane {
            waiters: InOrder::default(),
            weight: 1,
            next_weight: 1,
            number: self.begun,
            turn,
            saved: 0,
            next: turn,
        }
    }

    fn insert(&mut self, turn: Turn, first: Ticket) {
        let next = match self.next {
            Some((next, _)) => Some(next),
            None => self.later.first_key_value().map(|(next, _)| *next),
        };
        if next.is_some_and(|next| next < turn) {
            self.later.insert(turn, first);
        } else if let Some((next, other)) = self.next.replace((turn, first)) {
            self.later.insert(next, other);
        }
    }

    /// Until [`next`](Self::next) is set again, none may be the next.
    fn remove(&mut self, turn: Turn) {
        if self.next.take_if(|(next, _)| *next == turn).is_none() {
            self.later.remove(&turn);
        }
    }
}

impl Lane {
    const fn in_round(&self, round: u64) -> Turn {
        Turn {
            round,
            has_begun: true,
            number: self.number,
        }
    }

    /// Adds its weight for each round up to this turn, which becomes its last one.
    fn go_on(&mut self, turn: Turn) {
        let rounds = i64::try_from(turn.round - self.turn.round).unwrap_or(i64::MAX);
        let earned = rounds.saturating_mul(self.weight.into());
        self.saved = self.saved.saturating_add(earned);
        self.turn = turn;
    }

    /// Finds its next turn with enough for a first waiter of this cost.
    fn place(&mut self, cost: u32, now: Turn) {
        if self.turn < now {
            let is_to_come = self.in_round(now.round) > now;
            let round = now.round - u64::from(is_to_come);
            if round > self.turn.round {
                self.go_on(self.in_round(round));
            }
            // What it has saved was for another waiter. It keeps no more than one turn or this waiter needs.
            self.saved = self.saved.min(self.next_weight.max(cost).into());
        } else if self.turn > now {
            self.saved = self.next_weight.into();
        }
        self.weight = self.next_weight;
        let lacks = i64::from(cost) - self.saved;
        let rounds = match u64::try_from(lacks) {
            Ok(lacks) if lacks > 0 => lacks.div_ceil(self.weight.into()),
            _ => u64::from(self.turn < now),
        };
        self.next = match rounds {
            0 => self.turn,
            rounds => self.in_round(self.turn.round + rounds),
        };
    }
}

fn class_of(id: u64) -> usize {
    (id & CLASS) as usize
}

/// The keys are hashes, with a class in the lowest bits.
#[derive(Default)]
struct IsHashed(u64);

impl Hasher for IsHashed {
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "only whole numbers are hashed");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id >> 2;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use testkit::turns::Turns;

    use super::*;
    use crate::time::Tick;

    fn ticket(key: u64, number: u64) -> Ticket {
        Ticket::new(Tick::ZERO, number, key << 2 | Priority::Normal as u64)
    }

    /// The head passes.
    fn pass(flows: &mut Flows) -> Option<Ticket> {
        let (ticket, head) = flows.head_mut()?;
        let cost = head.cost;
        flows.remove(ticket, Some(cost)).map(|_| ticket)
    }

    #[test]
    fn random_schedules_pass_as_in_the_plain_loop() {
        let mut passed = 0;
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (keys, most) = (random.u64(1..7), random.u32(1..10));
            let (mut flows, mut turns) = (Flows::default(), Turns::default());
            let mut waiting: Vec<(u64, u64)> = Vec::new();
            for number in 0..150 {
                match random.u8(..10) {
                    0..5 => {
                        let key = random.u64(..keys);
                        let cost = random.u32(1..=most);
                        let weight = random.u32(1..4);
                        flows.insert(ticket(key, number), Waiter::noop(cost), weight);
                        turns.join(key, number, cost, weight);
                        waiting.push((key, number));
                    }
                    5 if !waiting.is_empty() => {
                        let index = random.usize(..waiting.len());
                        let (key, number) = waiting.remove(index);
                        assert!(flows.remove(ticket(key, number), None).is_some());
                        turns.cancel(key, number);
                    }
                    _ => {
                        let number = turns.pass();
                        let key = waiting.iter().position(|waiter| Some(waiter.1) == number);
                        let first = key.map(|index| waiting.remove(index));
                        let expected = first.map(|(key, number)| ticket(key, number));
                        assert_eq!(pass(&mut flows), expected, "{seed}: {number:?}");
                        passed += u32::from(expected.is_some());
                    }
                }
            }
        }
        assert!(passed > 100_000, "{passed}");
    }

    #[test]
    fn a_million_keys_one_after_the_other_leave_no_memory() {
        let mut flows = Flows::default();
        for key in 0..1_000_000 {
            flows.insert(ticket(key, 2 * key), Waiter::noop(1), 1);
            flows.insert(ticket(key, 2 * key + 1), Waiter::noop(1), 1);
            assert!(pass(&mut flows).is_some());
            assert!(flows.remove(ticket(key, 2 * key + 1), None).is_some());
        }
        let rounds = &flows.classes[Priority::Normal as usize];
        assert!(flows.lanes.is_empty() && flows.lanes.capacity() <= FEW);
        assert!(rounds.later.is_empty() && rounds.next.is_none() && rounds.last.is_none());
    }

    #[test]
    fn many_keys_at_once_give_their_memory_back() {
        let mut flows = Flows::default();
        for key in 0..10_000 {
            flows.insert(ticket(key, key), Waiter::noop(1), 1);
        }
        while pass(&mut flows).is_some() {}
        assert!(flows.lanes.is_empty() && flows.lanes.capacity() <= FEW);
    }

    #[test]
    fn costs_of_any_size_do_not_overflow() {
        let mut flows = Flows::default();
        for number in 0..1_000 {
            let weight = if number % 3 == 0 { u32::MAX } else { 1 };
            flows.insert(ticket(number % 7, number), Waiter::noop(u32::MAX), weight);
        }
        for _ in 0..1_000 {
            assert!(pass(&mut flows).is_some());
        }
    }
}
