use core::error::Error;
use core::fmt;

/// Why an item was not sent: the inner sink failed, or the item was refused and is in here.
///
/// After a refusal the sink goes on as before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "either the inner sink was asked or the item was refused; callers should match"
)]
pub enum SendError<E, R> {
    /// The inner sink failed, for reasons of its own.
    Inner(E),
    /// The limit refused the item; this gives it back.
    Refused(R),
}

impl<E, R: fmt::Display> fmt::Display for SendError<E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(_) => f.write_str("the inner sink failed"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl<E, R> Error for SendError<E, R>
where
    E: Error + 'static,
    R: Error,
{
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Refused(refused) => refused.source(),
        }
    }
}
