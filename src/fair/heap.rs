/// A binary heap whose first values can be read in order. The smallest value is the first.
#[derive(Clone, Debug)]
pub(super) struct Heap<T>(Vec<T>);

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Ord> Heap<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<T> {
        self.0.first().copied()
    }

    /// The values in order. The first ones cost little.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        // One of them is next.
        let mut nodes = Vec::with_capacity(32);
        nodes.extend(self.first().map(|first| (first, 0)));
        core::iter::from_fn(move || {
            let (mut next, mut least) = (0, nodes.first()?.0);
            for (node, (value, _)) in nodes.iter().enumerate() {
                if *value < least {
                    (next, least) = (node, *value);
                }
            }
            let (value, at) = nodes.swap_remove(next);
            for below in [2 * at + 1, 2 * at + 2] {
                nodes.extend(self.0.get(below).map(|value| (*value, below)));
            }
            Some(value)
        })
    }

    pub(super) fn push(&mut self, value: T) {
        self.0.push(value);
        self.rise(self.0.len() - 1, value);
    }

    /// Removes the first value, and puts another one in if there is one.
    pub(super) fn replace_first(&mut self, value: Option<T>) {
        let Some(value) = value.or_else(|| self.0.pop()) else {
            return;
        };
        if self.0.is_empty() {
            return;
        }
        // To the bottom at once, since most values belong near it.
        let mut at = 0;
        while let Some(below) = self.least_below(at) {
            self.0[at] = self.0[below];
            at = below;
        }
        self.rise(at, value);
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
        // In order they are a heap.
        self.0.sort_unstable();
    }

    /// Puts a value where it belongs, at this node or above.
    fn rise(&mut self, mut at: usize, value: T) {
        while at > 0 && value < self.0[(at - 1) / 2] {
            self.0[at] = self.0[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        self.0[at] = value;
    }

    fn least_below(&self, at: usize) -> Option<usize> {
        let left = 2 * at + 1;
        match self.0.get(left..left + 2) {
            Some(pair) => Some(left + usize::from(pair[1] < pair[0])),
            None => (left < self.0.len()).then_some(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_leave_in_order_whatever_is_done() {
        let (mut heap, mut naive, mut random) = (Heap::default(), Vec::new(), 1_u64);
        for step in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let value = random % 1_000;
            match step % 7 {
                0..=3 => {
                    heap.push(value);
                    naive.push(value);
                }
                4 | 5 => {
                    let other = (step % 7 == 4).then_some(value);
                    heap.replace_first(other);
                    naive.drain(..naive.len().min(1));
                    naive.extend(other);
                }
                _ => {
                    heap.retain(|kept| kept % 5 != value % 5);
                    naive.retain(|kept| kept % 5 != value % 5);
                }
            }
            naive.sort_unstable();
            assert_eq!(
                (heap.first(), heap.len()),
                (naive.first().copied(), naive.len())
            );
            assert!(heap.iter().eq(naive.iter().copied()));
        }
    }
}
