use core::fmt;

/// A header that was not understood, and why.
///
/// ```
/// use paceline::feedback::Feedback;
/// use std::time::Duration;
///
/// let feedback = Feedback::parse([("Retry-After", "-5")], Duration::ZERO);
/// assert_eq!(
///     feedback.ignored()[0].to_string(),
///     "`retry-after` was ignored: it must be a number of seconds, a duration or a date, got `-5`"
/// );
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ignored {
    header: String,
    found: String,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    Text,
    Wait,
    Date,
    Count,
    Policy,
    Usage,
}

impl Ignored {
    pub(super) fn new(header: &str, found: &[u8], expected: Expected) -> Self {
        let found = String::from_utf8_lossy(found);
        let (header, found) = (header.chars(), found.chars());
        Self {
            header: header.take(MOST_CHARS).collect(),
            found: found.take(MOST_CHARS).collect(),
            expected,
        }
    }

    /// Its name, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.header
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = match self.expected {
            Expected::Text => "text",
            Expected::Wait => "a number of seconds, a duration or a date",
            Expected::Date => "an HTTP date",
            Expected::Count => "a number of requests",
            Expected::Policy => "a quota of at least 1 in a window of at least 1 ns",
            Expected::Usage => "used/quota, as in 32/40",
        };
        let found = self.found.escape_debug();
        write!(
            f,
            "`{}` was ignored: it must be {expected}, got `{found}`",
            self.header
        )
    }
}

/// What comes from outside is shown no further than this.
const MOST_CHARS: usize = 64;
