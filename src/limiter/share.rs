use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;
use core::time::Duration;

use crate::time::error::ConfigError;
use crate::time::or_panic;

/// The parts of a [`Share::FULL`].
const FULL: u16 = 10_000;

/// A share of the keys or requests, in steps of 0.01 %.
///
/// ```
/// use paceline::limiter::Share;
///
/// assert_eq!("0.25 %".parse(), Ok(Share::of_ten_thousand(25)));
/// assert_eq!(Share::percent(5).to_string(), "5%");
/// assert!(Share::NONE < Share::percent(100) && Share::percent(100) == Share::FULL);
/// ```
///
/// # Which keys
///
/// [`includes`](Self::includes) gives each key a fixed number from 0 to 9,999. A share of n ten-thousandths has the keys with the
/// numbers below n, so a larger share has all keys of a smaller one, and more.
///
/// The number is a hash that is written out in this crate: FNV-1a with 64 bits over what [`Hash`] feeds, then a finalizer. It does
/// not depend on the process, on the version of this crate or on the machine: integers are hashed in little-endian order, `usize`
/// and `isize` as 64 bits. (A slice of integers that are wider than a byte is the exception. `Hash` feeds it in the byte order of
/// the machine.) `String` and `&str` are the same key. A tuple or a struct is hashed field by field.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Share(u16);

impl Share {
    /// Every key.
    pub const FULL: Self = Self(FULL);

    /// No key.
    pub const NONE: Self = Self(0);

    /// A whole number of percent, from 0 to 100.
    ///
    /// # Panics
    ///
    /// If `percent` is more than 100; see [`try_percent`](Self::try_percent).
    #[must_use]
    #[track_caller]
    pub fn percent(percent: u32) -> Self {
        or_panic(Self::try_percent(percent))
    }

    /// [`percent`](Self::percent), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `percent` is more than 100.
    pub fn try_percent(percent: u32) -> Result<Self, ConfigError> {
        let share = Self::try_of_ten_thousand(percent.saturating_mul(100));
        share.map_err(|_| ConfigError::new(format!("a share is 0 to 100 percent, got {percent}")))
    }

    /// A number of ten-thousandths, from 0 to 10,000: 50 is 0.5 %.
    ///
    /// # Panics
    ///
    /// If `parts` is more than 10,000; see [`try_of_ten_thousand`](Self::try_of_ten_thousand).
    #[must_use]
    #[track_caller]
    pub fn of_ten_thousand(parts: u32) -> Self {
        or_panic(Self::try_of_ten_thousand(parts))
    }

    /// [`of_ten_thousand`](Self::of_ten_thousand), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If `parts` is more than 10,000.
    pub fn try_of_ten_thousand(parts: u32) -> Result<Self, ConfigError> {
        let share = u16::try_from(parts).ok().filter(|parts| *parts <= FULL);
        share
            .map(Self)
            .ok_or_else(|| ConfigError::new(format!("a share is 0 to 10000 of 10000, got {parts}")))
    }

    /// How many of ten thousand it is.
    #[must_use]
    pub const fn ten_thousandths(self) -> u32 {
        self.0 as u32
    }

    /// Whether this key is in the share.
    ///
    /// ```
    /// use paceline::limiter::Share;
    ///
    /// let users = ["ann", "bob", "eve"];
    /// let included = |share: Share| users.map(|user| share.includes(user));
    /// assert_eq!(included(Share::percent(30)), [false, true, false]);
    /// assert_eq!(included(Share::percent(50)), [false, true, true]);
    /// ```
    #[must_use]
    pub fn includes<K: Hash + ?Sized>(self, key: &K) -> bool {
        self.includes_point(point_of(key))
    }

    pub(super) const fn includes_point(self, point: u16) -> bool {
        point < self.0
    }
}

/// As it would be parsed: `5%`, `0.25%`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

impl FromStr for Share {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let share = parse(text).and_then(|parts| Self::try_of_ten_thousand(parts).ok());
        share.ok_or_else(|| {
            let right = "write 0% to 100%, with at most two decimals, as in 5% or 0.25%";
            ConfigError::new(format!("`{text}` is not a share: {right}"))
        })
    }
}

/// The ten-thousandths in a percentage.
fn parse(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
        return None;
    }
    let decimals = format!("{decimals:0<2}").parse::<u32>().ok()?;
    let whole = whole.parse::<u32>().ok()?;
    whole.checked_mul(100)?.checked_add(decimals)
}

/// The number of a key, below 10,000.
pub(super) fn point_of<K: Hash + ?Sized>(key: &K) -> u16 {
    let hash = hash_from(0xcbf2_9ce4_8422_2325, key);
    let point = (u128::from(hash) * u128::from(FULL)) >> 64;
    u16::try_from(point).unwrap_or(FULL)
}

/// Quick for the short keys that most limits have, where `SipHash` takes four times as long.
pub(super) fn hash_from<K: Hash + ?Sized>(seed: u64, key: &K) -> u64 {
    let mut hasher = Fnv1a(seed);
    key.hash(&mut hasher);
    // FNV changes the upper bits little where keys differ in their last bytes only.
    let hash = (hasher.0 ^ (hasher.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The nth of some times, evenly at random from zero to `most`. They are the same for the same seed.
pub(crate) fn random_up_to(most: Duration, seed: u64, n: u64) -> Duration {
    let share = u128::from(hash_from(seed, &n));
    let nanos = (most.as_nanos().saturating_add(1)).saturating_mul(share) >> 64;
    u64::try_from(nanos).map_or(most, Duration::from_nanos)
}

/// The number of the nth request without a key, below 10,000. Of any 10,000 requests in a row each has another, and those below a
/// number are spread evenly: the step is about 10,000 divided by the golden ratio.
pub(super) fn point_of_request(n: u64) -> u16 {
    let full = u64::from(FULL);
    u16::try_from(n % full * 6_181 % full).unwrap_or(FULL)
}

/// FNV-1a with 64 bits. Integers are the same bytes on every machine.
struct Fnv1a(u64);

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    // What is signed comes here too, without its sign.
    fn write_u16(&mut self, i: u16) {
        self.write(&i.to_le_bytes());
    }

    fn write_u32(&mut self, i: u32) {
        self.write(&i.to_le_bytes());
    }

    fn write_u64(&mut self, i: u64) {
        self.write(&i.to_le_bytes());
    }

    fn write_u128(&mut self, i: u128) {
        self.write(&i.to_le_bytes());
    }

    fn write_usize(&mut self, i: usize) {
        self.write_u64(i as u64);
    }

    fn write_isize(&mut self, i: isize) {
        self.write_i64(i as i64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_number_in_every_process_version_and_machine() {
        assert_eq!(point_of("ann"), 7_806);
        assert_eq!(point_of(&String::from("ann")), 7_806);
        assert_eq!(point_of(""), 1_083);
        assert_eq!(point_of("Grüße, 世界"), 9_718);
        assert_eq!(point_of(&0_u8), 7_227);
        assert_eq!(point_of(&1_u16), 849);
        assert_eq!(point_of(&42_u32), 7_213);
        assert_eq!(point_of(&-42_i32), 4_306);
        assert_eq!(point_of(&42_u64), 6_489);
        assert_eq!(point_of(&42_usize), 6_489);
        assert_eq!(point_of(&-42_isize), 1_927);
        assert_eq!(point_of(&u128::MAX), 7_246);
        assert_eq!(point_of(&("tenant", 7_u64)), 9_551);
        assert_eq!(point_of(&Some(7_u64)), 8_733);
        assert_eq!(point_of(&[1_u8, 2, 3][..]), 7_739);
    }

    /// The same values from a program that shares no code with this one.
    #[test]
    fn a_share_of_100_000_keys_has_the_keys_that_belong_to_it() {
        let numbers = |share: Share| (0..100_000_u64).filter(|n| share.includes(n)).count();
        let names = |share: Share| {
            let names = (0..100_000).map(|n| format!("user-{n}"));
            names.filter(|name| share.includes(name)).count()
        };
        let shares = [0, 1, 100, 500, 5_000, 9_999, 10_000].map(Share::of_ten_thousand);
        assert_eq!(
            shares.map(numbers),
            [0, 10, 1_038, 5_075, 49_897, 99_987, 100_000]
        );
        assert_eq!(
            shares.map(names),
            [0, 8, 943, 5_096, 50_281, 99_992, 100_000]
        );
    }

    #[test]
    fn a_larger_share_has_every_key_of_a_smaller_one() {
        let shares: Vec<_> = (0..=10_000).map(Share::of_ten_thousand).collect();
        for key in 0..100_u32 {
            let first = shares.partition_point(|share| !share.includes(&key));
            assert!(shares[..first].iter().all(|share| !share.includes(&key)));
            assert!(shares[first..].iter().all(|share| share.includes(&key)));
            assert_eq!(first, usize::from(point_of(&key)) + 1);
        }
    }

    #[test]
    fn of_any_10_000_requests_in_a_row_each_has_another_number() {
        for from in [0, 1, 4_321, u64::MAX / 2] {
            let mut points: Vec<_> = (from..from + 10_000).map(point_of_request).collect();
            points.sort_unstable();
            assert!(points.into_iter().eq(0..10_000));
        }
    }

    #[test]
    fn the_requests_in_a_share_are_spread_evenly() {
        let included: Vec<_> = (0..10_000).filter(|n| point_of_request(*n) < 100).collect();
        let gaps: std::collections::BTreeSet<_> =
            included.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(included.len(), 100);
        assert_eq!(gaps, [55, 144, 199].into());
    }

    #[test]
    fn reads_what_it_writes_and_what_people_write() {
        for parts in 0..=10_000 {
            let share = Share::of_ten_thousand(parts);
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        let texts = ["5%", " 5 % ", "5.0%", "05.00%", "0.25%", "0.2%", "100%"];
        let parts = texts.map(|text| text.parse::<Share>().map(Share::ten_thousandths));
        assert_eq!(parts, [500, 500, 500, 500, 25, 20, 10_000].map(Ok));
        assert_eq!(Share::of_ten_thousand(7).to_string(), "0.07%");
        assert_eq!(Share::of_ten_thousand(1_250).to_string(), "12.5%");
    }

    #[test]
    fn an_error_names_the_value_and_what_would_be_right() {
        let right = "write 0% to 100%, with at most two decimals, as in 5% or 0.25%";
        for text in [
            "",
            "%",
            "5",
            "-5%",
            "+5%",
            "101%",
            "100.01%",
            "0.123%",
            ".5%",
            "5.%",
            "1e1%",
            "5%%",
            "99999999999%",
        ] {
            let error = text.parse::<Share>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{text}` is not a share: {right}")
            );
        }
        let errors = [
            Share::try_percent(101),
            Share::try_percent(u32::MAX),
            Share::try_of_ten_thousand(10_001),
        ];
        assert_eq!(
            errors.map(|error| error.unwrap_err().to_string()),
            [
                "a share is 0 to 100 percent, got 101",
                "a share is 0 to 100 percent, got 4294967295",
                "a share is 0 to 10000 of 10000, got 10001",
            ]
        );
    }

    #[test]
    #[should_panic(expected = "a share is 0 to 100 percent, got 101")]
    fn more_than_all_is_a_callers_mistake() {
        let _ = Share::percent(101);
    }
}
