//! What leaves a stream adapter, arrives in a sink, or is held: an item or several.

use std::convert::Infallible;

/// An output item of a stream, an input item of a sink, or what an adapter holds.
pub trait Parcel {
    /// The input items in it.
    fn into_items(self) -> Vec<u32>;
}

impl Parcel for u32 {
    fn into_items(self) -> Vec<u32> {
        vec![self]
    }
}

impl Parcel for Infallible {
    fn into_items(self) -> Vec<u32> {
        match self {}
    }
}

impl<T: Parcel> Parcel for Vec<T> {
    fn into_items(self) -> Vec<u32> {
        self.into_iter().flat_map(T::into_items).collect()
    }
}

impl<T: Parcel> Parcel for Option<T> {
    fn into_items(self) -> Vec<u32> {
        self.map(T::into_items).unwrap_or_default()
    }
}

/// The item is in it either way.
impl<T: Parcel, E: Parcel> Parcel for Result<T, E> {
    fn into_items(self) -> Vec<u32> {
        self.map_or_else(E::into_items, T::into_items)
    }
}
