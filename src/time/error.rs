use core::error::Error;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// A constructor was given an argument outside of its range, such as a burst of 0.
///
/// Every `new` that panics on such an argument has a sibling `try_new` that returns this error instead, and so have
/// [`SlidingCounter::strict`](crate::policy::SlidingCounter::strict) and its kin (`try_strict`). Use the sibling for values that
/// come from a configuration file. The message is the one that the constructor panics with. For rates, and for the constructors
/// `from_rate`, [`Rate::try_new`](super::Rate::try_new) is the one that checks.
///
/// ```
/// use paceline::policy::TokenBucket;
/// use paceline::time::Rate;
///
/// let burst = 0; // from a configuration file
/// let error = TokenBucket::try_new(Rate::per_second(10), burst).unwrap_err();
/// assert_eq!(error.parameter(), "burst");
/// assert_eq!(error.to_string(), "a token bucket needs a burst of at least 1, got 0");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfRange {
    parameter: &'static str,
    message: &'static str,
    got: Option<Got>,
}

/// A value out of its range, or two values where one bounds the range of the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Got {
    /// The bits of two floats.
    Numbers([u64; 2]),
    Time(Duration),
    Times([Duration; 2]),
    Counts([u32; 2]),
    Number(i64),
    /// The bits of a float.
    Float(u64),
}

impl OutOfRange {
    /// `message` names the range and the value. It is a literal because a `const fn` cannot format numbers.
    #[must_use]
    pub const fn new(parameter: &'static str, message: &'static str) -> Self {
        let got = None;
        Self {
            parameter,
            message,
            got,
        }
    }

    /// Adds two numbers to the message, which does not name them.
    pub(crate) const fn got(mut self, first: f64, second: f64) -> Self {
        self.got = Some(Got::Numbers([first.to_bits(), second.to_bits()]));
        self
    }

    /// Adds a time to the message, which does not name it.
    pub(crate) const fn got_time(mut self, time: Duration) -> Self {
        self.got = Some(Got::Time(time));
        self
    }

    /// Adds two times to the message, which does not name them.
    pub(crate) const fn got_times(mut self, first: Duration, second: Duration) -> Self {
        self.got = Some(Got::Times([first, second]));
        self
    }

    /// Adds two counts to the message, which does not name them.
    pub(crate) const fn got_counts(mut self, first: u32, second: u32) -> Self {
        self.got = Some(Got::Counts([first, second]));
        self
    }

    /// Adds a number to the message, which does not name it.
    pub(crate) const fn got_number(mut self, number: i64) -> Self {
        self.got = Some(Got::Number(number));
        self
    }

    /// The same for a float.
    pub(crate) const fn got_float(mut self, number: f64) -> Self {
        self.got = Some(Got::Float(number.to_bits()));
        self
    }

    /// The name of the parameter, as in the signature of the constructor.
    #[must_use]
    pub const fn parameter(&self) -> &'static str {
        self.parameter
    }

    /// Panics with the message of the error. Whole numbers are all that it can format in a `const fn`.
    #[track_caller]
    const fn panic(self) -> ! {
        let (first, second, unit) = match self.got {
            Some(Got::Counts([first, second])) => (first as u128, Some(second as u128), ""),
            Some(Got::Times([first, second])) => (first.as_nanos(), Some(second.as_nanos()), " ns"),
            Some(Got::Time(time)) => (time.as_nanos(), None, " ns"),
            _ => panic!("{}", self.message),
        };
        let text = Text::EMPTY.with(self.message).with(", got ");
        let mut text = text.with_number(first).with(unit);
        if let Some(second) = second {
            text = text.with(" and ").with_number(second).with(unit);
        }
        panic!("{}", text.as_str())
    }

    /// The value, or a panic with the message of the error. This is how `new` is made of `try_new`, in a `const` too.
    #[track_caller]
    pub(crate) const fn or_panic<T: Copy>(result: Result<T, Self>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => error.panic(),
        }
    }
}

/// A short text that is put together in a `const fn`.
struct Text {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl Text {
    const MOST: usize = 256;

    const EMPTY: Self = Self {
        bytes: [0; Self::MOST],
        len: 0,
    };

    const fn with(mut self, text: &str) -> Self {
        let mut next = 0;
        while next < text.len() {
            self = self.with_byte(text.as_bytes()[next]);
            next += 1;
        }
        self
    }

    const fn with_number(mut self, number: u128) -> Self {
        if number > 9 {
            self = self.with_number(number / 10);
        }
        self.with_byte(b"0123456789"[(number % 10) as usize])
    }

    /// Adds it, if there is room.
    const fn with_byte(mut self, byte: u8) -> Self {
        if self.len < Self::MOST {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}

/// The value, or a panic with the message of the error, where it need not be `const`.
#[track_caller]
pub(crate) fn or_panic<T, E: fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)?;
        match self.got {
            None => Ok(()),
            Some(Got::Numbers(bits)) => {
                let [first, second] = bits.map(f64::from_bits);
                write!(f, ", got {first} and {second}")
            }
            Some(Got::Times([first, second])) => write!(f, ", got {first:?} and {second:?}"),
            Some(Got::Time(time)) => write!(f, ", got {time:?}"),
            Some(Got::Number(number)) => write!(f, ", got {number}"),
            Some(Got::Float(bits)) => write!(f, ", got {}", f64::from_bits(bits)),
            Some(Got::Counts([first, second])) => write!(f, ", got {first} and {second}"),
        }
    }
}

impl Error for OutOfRange {}

/// A text or a value from a configuration that cannot be used: of a policy, a rate, a mode, a share, a name, an address, a limit in
/// Redis. The message names the value and what would be right.
///
/// ```
/// use paceline::policy::AnyPolicy;
///
/// let error = "100/min brust 20".parse::<AnyPolicy>().unwrap_err();
/// assert_eq!(error.position(), Some(8));
/// let message = error.to_string();
/// assert!(message.starts_with("`100/min brust 20` is not a policy: `brust` at column 9 should be `burst`,"));
/// assert!(message.ends_with("did you mean `burst`?"));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    message: Arc<str>,
    position: Option<usize>,
}

impl ConfigError {
    /// An error with this message.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            position: None,
        }
    }

    pub(crate) fn at(self, position: usize) -> Self {
        Self {
            position: Some(position),
            ..self
        }
    }

    /// In the text of a policy, the byte at which the word at fault begins; the length of the text if a word is missing at its end. In a
    /// file [with variables](crate::config::with_variables), the byte of the `$`.
    #[must_use]
    pub const fn position(&self) -> Option<usize> {
        self.position
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {}

impl From<OutOfRange> for ConfigError {
    fn from(error: OutOfRange) -> Self {
        Self::new(error.to_string())
    }
}
