use std::sync::Arc;

use paceline::policy::Quota;

/// The parameters of one limit, as its script takes them.
#[expect(
    unnameable_types,
    reason = "only the sealed part of `RedisPolicy` has it"
)]
#[derive(Clone, Debug)]
pub struct ScriptParams {
    pub(super) policy: u8,
    /// The parameters, and zeros.
    pub(super) numbers: [u64; 4],
    /// The largest cost that can pass.
    pub(super) capacity: u32,
    /// After how many microseconds the state equals a fresh one again, if no more than the limit was spent.
    pub(super) settles_in: u64,
    /// How many microseconds after everything was spent the whole limit may pass again: a window, or the time to fill a bucket.
    pub(super) refills_in: u64,
    /// It follows from the others.
    pub(super) quota: Option<Quota>,
}

impl PartialEq for ScriptParams {
    fn eq(&self, other: &Self) -> bool {
        self.to_numbers() == other.to_numbers()
    }
}

/// One for each limit of an `All`.
pub(super) type Params = Arc<[ScriptParams]>;

/// The keys of a limit and the parameters of its scripts: one of each for every limit of an `All`.
#[derive(Clone, Debug)]
pub(super) struct RedisLimit {
    pub(super) keys: Arc<[String]>,
    pub(super) params: Params,
}

/// Added to the number of a policy that counts each request as 1.
pub(super) const PER_REQUEST: u8 = 128;

/// The policies, by their numbers in the scripts.
pub(super) const TOKEN_BUCKET: u8 = 1;
pub(super) const INTERVAL: u8 = 2;
pub(super) const FIXED_WINDOW: u8 = 3;
pub(super) const SLIDING_LOG: u8 = 4;
pub(super) const SLIDING_COUNTER: u8 = 5;
/// A bucket with reserves, which is no policy in memory.
pub(super) const RESERVED: u8 = 6;

impl ScriptParams {
    /// The end of the key: no policy finds the state of another, and no version finds a format that it does not read.
    pub(super) fn key_suffix(&self) -> String {
        let unit = if self.counts_requests() {
            "requests:"
        } else {
            ""
        };
        let policy = match self.policy % PER_REQUEST {
            TOKEN_BUCKET => "token_bucket",
            INTERVAL => "interval",
            FIXED_WINDOW => "fixed_window",
            SLIDING_LOG => "sliding_log",
            RESERVED => "reserved",
            _ => "sliding_counter",
        };
        format!("{unit}{policy}:2")
    }

    /// As processes exchange them.
    pub(super) fn to_numbers(&self) -> [u64; 8] {
        let ([a, b, c, d], capacity) = (self.numbers, self.capacity.into());
        let policy = self.policy.into();
        [
            policy,
            a,
            b,
            c,
            d,
            capacity,
            self.settles_in,
            self.refills_in,
        ]
    }

    pub(super) fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let [policy, a, b, c, d, capacity, settles_in, refills_in] = *numbers else {
            return None;
        };
        Some(Self {
            policy: policy.try_into().ok()?,
            numbers: [a, b, c, d],
            capacity: capacity.try_into().ok()?,
            settles_in,
            refills_in,
            // The policy that is made of these parameters knows its own.
            quota: None,
        })
    }

    pub(super) const fn counts_requests(&self) -> bool {
        self.policy >= PER_REQUEST
    }

    /// The first of the parameters, if it is of that policy.
    pub(super) fn take(params: &mut &[Self], policy: u8) -> Option<[u64; 4]> {
        let (first, rest) = params.split_first()?;
        *params = rest;
        (first.policy == policy).then_some(first.numbers)
    }

    /// Whether the first part of the script can decide.
    pub(super) const fn is_simple(&self) -> bool {
        !self.counts_requests() && self.policy != RESERVED
    }

    /// Whether more can be spent than the limit has at once.
    pub(super) fn may_owe(&self) -> bool {
        match self.numbers {
            [_, _, burst, _] if self.policy == TOKEN_BUCKET => burst < self.capacity.into(),
            _ => self.policy % PER_REQUEST == INTERVAL,
        }
    }
}
