use core::cmp::Ordering;
use core::hash::{BuildHasherDefault, Hasher};
use core::mem;
use core::num::NonZeroU32;
use core::ops::Bound::{Excluded, Unbounded};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::time::Tick;

use super::Priority;
use super::in_order::InOrder;
use super::waiter::{Ticket, Waiter};

/// The key of a request and its weight, where flows take turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Flow {
    /// The hash of its key. Two keys with one hash are one flow.
    id: u64,
    pub(super) weight: NonZeroU32,
}

impl Flow {
    /// All requests without a key.
    pub(crate) const OF_NO_KEY: Self = Self::new(0, NonZeroU32::MIN).in_class(Priority::Normal);

    pub(crate) const fn new(hash: u64, weight: NonZeroU32) -> Self {
        Self { id: hash, weight }
    }

    /// The requests of one class are a flow of their own. Two bits of the hash give way to the class.
    pub(crate) const fn in_class(self, priority: Priority) -> Self {
        let class = match priority {
            Priority::Normal => NORMAL as u64,
            Priority::High => 1,
            Priority::Low => 2,
        };
        let id = (self.id & !CLASS) | class;
        Self { id, ..self }
    }

    /// What a permit keeps, to be [given back](super::WaitQueue::release).
    pub(crate) const fn id(self) -> u64 {
        self.id
    }
}

const CLASS: u64 = 3;

/// The class of the requests that were queued before there were flows, too.
const NORMAL: usize = 0;

/// The waiters of each flow, which take turns by weight: deficit round robin (M. Shreedhar and G. Varghese, 1995).
///
/// The flows of a class are served in rounds. In each round a flow may take its weight in permits, and saves what its next request
/// costs more. A flow that begins to wait has its first turn at the beginning of the next round; after that, flows have their turns
/// in the order in which they began. One without waiters is forgotten and saves nothing. Only the flow that was served last may come
/// back into its turn, until another is served: so callers that ask one after the other have their weight, too.
///
/// No round is walked over. A flow knows in which round it can pay for its first request, and the earliest of these turns is the
/// next. So a grant takes logarithmic time in the number of flows that wait.
///
/// If the flows [divide](Self::divide) permits, one below its share has its turn before those above. A turn that is missed for that
/// stays open, and the flow saves nothing more until it is used. A flow is then also remembered while it uses permits.
#[derive(Default)]
pub(super) struct Flows {
    lanes: HashMap<u64, Lane, BuildHasherDefault<IsHashed>>,
    classes: [Rounds; 3],
    /// Whether the oldest waiters of each class are kept: one class alone does not need them.
    has_classes: bool,
    division: Option<Division>,
}

/// The permits that the flows divide by weight.
#[derive(Default)]
struct Division {
    total: u32,
    /// The sum over the flows that use permits or wait.
    weights: u64,
    /// Whether the time counts for which permits are held, in nanoseconds.
    counts_time: bool,
    /// The part of a round by which the time has gone on.
    carried: u64,
}

/// What a flow uses, for its weight. It decides which flows are below their share.
#[derive(Clone, Copy, Debug)]
struct Load {
    in_use: u32,
    weight: u32,
}

/// When a flow has a turn. Those that begin in a round come before the others.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
struct Turn {
    round: u64,
    has_begun: bool,
    number: u64,
}

/// Where a flow that waits stands. Those of one load are ordered by their turns.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    load: Load,
    turn: Turn,
}

/// The flows of one class.
#[derive(Default)]
struct Rounds {
    /// The next place, those after it, and the first waiter of the flow that has it. Most often a flow that was served has the next turn
    /// again, and the map stays as it is.
    next: Option<(Place, Ticket)>,
    later: BTreeMap<Place, Ticket>,
    /// The oldest waiter of each flow.
    oldest: BTreeSet<Ticket>,
    /// The latest turn of a grant.
    now: Turn,
    /// If flows pay for time: the round of one that has paid as much as all do on average. Others begin there, so that none that has
    /// paid waits behind them for long.
    even: u64,
    /// How many flows have begun.
    begun: u64,
    /// The flow that was served last, and its lane if it is otherwise forgotten.
    served: u64,
    last: Option<(u64, Lane)>,
}

/// The waiters of one flow.
struct Lane {
    waiters: InOrder,
    weight: u32,
    /// That of its newest request. It holds as soon as its first waiter is another one.
    next_weight: u32,
    /// How many flows have begun before.
    number: u64,
    /// Its last turn, or else its first one, and how many permits it had then. Each round after it adds the weight.
    turn: Turn,
    saved: i64,
    /// Its next turn with enough for its first waiter.
    next: Turn,
    /// How many permits it uses, and since when.
    in_use: u32,
    since: Tick,
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

    /// From now on the flows divide a total of permits.
    pub(super) fn divide(&mut self, total: u32) {
        self.division.get_or_insert_default().total = total;
        self.choose_again();
    }

    /// A flow that uses permits pays for the time, too.
    pub(super) fn count_time(&mut self) {
        if let Some(division) = &mut self.division {
            division.counts_time = true;
        }
    }

    pub(super) const fn divides(&self) -> bool {
        self.division.is_some()
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Ticket> {
        let class = if self.has_classes {
            let classes = self.classes.iter();
            let waiting = classes.filter(|class| class.next.is_some());
            waiting.min_by_key(|class| class.oldest.first())?
        } else {
            &self.classes[NORMAL]
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
        let lane = self.lane(ticket.flow);
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
        let is_empty = lane.waiters.is_empty();
        if is_first {
            if let Some(cost) = paid {
                let rounds = &mut self.classes[class_of(ticket.flow)];
                lane.go_on(lane.next);
                lane.saved -= i64::from(cost);
                rounds.now = rounds.now.max(lane.turn);
                (rounds.served, rounds.last) = (ticket.flow, None);
            }
            self.first_has_changed(ticket.flow, Some(ticket));
            if is_empty {
                self.forget_if_unused(ticket.flow, paid.is_some());
            }
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

    /// Permits that flows divide: one uses `cost` more from now on.
    pub(super) fn take(&mut self, flow: Flow, cost: u32, now: Tick) {
        if self.divides() && cost > 0 {
            let lane = self.lane(flow.id);
            lane.next_weight = flow.weight.get();
            if lane.waiters.is_empty() {
                self.first_has_changed(flow.id, None);
            }
            self.use_changes(flow.id, now, |in_use| in_use + cost);
        }
    }

    /// Permits that flows divide: one has given some back.
    pub(super) fn give_back(&mut self, id: u64, count: u32, now: Tick) {
        self.use_changes(id, now, |in_use| in_use.saturating_sub(count));
        let is_last = self.classes[class_of(id)].served == id;
        self.forget_if_unused(id, is_last);
    }

    fn use_changes(&mut self, id: u64, now: Tick, change: impl FnOnce(u32) -> u32) {
        let is_any_waiting = self.classes.iter().any(|class| class.next.is_some());
        let lane = self.lanes.get_mut(&id);
        let Some((lane, division)) = lane.zip(self.division.as_mut()) else {
            return;
        };
        let first = lane.waiters.end(false);
        if first.is_some() {
            self.classes[class_of(id)].remove(lane.place());
        }
        let held = lane.change_use(now, change);
        if division.counts_time && is_any_waiting {
            lane.saved = lane.saved.saturating_sub(held);
            let rounds = division.rounds_in(held);
            for class in &mut self.classes {
                class.even = class.even.max(class.now.round).saturating_add(rounds);
            }
        }
        self.first_has_changed(id, first);
    }

    /// The first waiter of a flow is another one or costs something else, or the flow has paid.
    fn first_has_changed(&mut self, id: u64, before: Option<Ticket>) {
        let rounds = &mut self.classes[class_of(id)];
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        if let Some(before) = before {
            rounds.remove(lane.place());
            if self.has_classes {
                rounds.oldest.remove(&before);
            }
        }
        let first = lane.waiters.end_mut(false);
        let first = first.map(|(ticket, waiter)| (ticket, waiter.cost));
        let weight = lane.weight;
        lane.find_turn(first.map_or(1, |(_, cost)| cost), rounds.now);
        weigh(&mut self.division, weight, lane.weight);
        if let Some((ticket, _)) = first {
            rounds.insert(lane.place(), ticket);
            if self.has_classes {
                rounds.oldest.insert(ticket);
            }
        }
        match self.division {
            None => rounds.choose(None),
            Some(_) => self.choose_again(),
        }
    }

    /// The lane of a flow, which may begin now.
    fn lane(&mut self, id: u64) -> &mut Lane {
        let Self {
            lanes,
            classes,
            division,
            ..
        } = self;
        lanes.entry(id).or_insert_with(|| {
            let lane = classes[class_of(id)].begin(id);
            weigh(division, 0, lane.weight);
            lane
        })
    }

    /// Others may be below their share now.
    fn choose_again(&mut self) {
        for rounds in &mut self.classes {
            rounds.choose(self.division.as_ref());
        }
    }

    fn forget_if_unused(&mut self, id: u64, is_last: bool) {
        let is_unused = |lane: &Lane| lane.waiters.is_empty() && lane.in_use == 0;
        if self.lanes.get(&id).is_some_and(is_unused) {
            let lane = self.lanes.remove(&id).map(|lane| (id, lane));
            let weight = lane.as_ref().map_or(0, |(_, lane)| lane.weight);
            weigh(&mut self.division, weight, 0);
            if is_last {
                self.classes[class_of(id)].last = lane;
            }
            if self.lanes.is_empty() && self.lanes.capacity() > FEW {
                self.lanes = HashMap::default();
            }
            if self.division.is_some() {
                self.choose_again();
            }
        }
    }
}

/// An empty map with at most this much room keeps its memory.
const FEW: usize = 64;

/// The weight of a flow changes.
fn weigh(division: &mut Option<Division>, old: u32, new: u32) {
    if let Some(division) = division {
        division.weights = division.weights + u64::from(new) - u64::from(old);
    }
}

impl Division {
    fn is_below_share(&self, load: Load) -> bool {
        let used = u128::from(load.in_use) * u128::from(self.weights);
        used < u128::from(self.total) * u128::from(load.weight)
    }

    /// How many rounds it takes until all flows together have paid for this number of nanoseconds.
    fn rounds_in(&mut self, held: i64) -> u64 {
        let weights = self.weights.max(1);
        let held = self.carried + held.unsigned_abs();
        self.carried = held % weights;
        held / weights
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        let [one, another] = [(self, other), (other, self)]
            .map(|(load, other)| u64::from(load.in_use) * u64::from(other.weight));
        one.cmp(&another)
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

impl Rounds {
    /// A flow begins to wait, or waits again in its turn.
    fn begin(&mut self, id: u64) -> Lane {
        if let Some((_, lane)) = self.last.take_if(|(last, _)| *last == id) {
            return lane;
        }
        self.begun += 1;
        let turn = Turn {
            round: self.now.round.max(self.even).saturating_add(1),
            has_begun: false,
            number: self.begun,
        };
        Lane {
            waiters: InOrder::default(),
            weight: 0,
            next_weight: 1,
            number: self.begun,
            turn,
            saved: 0,
            next: turn,
            in_use: 0,
            since: Tick::ZERO,
        }
    }

    fn insert(&mut self, place: Place, first: Ticket) {
        let next = match self.next {
            Some((next, _)) => Some(next),
            None => self.later.first_key_value().map(|(next, _)| *next),
        };
        if next.is_some_and(|next| next < place) {
            self.later.insert(place, first);
        } else if let Some((next, other)) = self.next.replace((place, first)) {
            self.later.insert(next, other);
        }
    }

    /// Until the next one is [chosen](Self::choose), none may be the next.
    fn remove(&mut self, place: Place) {
        if self.next.take_if(|(next, _)| *next == place).is_none() {
            self.later.remove(&place);
        }
    }

    fn choose(&mut self, division: Option<&Division>) {
        let Some(division) = division else {
            self.next = self.next.take().or_else(|| self.later.pop_first());
            return;
        };
        self.later.extend(self.next.take());
        self.next = self.earliest(division);
        if let Some((place, _)) = &self.next {
            self.later.remove(place);
        }
    }

    /// The earliest turn of the flows below their share, or else of the others. It looks at one flow of each load.
    fn earliest(&self, division: &Division) -> Option<(Place, Ticket)> {
        let mut earliest: Option<(Place, Ticket)> = None;
        let mut next = self.later.first_key_value();
        while let Some((place, head)) = next {
            let is_later = earliest.is_some_and(|(first, _)| {
                let is_below = |place: &Place| division.is_below_share(place.load);
                is_below(&first) && !is_below(place) || first.turn < place.turn
            });
            if !is_later {
                earliest = Some((*place, *head));
            }
            let last_of_load = Place {
                turn: Turn::LAST,
                ..*place
            };
            next = self.later.range((Excluded(last_of_load), Unbounded)).next();
        }
        earliest
    }
}

impl Turn {
    const LAST: Self = Self {
        round: u64::MAX,
        has_begun: true,
        number: u64::MAX,
    };
}

impl Lane {
    const fn place(&self) -> Place {
        Place {
            load: Load {
                in_use: self.in_use,
                weight: self.weight,
            },
            turn: self.next,
        }
    }

    const fn in_round(&self, round: u64) -> Turn {
        Turn {
            round,
            has_begun: true,
            number: self.number,
        }
    }

    /// Returns for how many nanoseconds it has held permits since the last change, as many as there are permits.
    fn change_use(&mut self, now: Tick, change: impl FnOnce(u32) -> u32) -> i64 {
        let time = now.since(mem::replace(&mut self.since, now));
        let held = time.as_nanos() * u128::from(self.in_use);
        self.in_use = change(self.in_use);
        i64::try_from(held).unwrap_or(i64::MAX)
    }

    /// Adds its weight for each round up to this turn, which becomes its last one.
    fn go_on(&mut self, turn: Turn) {
        let rounds = i64::try_from(turn.round - self.turn.round).unwrap_or(i64::MAX);
        let earned = rounds.saturating_mul(self.weight.into());
        self.saved = self.saved.saturating_add(earned);
        self.turn = turn;
    }

    /// Finds its next turn with enough for a first waiter of this cost. One that it has missed stays open.
    fn find_turn(&mut self, cost: u32, now: Turn) {
        let weight = self.next_weight;
        let mut is_open = self.turn == now;
        if self.turn > now {
            self.saved += i64::from(weight) - i64::from(self.weight);
        } else if self.turn < now {
            let is_to_come = self.in_round(now.round) > now;
            let latest = self.in_round(now.round - u64::from(is_to_come));
            let until = latest.min(self.next);
            if until > self.turn {
                self.go_on(until);
            }
            // What it has saved was for another waiter. It keeps no more than one turn or this waiter needs.
            self.saved = self.saved.min(weight.max(cost).into());
            is_open = self.next < now && self.saved >= cost.into();
            if !is_open {
                self.turn = self.turn.max(latest);
            }
        }
        self.weight = weight;
        let lacks = i64::from(cost).saturating_sub(self.saved);
        let rounds = match u64::try_from(lacks) {
            Ok(lacks) if lacks > 0 => lacks.div_ceil(weight.into()),
            _ => u64::from(self.turn < now && !is_open),
        };
        self.next = match rounds {
            0 => self.turn,
            rounds => self.in_round(self.turn.round.saturating_add(rounds)),
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

    fn ticket(key: u64, number: u64) -> Ticket {
        Ticket::new(Tick::ZERO, number, key << 2)
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
        let rounds = &flows.classes[NORMAL];
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

    fn flow(key: u64, weight: u32) -> Flow {
        Flow::new(key << 2, NonZeroU32::new(weight).unwrap())
    }

    fn is_empty(flows: &Flows) -> bool {
        let [rounds, ..] = &flows.classes;
        let division = flows.division.as_ref().unwrap();
        flows.lanes.is_empty()
            && flows.lanes.capacity() <= FEW
            && rounds.later.is_empty()
            && rounds.next.is_none()
            && division.weights == 0
    }

    #[test]
    fn a_key_that_neither_uses_permits_nor_waits_leaves_no_memory() {
        for counts_time in [false, true] {
            let mut flows = Flows::default();
            flows.divide(10);
            if counts_time {
                flows.count_time();
            }
            for key in 0..1_000 {
                flows.take(flow(key, 3), 2, Tick::from_nanos(key));
                flows.insert(ticket(key, 2 * key), Waiter::noop(1), 2);
                flows.insert(ticket(key, 2 * key + 1), Waiter::noop(1), 5);
            }
            assert_eq!(flows.division.as_ref().unwrap().weights, 2_000);
            for now in 1_000..2_000 {
                let passed = pass(&mut flows).unwrap();
                flows.take(flow(passed.flow >> 2, 2), 1, Tick::from_nanos(now));
            }
            for key in 0..1_000 {
                flows.remove(ticket(key, 2 * key), None);
                flows.remove(ticket(key, 2 * key + 1), None);
                flows.give_back(key << 2, 2, Tick::from_nanos(2_000));
                let in_use = flows.lanes.get(&(key << 2)).map_or(0, |lane| lane.in_use);
                flows.give_back(key << 2, in_use, Tick::from_nanos(3_000));
            }
            assert!(is_empty(&flows), "{counts_time}");
        }
    }

    #[test]
    fn uses_and_times_of_any_size_do_not_overflow() {
        let mut flows = Flows::default();
        flows.divide(u32::MAX);
        flows.count_time();
        for key in 0..4 {
            flows.take(flow(key, u32::MAX), u32::MAX, Tick::ZERO);
            flows.insert(ticket(key, 2 * key), Waiter::noop(u32::MAX), u32::MAX);
            flows.insert(ticket(key, 2 * key + 1), Waiter::noop(1), 1);
        }
        for key in 0..4 {
            flows.give_back(key << 2, u32::MAX, Tick::MAX);
            assert!(pass(&mut flows).is_some());
        }
        while pass(&mut flows).is_some() {}
        assert!(is_empty(&flows));
    }

    #[test]
    fn the_next_is_found_at_one_key_of_each_load_and_no_other_key_moves() {
        let mut flows = Flows::default();
        flows.divide(1_000);
        for key in 0..1_000 {
            flows.take(flow(key, 1), 1, Tick::ZERO);
            flows.insert(ticket(key, key), Waiter::noop(1), 1);
        }
        // All use their share, then all less, then all more.
        for (total, is_below) in [(1_000, false), (1_001, true), (999, false)] {
            flows.divide(total);
            let (place, _) = flows.classes[0].next.unwrap();
            let division = flows.division.as_ref().unwrap();
            assert_eq!(division.is_below_share(place.load), is_below);
            assert_eq!(flows.head(), Some(ticket(0, 0)));
        }
        flows.give_back(999 << 2, 1, Tick::ZERO);
        assert_eq!(flows.head(), Some(ticket(999, 999)));
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
