//! When the items of an input arrive.

use std::{iter, time::Duration};

/// The instants of the items 0, 1, 2 …, and of the end.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) items: Vec<Duration>,
    pub(super) end: Duration,
}

impl Schedule {
    /// The cases that matter, around delays of about `scale`, and some random ones.
    pub(super) fn cases(scale: Duration, random: u64) -> Vec<Self> {
        let burst = vec![Duration::ZERO; 7];
        let steady: Vec<_> = (0..5).map(|n| scale * n).collect();
        let drawn = [
            (Vec::new(), Duration::ZERO),
            (Vec::new(), scale * 5),
            (vec![Duration::ZERO], Duration::ZERO),
            (vec![scale * 2], scale * 2),
            (burst.clone(), Duration::ZERO),
            (burst.clone(), whole_ms(scale / 2)),
            (burst, scale * 20),
            (steady.clone(), scale * 4),
            (steady, whole_ms(scale * 9 / 2)),
        ];
        let drawn = drawn.map(|(items, end)| Self { items, end });
        let random = (0..random).map(|seed| Self::random(seed, scale));
        drawn.into_iter().chain(random).collect()
    }

    /// Up to nine items, often several in one instant.
    pub(super) fn random(seed: u64, scale: Duration) -> Self {
        let mut dice = Dice::new(seed);
        let mut at = Duration::ZERO;
        let count = dice.below(10);
        let items = iter::repeat_with(|| {
            at += dice.gap(scale);
            at
        });
        let items = items.take(count as usize).collect();
        Self {
            items,
            end: at + dice.gap(scale),
        }
    }

    /// Nine items at once.
    pub(super) fn burst() -> Self {
        Self {
            items: vec![Duration::ZERO; 9],
            end: Duration::ZERO,
        }
    }
}

/// Chance that is the same every time: a linear congruential generator.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Self { state: seed };
        // The first throws of small seeds are alike.
        for _ in 0..4 {
            dice.below(2);
        }
        dice
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a generator have short periods.
        let high = u32::try_from(self.state >> 33).unwrap_or_default();
        high % bound
    }

    /// Nothing, exactly `scale`, or up to three times that.
    pub(super) fn gap(&mut self, scale: Duration) -> Duration {
        match self.below(4) {
            0 | 1 => Duration::ZERO,
            2 => scale,
            _ => self.span(scale),
        }
    }

    /// Up to three times `scale`, in whole milliseconds.
    pub(super) fn span(&mut self, scale: Duration) -> Duration {
        whole_ms(scale * self.below(31) / 10)
    }
}

/// Tokio's timers count in milliseconds; between them, instants are not exact.
pub(super) fn whole_ms(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
