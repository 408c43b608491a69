//! Keys that take turns by weight in a queue, and may divide permits, as a plain list: who has the next turn.

use std::collections::VecDeque;

/// A key that waits or uses permits.
#[derive(Debug)]
struct Key {
    id: u64,
    weight: u32,
    /// What it has had for its weight.
    account: u64,
    in_use: u32,
    requests: VecDeque<Request>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    cost: u32,
}

/// One permit for the weight 1. Weights up to 10 divide it.
const PERMIT: u64 = 2_520 << 32;

impl Key {
    /// Its account once its first request has paid, and that request.
    fn turn(&self) -> Option<(u64, u64)> {
        let first = self.requests.front()?;
        let paid = u64::from(first.cost) * PERMIT / u64::from(self.weight);
        Some((self.account + paid, first.id))
    }
}

/// The requests of all keys.
///
/// The next turn is that of the key with the smallest account after its first request; of two, one that was not served last,
/// or else the one whose request is older. A key
/// begins at the account of the key that was served last, and one that is served has at least that. Where keys divide permits, those below their
/// share come first.
#[derive(Debug, Default)]
pub struct Turns {
    keys: Vec<Key>,
    account: u64,
    /// How many permits the keys divide.
    total: Option<u32>,
}

impl Turns {
    /// Keys divide so many permits.
    #[must_use]
    pub fn dividing(total: u32) -> Self {
        Self {
            total: Some(total),
            ..Self::default()
        }
    }

    /// How many permits are in use.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.keys.iter().map(|key| key.in_use).sum()
    }

    /// Whether this key uses less than its share.
    #[must_use]
    pub fn is_below(&self, id: u64) -> bool {
        let weights: u64 = self.keys.iter().map(|key| u64::from(key.weight)).sum();
        let total = u64::from(self.total.unwrap_or_default());
        self.keys.iter().any(|key| {
            key.id == id && u64::from(key.in_use) * weights < total * u64::from(key.weight)
        })
    }

    /// The keys with requests.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        let waiting = self.keys.iter().filter(|key| !key.requests.is_empty());
        waiting.map(|key| key.id)
    }

    /// A request takes its permits at once, if no other waits and there is room.
    pub fn take(&mut self, key: u64, cost: u32, weight: u32) -> bool {
        let has_room = self.has_room_for(cost) && self.waiting().next().is_none();
        if has_room {
            self.key(key, weight).in_use += cost;
        }
        has_room
    }

    /// A request is queued.
    pub fn join(&mut self, key: u64, id: u64, cost: u32, weight: u32) {
        let account = self.account;
        let joined = self.key(key, weight);
        if joined.requests.is_empty() {
            joined.account = joined.account.max(account);
        }
        joined.requests.push_back(Request { id, cost });
    }

    fn key(&mut self, id: u64, weight: u32) -> &mut Key {
        let index = self.keys.iter().position(|key| key.id == id);
        let index = index.unwrap_or(self.keys.len());
        if index == self.keys.len() {
            self.keys.push(Key {
                id,
                weight,
                account: 0,
                in_use: 0,
                requests: VecDeque::new(),
            });
        }
        self.keys[index].weight = weight;
        &mut self.keys[index]
    }

    fn has_room_for(&self, cost: u32) -> bool {
        self.total.is_none_or(|total| self.in_use() + cost <= total)
    }

    /// The next request passes, if it can.
    pub fn pass(&mut self) -> Option<u64> {
        let keys = self
            .keys
            .iter()
            .filter_map(|key| Some((key.turn()?, key.id)));
        let (turn, id) = keys.min_by_key(|(turn, id)| (!self.is_below(*id), *turn))?;
        let index = self.keys.iter().position(|key| key.id == id)?;
        let request = *self.keys[index].requests.front()?;
        if !self.has_room_for(request.cost) {
            return None;
        }
        self.account = self.account.max(turn.0);
        let key = &mut self.keys[index];
        key.requests.pop_front();
        // Of equal ones, another has the next turn.
        key.account = self.account + u64::from(!key.requests.is_empty());
        key.in_use += self.total.map_or(0, |_| request.cost);
        self.forget();
        Some(request.id)
    }

    /// A queued request leaves.
    pub fn cancel(&mut self, id: u64) {
        for key in &mut self.keys {
            key.requests.retain(|request| request.id != id);
        }
        self.forget();
    }

    /// A key gives permits back.
    pub fn give_back(&mut self, id: u64, count: u32) {
        for key in self.keys.iter_mut().filter(|key| key.id == id) {
            key.in_use -= count;
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.keys
            .retain(|key| key.in_use > 0 || !key.requests.is_empty());
    }

    /// The number of permits changes.
    pub fn resize(&mut self, total: u32) {
        self.total = Some(total);
    }
}
