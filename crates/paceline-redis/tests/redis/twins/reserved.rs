//! A rate with reserves, beside a model that counts each microsecond.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::{prop_assert, prop_assert_eq, prop_oneof};

use super::alone::KEY;
use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::numbers::Numbers;
use super::{MILLI, NOW, SECOND, Tried, holds};

/// A token takes token / permits microseconds. The weights are those of all classes in percent, first that of all others.
#[derive(Clone, Debug)]
struct Rate {
    token: u64,
    permits: u64,
    burst: u32,
    weights: Vec<u32>,
}

impl Rate {
    /// One permit each millisecond, of which a class has 20 %, with buckets of 2 and 8 and a pool of 2.
    fn payments() -> Self {
        Self {
            token: MILLI,
            permits: 1,
            burst: 12,
            weights: vec![80, 20],
        }
    }

    fn pool(&self) -> u32 {
        (self.burst / 5).max(1)
    }

    /// The most that a class can have.
    fn capacity(&self, class: usize) -> u32 {
        let pool = u64::from(self.pool());
        let depth = (u64::from(self.burst) - pool) * u64::from(self.weights[class]);
        u32::try_from((depth + 100 * pool) / 100).unwrap()
    }

    fn numbers(&self, class: usize) -> Numbers {
        let mut packed = 0;
        for (number, weight) in self.weights[1..].iter().enumerate() {
            packed += u64::from(*weight) << (7 * number);
        }
        let class_number = u64::try_from(class).unwrap();
        let both = u64::from(self.burst) * 8 + class_number;
        Numbers {
            policy: 6,
            params: vec![self.token, self.permits, both, packed],
            capacity: self.capacity(class),
            settles_in: (self.token * u64::from(self.burst)).div_ceil(self.permits),
        }
    }
}

/// What is left of a rate, in hundredths of 1 / permits of a microsecond.
#[derive(Clone)]
struct Model {
    rate: Rate,
    buckets: Vec<i64>,
    pool: i64,
}

impl Model {
    fn new(rate: &Rate) -> Self {
        let mut model = Self {
            rate: rate.clone(),
            buckets: vec![],
            pool: 0,
        };
        model.buckets = (0..rate.weights.len())
            .map(|class| model.depth(class))
            .collect();
        model.pool = model.depth_of_pool();
        model
    }

    fn unit(&self) -> i64 {
        100 * i64::try_from(self.rate.token).unwrap()
    }

    fn depth(&self, class: usize) -> i64 {
        self.unit() / 100
            * i64::from(self.rate.burst - self.rate.pool())
            * i64::from(self.rate.weights[class])
    }

    fn depth_of_pool(&self) -> i64 {
        self.unit() * i64::from(self.rate.pool())
    }

    fn microsecond(&mut self) {
        let permits = i64::try_from(self.rate.permits).unwrap();
        for class in 0..self.buckets.len() {
            self.buckets[class] += permits * i64::from(self.rate.weights[class]);
            let over = self.buckets[class] - self.depth(class);
            if over > 0 {
                self.buckets[class] -= over;
                self.pool = (self.pool + over).min(self.depth_of_pool());
            }
        }
    }

    fn after(&self, micros: u64) -> Self {
        let mut later = self.clone();
        (0..micros).for_each(|_| later.microsecond());
        later
    }

    fn has(&self, class: usize, cost: u32) -> bool {
        self.buckets[class] + self.pool >= self.unit() * i64::from(cost)
    }

    fn room(&self, class: usize) -> u32 {
        let room = (self.buckets[class] + self.pool) / self.unit();
        u32::try_from(room).unwrap_or(0)
    }

    /// How many microseconds until that holds.
    fn until(&self, holds: impl Fn(&Self) -> bool) -> u64 {
        let (mut later, mut micros) = (self.clone(), 0);
        while !holds(&later) {
            later.microsecond();
            micros += 1;
        }
        micros
    }

    fn is_full(&self) -> bool {
        let mut classes = 0..self.buckets.len();
        classes.all(|class| self.buckets[class] == self.depth(class))
            && self.pool == self.depth_of_pool()
    }

    /// Of the bucket first, then of the pool, then as a debt.
    fn spend(&mut self, class: usize, cost: u32) {
        for _ in 0..self.unit() * i64::from(cost) {
            if self.buckets[class] <= 0 && self.pool > 0 {
                self.pool -= 1;
            } else {
                self.buckets[class] -= 1;
            }
        }
    }

    fn give_back(&mut self, class: usize, cost: u32) {
        for _ in 0..self.unit() * i64::from(cost) {
            if self.buckets[class] < self.depth(class) {
                self.buckets[class] += 1;
            } else if self.pool < self.depth_of_pool() {
                self.pool += 1;
            }
        }
    }
}

/// The classes of one rate on a server, each with what its client knows.
struct Classes<'a> {
    store: &'a mut Store,
    rate: Rate,
    known: BTreeMap<usize, Known>,
}

impl<'a> Classes<'a> {
    fn new(store: &'a mut Store, rate: &Rate) -> Self {
        store.flush();
        Self {
            store,
            rate: rate.clone(),
            known: BTreeMap::new(),
        }
    }

    #[track_caller]
    fn call(&mut self, class: usize, question: &Question) -> Answer {
        let known = self.known.entry(class).or_default();
        let limit = LimitArgs {
            key: KEY.into(),
            numbers: self.rate.numbers(class),
            known: *known,
        };
        let answer = self.store.ask(question, &[limit]);
        *known = answer.known();
        answer
    }

    #[track_caller]
    fn ask(&mut self, class: usize, now: u64, cost: u32) -> Answer {
        self.call(class, &Question::ask(now, cost))
    }

    #[track_caller]
    fn wait(&mut self, class: usize, now: u64, cost: u32) -> Option<u64> {
        self.call(class, &Question::peek(now, cost)).wait()
    }

    #[track_caller]
    fn room(&mut self, class: usize, now: u64) -> u32 {
        self.call(class, &Question::look(now)).rooms[0]
    }
}

#[derive(Clone, Copy, Debug)]
enum Does {
    /// So many requests in a row, and so many permits more.
    Ask(u32, u32),
    Charge,
    GiveBack,
}

fn rate() -> impl Strategy<Value = Rate> {
    let weights = prop_oneof![
        Just(vec![80, 20]),
        Just(vec![50, 17, 33]),
        Just(vec![12, 8, 10, 10, 10, 10, 20, 20]),
        (5..96_u32).prop_map(|weight| vec![100 - weight, weight]),
    ];
    let numbers = (1..60_u64, 1..4_u64, 1..30_u32, weights);
    numbers.prop_map(|(token, permits, burst, weights)| Rate {
        token,
        permits,
        burst,
        weights,
    })
}

#[test]
fn it_decides_and_waits_as_the_model_to_the_microsecond() {
    let does = prop_oneof![
        6 => (1..4_u32, 0..4_u32).prop_map(|(count, ahead)| Does::Ask(count, ahead)),
        1 => Just(Does::Charge),
        1 => Just(Does::GiveBack),
    ];
    let gap = prop_oneof![3 => 0..20_u64, 1 => 0..500_u64];
    let steps = vec((gap, 0..8_usize, 1..9_u32, does), 1..25);
    holds(150, (rate(), steps), |store, (rate, steps)| {
        let mut there = Classes::new(store, &rate);
        let (mut here, mut now) = (Model::new(&rate), NOW);
        for (gap, class, cost, does) in steps {
            let class = class % rate.weights.len();
            let cost = cost.min(rate.capacity(class));
            now += gap;
            here = here.after(gap);
            step(&mut there, &mut here, (now, class, cost), does)?;
        }
        Ok(())
    });
}

fn step(
    there: &mut Classes<'_>,
    here: &mut Model,
    (now, class, cost): (u64, usize, u32),
    does: Does,
) -> Tried {
    let answer = match does {
        Does::Ask(count, ahead) => {
            let question = Question::groups(now, vec![(cost, count)]).and_ahead(ahead);
            let answer = there.call(class, &question);
            let mut passed = 0;
            while passed < count && here.has(class, cost) {
                here.spend(class, cost);
                passed += 1;
            }
            prop_assert_eq!(answer.passed, passed);
            if passed < count {
                let wait = here.until(|model| model.has(class, cost));
                prop_assert_eq!(answer.retry_in, wait);
                prop_assert_eq!(there.wait(class, now + wait - 1, cost), Some(1));
                prop_assert_eq!(there.wait(class, now + wait, cost), None);
            } else {
                let granted = ahead.min(here.room(class));
                prop_assert_eq!(answer.ahead, granted);
                here.spend(class, granted);
            }
            answer
        }
        Does::Charge => {
            let answer = there.call(class, &Question::charge(now, cost));
            here.spend(class, cost);
            answer
        }
        Does::GiveBack => {
            let answer = there.call(class, &Question::give_back(now, cost));
            here.give_back(class, cost);
            answer
        }
    };
    prop_assert!(!answer.lost[0]);
    prop_assert_eq!(answer.rooms[0], here.room(class));
    // An empty key says nothing of times.
    if answer.known().at > 0 {
        let settles_at = now + here.until(Model::is_full);
        prop_assert_eq!(answer.known().until, settles_at);
    }
    Ok(())
}

/// Both always have requests of these costs, and make the next as soon as they are told to.
fn floods(costs: [u32; 2], until: u64) -> [u32; 2] {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    let (mut due, mut spent) = ([NOW; 2], [0; 2]);
    loop {
        let class = usize::from(due[1] < due[0]);
        let now = due[class];
        if now >= until {
            return spent;
        }
        match classes.ask(class, now, costs[class]).wait() {
            Some(wait) => due[class] = now + wait,
            None => spent[class] += costs[class],
        }
    }
}

#[test]
fn two_classes_that_flood_get_their_shares() {
    let full = Rate::payments().burst;
    for costs in [[1, 1], [2, 1], [1, 2]] {
        let spent = floods(costs, NOW + SECOND);
        let sum = spent[0] + spent[1];
        assert!((1_000..=1_000 + full).contains(&sum), "{spent:?}");
        assert!((800..=800 + full).contains(&spent[0]), "{spent:?}");
        assert!((200..=200 + full).contains(&spent[1]), "{spent:?}");
    }
}

#[test]
fn a_class_within_its_reserve_is_never_refused_whatever_floods() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    let mut now = NOW;
    for number in 0..300 {
        while classes.ask(0, now, 1).passed > 0 {}
        // As often as it may, and two at once as seldom.
        let cost = 1 + u32::from(number % 3 == 0);
        assert_eq!(classes.ask(1, now, cost).passed, 1, "{number}");
        for _ in 0..10 * cost {
            now += MILLI / 2;
            while classes.ask(0, now, 1).passed > 0 {}
        }
    }
}

#[test]
fn a_class_that_asks_alone_uses_the_whole_rate() {
    let mut store = Store::start();
    for (class, first) in [(0, 10), (1, 4)] {
        let mut classes = Classes::new(&mut store, &Rate::payments());
        assert_eq!(classes.room(class, NOW), first);
        for passed in 0..1_000_u64 {
            let now = NOW + passed.saturating_sub(u64::from(first) - 1) * MILLI;
            assert_eq!(classes.ask(class, now, 1).passed, 1, "{class} {passed}");
            if passed >= first.into() {
                assert_eq!(classes.ask(class, now, 1).wait(), Some(MILLI), "{passed}");
            }
        }
    }
}

#[test]
fn after_a_loss_everything_counts_as_spent_for_all_classes() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    assert_eq!(classes.ask(0, NOW, 1).passed, 1);
    classes.store.flush();
    let lost = classes.ask(0, NOW, 4);
    assert_eq!((lost.lost[0], lost.wait()), (true, Some(5 * MILLI)));
    assert_eq!(classes.wait(1, NOW, 1), Some(5 * MILLI));
    assert_eq!(lost.known().until, NOW + 12 * MILLI);
}

#[test]
fn during_an_outage_nothing_flows_in() {
    let (from, to) = (NOW + MILLI, NOW + 101 * MILLI);
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    assert_eq!(classes.ask(0, NOW, 10).passed, 1);
    let asked = |classes: &mut Classes<'_>, now, cost| {
        let question = Question::ask(now, cost).outage(from, to);
        classes.call(0, &question)
    };
    // A full bucket of the other class fed the pool before it.
    let refused = asked(&mut classes, to, 2);
    assert_eq!(refused.wait(), Some(MILLI));
    assert_eq!(
        refused.known().at,
        to,
        "it is written, since it did not fill"
    );
    assert_eq!(asked(&mut classes, to + MILLI, 2).passed, 1);

    // Its key has expired meanwhile, and all that is known is when it would have been full.
    let mut classes = Classes::new(classes.store, &Rate::payments());
    let (at, until) = (NOW, NOW + 3 * MILLI);
    classes.known.insert(0, Known { at, until });
    let refused = asked(&mut classes, to, 10);
    // Two of the buckets may be missing, or two of the pool.
    assert_eq!((refused.wait(), refused.lost[0]), (Some(4 * MILLI), false));
}

#[test]
fn other_parameters_keep_what_is_left_of_each_class() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    assert_eq!(classes.ask(1, NOW, 3).passed, 1);
    // The pool has 1, the bucket of the class nothing, and that of the others 8.
    classes.rate = Rate {
        burst: 24,
        weights: vec![70, 20, 10],
        ..Rate::payments()
    };
    let rooms = [0, 1, 2].map(|class| classes.room(class, NOW));
    assert_eq!(rooms, [9, 1, 1], "a new class begins with an empty bucket");
    // Until then 0.875 flow into its bucket, and for 0.179 ms 0.7 a millisecond into the pool: the bucket of the others is full.
    assert_eq!(classes.wait(2, NOW, 2), Some(8_750));
    // Twice as fast, with half of the buckets.
    classes.rate = Rate {
        token: MILLI / 2,
        burst: 6,
        ..Rate::payments()
    };
    let rooms = [0, 1].map(|class| classes.room(class, NOW));
    assert_eq!(rooms, [5, 1]);
    assert_eq!(classes.ask(1, NOW, 1).passed, 1);
    // Back again: what was cut is gone.
    classes.rate = Rate::payments();
    let rooms = [0, 1].map(|class| classes.room(class, NOW));
    assert_eq!(rooms, [4, 0]);
}

#[test]
fn what_was_not_used_goes_back_without_what_has_flowed_in_since() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    assert_eq!(classes.ask(1, NOW, 4).passed, 1);
    let settled = Question::give_back(NOW, 0).settling(3, NOW);
    classes.call(1, &settled);
    assert_eq!([classes.room(0, NOW), classes.room(1, NOW)], [9, 3]);

    let mut classes = Classes::new(classes.store, &Rate::payments());
    assert_eq!(classes.ask(1, NOW, 4).passed, 1);
    assert_eq!(classes.ask(0, NOW + MILLI, 1).passed, 1);
    let now = NOW + 2 * MILLI;
    let before = classes.room(1, now);
    classes.call(1, &Question::give_back(now, 0).settling(3, NOW));
    assert_eq!(classes.room(1, now), before + 1);

    // A refused request brings it back too, and writes it down.
    let mut classes = Classes::new(classes.store, &Rate::payments());
    assert_eq!(classes.ask(1, NOW, 4).passed, 1);
    let refused = classes.call(1, &Question::ask(NOW, 4).settling(1, NOW));
    assert_eq!((refused.passed, classes.room(1, NOW)), (0, 1));

    // What was counted before a loss is lost.
    let (at, until) = (NOW + 1, NOW + 5 * MILLI);
    classes.known.insert(1, Known { at, until });
    assert!(classes.ask(1, NOW + MILLI, 1).lost[0]);
    let settled = Question::give_back(NOW + MILLI, 0).settling(4, NOW);
    classes.call(1, &settled);
    assert_eq!(classes.room(1, NOW + MILLI), 0);
}

/// Both buckets and the pool are empty, but for a part of a permit. Then each bucket fills alone.
#[test]
fn the_largest_numbers_are_exact() {
    let mut store = Store::start();
    for (token, permits, burst, weight) in [
        (10_485, 1, u32::MAX, 1),
        ((1 << 52) / 1_000, 1, 10, 13),
        (1_000_003, 4_294_967_291_000, 44_000_000, 99),
        (3_999_999, 7, 11_000_000, 50),
    ] {
        let rate = Rate {
            token,
            permits,
            burst,
            weights: vec![100 - weight, weight],
        };
        let mut classes = Classes::new(&mut store, &rate);
        assert_eq!(classes.ask(0, NOW, rate.capacity(0)).passed, 1);
        let passed = classes.call(1, &Question::ahead(NOW, u32::MAX)).ahead;
        let [others, own] = [100 - weight, weight].map(|weight| {
            let tokens = u64::from(burst - rate.pool());
            tokens * u64::from(weight)
        });
        let (all, part) = ((own + others % 100) / 100, (own + others % 100) % 100);
        assert_eq!(u64::from(passed), all, "{rate:?}");

        let flows = u128::from(permits) * u128::from(weight);
        let bucket = u32::try_from(own / 100).unwrap();
        for cost in [1, bucket.div_ceil(3), bucket] {
            let missing = u128::from(100 * u64::from(cost) - part) * u128::from(token);
            let told = classes.wait(1, NOW, cost).map_or(0, u128::from);
            assert_eq!(told, missing.div_ceil(flows), "{rate:?} {cost}");
        }
    }
}

/// A charge takes what is there, and owes the rest: six permits, at two permits in ten milliseconds.
fn owing(store: &mut Store) -> Classes<'_> {
    let mut classes = Classes::new(store, &Rate::payments());
    let charged = classes.call(1, &Question::charge(NOW, 10));
    assert_eq!(charged.known().until, NOW + 40 * MILLI);
    classes
}

#[test]
fn a_debt_is_kept_where_a_state_is_lost_and_where_the_clock_is_set_back() {
    let mut store = Store::start();
    let mut classes = owing(&mut store);
    let now = NOW - 39 * MILLI;
    let told = classes.call(1, &Question::peek(now, 1));
    assert!(!told.lost[0], "its time stands still, as long as it owes");

    let now = NOW - 41 * MILLI;
    let told = classes.call(1, &Question::peek(now, 1));
    assert!(told.lost[0]);
    // 7 permits are missing, of which the pool has 2 when the bucket of the others is full.
    assert_eq!(told.wait(), Some(25 * MILLI));

    let mut classes = owing(&mut store);
    let (at, until) = (NOW + MILLI, NOW + 41 * MILLI);
    classes.known.insert(1, Known { at, until });
    let refused = classes.ask(1, NOW + 2 * MILLI, 1);
    assert!(refused.lost[0], "a replica has an older state");
    assert_eq!(refused.wait(), Some(23 * MILLI));
}

#[test]
fn other_parameters_keep_fractions_and_cut_a_debt_to_a_bucket() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    assert_eq!(classes.ask(1, NOW, 4).passed, 1);
    classes.rate.token = MILLI / 2;
    let refused = classes.ask(1, NOW + 313, 1);
    // 0.0626 were in the bucket and 0.2504 in the pool. What is missing comes twice as fast.
    assert_eq!(refused.wait(), Some(344));
    assert_eq!(refused.known().at, NOW + 313, "it is written");

    let mut classes = owing(&mut store);
    classes.rate.burst = 6;
    // The debt is 1, and the pool has room for 1.
    assert_eq!(classes.ask(1, NOW, 1).wait(), Some(5 * MILLI));

    // Other weights alone are other parameters, too.
    let mut classes = Classes::new(classes.store, &Rate::payments());
    assert_eq!(classes.ask(0, NOW, 1).passed, 1);
    classes.rate.weights = vec![50, 50];
    let rooms = [0, 1].map(|class| classes.room(class, NOW));
    assert_eq!(rooms, [7, 4]);
}

#[test]
fn a_debt_ends_where_numbers_would_not_be_exact() {
    let mut store = Store::start();
    let rate = Rate {
        token: 1 << 42,
        ..Rate::payments()
    };
    let mut classes = Classes::new(&mut store, &rate);
    for _ in 0..2 {
        classes.call(1, &Question::charge(NOW, u32::MAX));
    }
    let until = classes.known[&1].until;
    assert!(until > NOW && until - NOW <= (1 << 52) / 20 + classes.rate.numbers(1).settles_in);
}

#[test]
fn a_state_that_has_expired_misses_no_more_than_all_after_an_outage() {
    let mut store = Store::start();
    let mut classes = Classes::new(&mut store, &Rate::payments());
    let (at, until) = (NOW, NOW + 50 * MILLI);
    classes.known.insert(0, Known { at, until });
    let to = NOW + 60 * MILLI;
    let refused = classes.call(0, &Question::ask(to, 1).outage(NOW + 20 * MILLI, to));
    assert!(!refused.lost[0]);
    assert_eq!(refused.wait(), Some(1_250));
    assert_eq!(refused.known().until, to + 12 * MILLI);
}
