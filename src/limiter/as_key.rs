use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;

/// A key, or a borrowed form of it, such as `str` for keys of type `String`. Implemented for every `Q` with `K: Borrow<Q>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key, and no borrowed form of a key, of type `{K}`",
    label = "expected a key",
    note = "a key is asked by reference: a `String` also by a `&str`, so a limit by text is `keyed::<String>()`"
)]
pub trait AsKey<K>: Hash {
    /// The key, to be kept.
    fn to_key(&self) -> K;

    /// The key in the map and its value.
    #[doc(hidden)]
    fn find_in<'a, V>(&self, map: &'a HashMap<K, V>) -> Option<(&'a K, &'a V)>;

    /// Whether it is this key.
    #[doc(hidden)]
    fn is(&self, key: &K) -> bool;
}

#[diagnostic::do_not_recommend]
impl<K: Hash + Eq + Borrow<Q>, Q: Hash + Eq + ToOwned<Owned = K> + ?Sized> AsKey<K> for Q {
    fn to_key(&self) -> K {
        self.to_owned()
    }

    #[inline]
    fn find_in<'a, V>(&self, map: &'a HashMap<K, V>) -> Option<(&'a K, &'a V)> {
        map.get_key_value(self)
    }

    fn is(&self, key: &K) -> bool {
        key.borrow() == self
    }
}
