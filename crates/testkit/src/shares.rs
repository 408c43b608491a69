//! Permits that keys divide by weight, as a plain list: who has the next permit.

use std::collections::VecDeque;

/// A key that uses permits or waits.
#[derive(Clone, Debug)]
struct Key {
    id: u64,
    weight: u32,
    in_use: u32,
    /// How many keys have begun before.
    number: u64,
    /// The first round in which it is visited.
    first: u64,
    saved: i64,
    /// When it was visited last, if that turn is not over.
    open: Option<Visit>,
    requests: VecDeque<Request>,
}

type Visit = (u64, bool, u64);

#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    cost: u32,
}

impl Key {
    fn cost(&self) -> i64 {
        self.requests
            .front()
            .map_or(1, |request| request.cost.into())
    }
}

/// The permits of all keys, and the requests that wait.
///
/// All keys are visited in rounds. A visit gives a key its weight, and opens its turn if it can pay for its first request, or for one permit if
/// it has none. An open turn stays open, without more to save, until the key cannot pay any more. Of the keys with requests those below
/// their share come first: the one whose turn was opened first, or else the first one to be visited.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    total: u32,
    keys: Vec<Key>,
    here: Visit,
    begun: u64,
    served: Option<u64>,
    last: Option<Key>,
}

impl Shares {
    /// So many permits.
    #[must_use]
    pub fn new(total: u32) -> Self {
        Self {
            total,
            ..Self::default()
        }
    }

    /// How many are in use.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.keys.iter().map(|key| key.in_use).sum()
    }

    /// Whether this key uses less than its share.
    #[must_use]
    pub fn is_below(&self, id: u64) -> bool {
        let weights: u64 = self.keys.iter().map(|key| u64::from(key.weight)).sum();
        let mut keys = self.keys.iter();
        keys.any(|key| {
            key.id == id
                && u64::from(key.in_use) * weights < u64::from(self.total) * u64::from(key.weight)
        })
    }

    /// The keys with requests.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        let waiting = self.keys.iter().filter(|key| !key.requests.is_empty());
        waiting.map(|key| key.id)
    }

    /// A request comes. Returns whether it passes at once: no request waits, and there is room.
    pub fn join(&mut self, key: u64, id: u64, cost: u32, weight: u32) -> bool {
        let passes = self.waiting().next().is_none() && self.in_use() + cost <= self.total;
        let joined = self.key(key, weight);
        if passes {
            joined.in_use += cost;
        } else {
            joined.requests.push_back(Request { id, cost });
        }
        self.has_changed(key);
        passes
    }

    fn key(&mut self, id: u64, weight: u32) -> &mut Key {
        let index = self.keys.iter().position(|key| key.id == id);
        let index = index.unwrap_or_else(|| {
            let last = self.last.take_if(|last| last.id == id);
            let begins = last.unwrap_or_else(|| {
                self.begun += 1;
                Key {
                    id,
                    weight,
                    in_use: 0,
                    number: self.begun,
                    first: self.here.0 + 1,
                    saved: 0,
                    open: None,
                    requests: VecDeque::new(),
                }
            });
            self.keys.push(begins);
            self.keys.len() - 1
        });
        &mut self.keys[index]
    }

    /// A turn is over when its key cannot pay. A key that is not visited now keeps no more than one turn or its request needs.
    fn has_changed(&mut self, id: u64) {
        for key in self.keys.iter_mut().filter(|key| key.id == id) {
            if key.number == self.here.2 {
                key.open = (key.saved >= key.cost()).then_some(self.here);
            } else {
                key.saved = key.saved.min(key.cost().max(key.weight.into()));
                key.open = key.open.filter(|_| key.saved >= key.cost());
            }
        }
    }

    /// A request passes now, if one can.
    pub fn pass(&mut self) -> Option<u64> {
        let mut after = self.clone();
        let index = after.first()?;
        let served = &mut after.keys[index];
        let request = served.requests.pop_front()?;
        served.saved -= i64::from(request.cost);
        served.in_use += request.cost;
        let key = served.id;
        (after.served, after.last) = (Some(key), None);
        if after.in_use() > self.total {
            return None;
        }
        after.has_changed(key);
        *self = after;
        Some(request.id)
    }

    /// Visits keys until one of those that come first has an open turn.
    fn first(&mut self) -> Option<usize> {
        let is_any_below = self.waiting().any(|id| self.is_below(id));
        let comes_first = |key: &Key| self.is_below(key.id) == is_any_below;
        let of_first = |key: &Key| !key.requests.is_empty() && comes_first(key);
        let first: Vec<u64> = self
            .keys
            .iter()
            .filter(|key| of_first(key))
            .map(|key| key.id)
            .collect();
        if first.is_empty() {
            return None;
        }
        loop {
            let open = self.keys.iter().enumerate().filter_map(|(index, key)| {
                let is_first = first.contains(&key.id);
                key.open.filter(|_| is_first).map(|visit| (visit, index))
            });
            if let Some((_, index)) = open.min() {
                return Some(index);
            }
            self.visit_next();
        }
    }

    fn visit_next(&mut self) {
        let visits = self.keys.iter().flat_map(|key| {
            let rounds = [self.here.0, self.here.0 + 1].into_iter();
            let rounds = rounds.filter(|round| key.first <= *round);
            rounds.map(|round| (round, key.first < round, key.number))
        });
        let next = visits.filter(|visit| *visit > self.here).min();
        self.here = next.expect("each key is visited in the next round");
        let here = self.here;
        for key in self.keys.iter_mut().filter(|key| key.number == here.2) {
            if key.open.is_none() {
                key.saved += i64::from(key.weight);
                key.open = (key.saved >= key.cost()).then_some(here);
            }
        }
    }

    /// A request leaves.
    pub fn cancel(&mut self, key: u64, id: u64) {
        for key in &mut self.keys {
            key.requests.retain(|request| request.id != id);
        }
        self.has_changed(key);
        self.forget(None);
    }

    /// A key gives permits back.
    pub fn give_back(&mut self, id: u64, count: u32) {
        for key in self.keys.iter_mut().filter(|key| key.id == id) {
            key.in_use -= count;
        }
        self.has_changed(id);
        self.forget(self.served.filter(|served| *served == id));
    }

    /// A key that neither uses permits nor waits is forgotten, but for the one that was served last.
    fn forget(&mut self, last: Option<u64>) {
        let is_unused = |key: &Key| key.in_use == 0 && key.requests.is_empty();
        if let Some(index) = self.keys.iter().position(is_unused) {
            let unused = self.keys.remove(index);
            if last.is_some() {
                self.last = Some(unused);
            }
        }
    }

    /// The number of permits changes.
    pub fn resize(&mut self, total: u32) {
        self.total = total;
    }
}
