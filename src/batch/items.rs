/// Items on their way into one group.
///
/// The memory of a group is allocated once, as large as the group before; or it is that of a group that was given back.
#[derive(Debug)]
pub(crate) struct Items<T> {
    held: Vec<T>,
    /// Empty, with the memory of a group that is not needed any more.
    spare: Vec<T>,
    /// How many the group before had.
    usual: usize,
}

impl<T> Items<T> {
    pub(crate) const fn new() -> Self {
        Self {
            held: Vec::new(),
            spare: Vec::new(),
            usual: 0,
        }
    }

    pub(crate) fn push(&mut self, item: T) {
        if self.held.capacity() == 0 {
            self.held = core::mem::take(&mut self.spare);
            self.held.reserve(self.usual);
        }
        self.held.push(item);
    }

    pub(crate) fn take(&mut self) -> Vec<T> {
        self.usual = self.held.len();
        core::mem::take(&mut self.held)
    }

    /// Keeps the memory of a group for one to come; of two the larger. What is still in it is dropped.
    pub(crate) fn recycle(&mut self, mut group: Vec<T>) {
        group.clear();
        if group.capacity() > self.spare.capacity() {
            self.spare = group;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_of(items: &mut Items<u32>, count: u32) -> Vec<u32> {
        (0..count).for_each(|n| items.push(n));
        items.take()
    }

    #[test]
    fn a_group_is_allocated_once_as_large_as_the_one_before() {
        let mut items = Items::new();
        assert_eq!(group_of(&mut items, 1_000).len(), 1_000);
        items.push(0);
        assert_eq!(items.held.capacity(), 1_000);
        assert_eq!(group_of(&mut items, 999).capacity(), 1_000);
    }

    #[test]
    fn the_memory_of_a_group_that_is_given_back_is_used_again() {
        let mut items = Items::new();
        let group = group_of(&mut items, 100);
        let address = group.as_ptr();
        items.recycle(group);
        items.recycle(vec![1, 2, 3]);
        let again = group_of(&mut items, 100);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(again[..3], [0, 1, 2], "what was left in it is gone");
    }
}
