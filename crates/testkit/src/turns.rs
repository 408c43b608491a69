//! Deficit round robin as a plain loop: who has the next turn in a queue in which keys take turns by weight.

use std::collections::VecDeque;

/// A key that waits.
#[derive(Debug)]
struct Key {
    id: u64,
    /// How many keys have begun to wait before.
    number: u64,
    /// The first round in which it has a turn.
    first: u64,
    weight: u32,
    /// That of its newest request.
    next_weight: u32,
    saved: i64,
    requests: VecDeque<Request>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    cost: u32,
}

/// The requests of all keys.
///
/// Keys are visited in rounds. At each visit a key gets its weight, and passes requests as long as it can pay for the first one. A key
/// that begins to wait is visited first in the next round, and then in the order in which keys have begun. The weight of its newest request holds
/// as soon as its first request is another one. One without requests is forgotten,
/// but for the one that passed last, until another passes. A key that is not being visited, and whose first request is cancelled, keeps at
/// most one turn or what its next request costs.
#[derive(Debug, Default)]
pub struct Turns {
    keys: Vec<Key>,
    round: u64,
    has_begun: bool,
    number: u64,
    begun: u64,
    last: Option<Key>,
}

impl Turns {
    /// A request is queued.
    pub fn join(&mut self, key: u64, id: u64, cost: u32, weight: u32) {
        let index = self.keys.iter().position(|other| other.id == key);
        let index = index.unwrap_or_else(|| {
            let last = self.last.take_if(|last| last.id == key);
            let begins = last.unwrap_or_else(|| {
                self.begun += 1;
                Key {
                    id: key,
                    number: self.begun,
                    first: self.round + 1,
                    weight,
                    next_weight: weight,
                    saved: 0,
                    requests: VecDeque::new(),
                }
            });
            self.keys.push(begins);
            self.keys.len() - 1
        });
        let joined = &mut self.keys[index];
        if joined.requests.is_empty() {
            joined.weight = weight;
        }
        joined.next_weight = weight;
        joined.requests.push_back(Request { id, cost });
    }

    /// Goes from key to key until one can pay for a request, which passes.
    pub fn pass(&mut self) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        loop {
            let served = self.keys.iter().position(|key| {
                let is_visited = key.number == self.number;
                is_visited && key.saved >= i64::from(key.requests[0].cost)
            });
            if let Some(index) = served {
                let key = &mut self.keys[index];
                let passed = key.requests.pop_front()?;
                key.saved -= i64::from(passed.cost);
                self.last = None;
                key.weight = key.next_weight;
                if key.requests.is_empty() {
                    self.last = Some(self.keys.remove(index));
                }
                return Some(passed.id);
            }
            self.visit_next();
        }
    }

    fn visit_next(&mut self) {
        let here = (self.round, self.has_begun, self.number);
        let visits = self.keys.iter().flat_map(|key| {
            let rounds = [self.round, self.round + 1].into_iter();
            let rounds = rounds.filter(|round| key.first <= *round);
            rounds.map(|round| (round, key.first < round, key.number))
        });
        let next = visits.filter(|visit| *visit > here).min();
        let next = next.expect("each key is visited in the next round");
        (self.round, self.has_begun, self.number) = next;
        let visited = self.keys.iter_mut().filter(|key| key.number == next.2);
        visited.for_each(|key| key.saved += i64::from(key.weight));
    }

    /// A queued request leaves.
    pub fn cancel(&mut self, key: u64, id: u64) {
        let Some(index) = self.keys.iter().position(|other| other.id == key) else {
            return;
        };
        let key = &mut self.keys[index];
        let was_first = key.requests[0].id == id;
        key.requests.retain(|request| request.id != id);
        match key.requests.front() {
            None => drop(self.keys.remove(index)),
            Some(next) if was_first => {
                if key.number != self.number {
                    key.saved = key.saved.min(next.cost.max(key.next_weight).into());
                }
                key.weight = key.next_weight;
            }
            Some(_) => {}
        }
    }
}
