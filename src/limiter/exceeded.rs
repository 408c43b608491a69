use core::error::Error;
use core::fmt;
use core::time::Duration;

/// An item came sooner than its limit allows. It is given back, not lost.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Exceeded<T> {
    item: T,
    retry_in: Option<Duration>,
}

impl<T> Exceeded<T> {
    pub(crate) const fn new(item: T, retry_in: Option<Duration>) -> Self {
        Self { item, retry_in }
    }

    /// The item that was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// How long until it could have passed, if nobody takes its place; `None` if it never could.
    pub const fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T> fmt::Debug for Exceeded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exceeded")
            .field("retry_in", &self.retry_in)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Exceeded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_in {
            Some(delay) => write!(f, "rate limit exceeded, retry in {delay:?}"),
            None => f.write_str("rate limit exceeded, and always will be"),
        }
    }
}

impl<T> Error for Exceeded<T> {}
