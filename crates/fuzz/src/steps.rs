//! Operations on a policy, made from bytes: mostly requests, near the instants at which a decision changes.

use arbitrary::{Arbitrary, Result, Unstructured};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Ask {
        gap: Gap,
        cost: Cost,
    },
    Refund {
        cost: Cost,
    },
    Retune {
        to: u8,
    },
    /// At the instant at which the state settles.
    Settle {
        later: u8,
    },
    /// At any time, also in the past; on a copy.
    Elsewhen {
        at: u64,
        cost: u32,
        to: u8,
    },
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match bytes.arbitrary::<u8>()? % 32 {
            0..26 => Self::Ask {
                gap: bytes.arbitrary()?,
                cost: bytes.arbitrary()?,
            },
            26..28 => Self::Refund {
                cost: bytes.arbitrary()?,
            },
            28 => Self::Retune {
                to: bytes.arbitrary()?,
            },
            29..31 => Self::Settle {
                later: bytes.arbitrary()?,
            },
            _ => Self::Elsewhen {
                at: bytes.arbitrary()?,
                cost: bytes.arbitrary()?,
                to: bytes.arbitrary()?,
            },
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Gap {
    None,
    Nanos(u8),
    Much(u64),
    Grains(u8, i8),
    Periods(u8, i8),
    /// At the end of the last wait.
    Due(i8),
}

impl<'a> Arbitrary<'a> for Gap {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let (kind, much): (u8, u8) = bytes.arbitrary()?;
        let off = i8::try_from(much % 3).unwrap_or(0) - 1;
        Ok(match kind % 16 {
            0..4 => Self::None,
            4 => Self::Nanos(much),
            5..8 => Self::Grains(much / 3 % 6, off),
            8..10 => Self::Periods(much / 3 % 6, off),
            10..15 => Self::Due(off),
            _ => Self::Much(bytes.arbitrary::<u64>()? >> (much % 64)),
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    One,
    Some(u8),
    Any(u32),
    /// The most that can pass at once.
    Burst,
    More,
    Again,
}

impl<'a> Arbitrary<'a> for Cost {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let (kind, much): (u8, u8) = bytes.arbitrary()?;
        Ok(match kind % 16 {
            0..6 => Self::One,
            6..8 => Self::Some(much % 9),
            8..11 => Self::Again,
            11..13 => Self::Burst,
            13 => Self::More,
            14 => Self::Any(u32::MAX >> (much % 32)),
            _ => Self::Any(bytes.arbitrary()?),
        })
    }
}
