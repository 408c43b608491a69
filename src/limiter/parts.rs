use core::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::Policy;

use super::desk::After;
use super::keys::{Keys, PolicyOf};
use super::room::RoomAfter;
use super::{Mode, Stats};

/// So many locks, so that tasks which ask for different keys seldom meet, and to go through the keys of one takes a
/// sixteenth of the time.
const PARTS: usize = 16;

/// The keys in parts, each behind a lock of its own.
///
/// Where there may be only so many keys, there is one part: those who wait for room stand in one line.
pub(super) struct Parts<K, P: Policy> {
    parts: Box<[Mutex<Keys<K, P>>]>,
    policy_of: PolicyOf<K, P>,
}

impl<K, P> Parts<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(policy_of: PolicyOf<K, P>) -> Self {
        Self::of(PARTS, usize::MAX, policy_of)
    }

    /// The same, empty, for at most so many keys.
    pub(super) fn bounded(&self, max: usize) -> Self {
        Self::of(1, max, Arc::clone(&self.policy_of))
    }

    fn of(parts: usize, max: usize, policy_of: PolicyOf<K, P>) -> Self {
        let part = || Mutex::new(Keys::new(Arc::clone(&policy_of), max));
        Self {
            parts: (0..parts).map(|_| part()).collect(),
            policy_of,
        }
    }

    /// Works on all parts, one after the other.
    pub(super) fn for_each(&self, mut work: impl FnMut(&mut Keys<K, P>, &mut RoomAfter)) {
        for part in &self.parts {
            work_on(lock(part), &mut work);
        }
    }

    /// For all parts at once, so that of two modes one is the last for every key. Says what is left to do for each key for
    /// which somebody waits.
    pub(super) fn set_mode(&self, mode: Mode) -> (Vec<After>, Vec<RoomAfter>) {
        let mut parts: Vec<_> = self.parts.iter().map(lock).collect();
        let mut for_room = Vec::new();
        let for_keys = parts.iter_mut().flat_map(|part| {
            let mut after = RoomAfter::default();
            let afters = part.set_mode(mode, &mut after);
            for_room.push(after);
            afters
        });
        let for_keys = for_keys.collect();
        (for_keys, for_room)
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| lock(part).len()).sum()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::new();
        self.parts
            .iter()
            .for_each(|part| stats.add(lock(part).stats()));
        stats
    }

    /// The part that the key is in.
    pub(super) fn lock(&self, key: &K) -> MutexGuard<'_, Keys<K, P>> {
        lock(&self.parts[self.index_of(key)])
    }

    fn index_of(&self, key: &K) -> usize {
        if self.parts.len() == 1 {
            return 0;
        }
        let mut spread = Spread::default();
        key.hash(&mut spread);
        spread.index() % self.parts.len()
    }
}

fn lock<K, P: Policy>(part: &Mutex<Keys<K, P>>) -> MutexGuard<'_, Keys<K, P>> {
    // As in a shared limit: should a policy panic, the state is as it left it.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Under the lock, wakers are cloned and the policy is asked, but nobody is woken.
pub(super) fn work_on<K, P: Policy, T>(
    mut keys: MutexGuard<'_, Keys<K, P>>,
    work: impl FnOnce(&mut Keys<K, P>, &mut RoomAfter) -> T,
) -> T {
    let mut after = RoomAfter::default();
    let done = work(&mut keys, &mut after);
    drop(keys);
    after.run();
    done
}

/// Which part a key belongs to: by multiplication, a word at a time.
///
/// It can be foreseen, and need not be hard to foresee: who fills one part on purpose gains a queue at its lock. Inside a part
/// keys are hashed with a secret.
#[derive(Default)]
struct Spread(u64);

impl Spread {
    /// The upper bits are those that all bits of the key have a say in.
    fn index(&self) -> usize {
        usize::from((self.0 >> 48) as u16)
    }
}

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_of(key: impl Hash) -> usize {
        let mut spread = Spread::default();
        key.hash(&mut spread);
        spread.index() % PARTS
    }

    fn assert_even(indices: impl Iterator<Item = usize>) {
        let mut counts = [0; PARTS];
        indices.for_each(|index| counts[index] += 1);
        assert!(
            counts.iter().all(|count| (700..1_300).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn keys_of_every_kind_are_spread_evenly() {
        let count = 1_000 * PARTS as u64;
        assert_even((0..count).map(index_of));
        assert_even((0..count).map(|n| index_of(n << 20)));
        assert_even((0..count).map(|n| index_of(u32::try_from(n).unwrap())));
        assert_even((0..count).map(|n| index_of(format!("user {n}"))));
        assert_even(
            (0..count).map(|n| index_of((format!("10.0.{}.{}", n / 256, n % 256), 443_u16))),
        );
    }
}
