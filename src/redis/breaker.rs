/// Whether calls are worth their while: a circuit breaker on how the last of them ended.
///
/// It opens after three failures in a row, or when half of the last sixteen failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    /// A bit for each of the last calls, the latest lowest: whether it failed.
    failed: u16,
}

const IN_A_ROW: u32 = 3;
const HALF: u32 = u16::BITS / 2;

impl Breaker {
    /// One more failure opens it again, a success does not: for a connection after an outage.
    pub(super) const fn half_open() -> Self {
        Self {
            failed: (1 << (IN_A_ROW - 1)) - 1,
        }
    }

    pub(super) const fn succeeded(&mut self) {
        self.failed <<= 1;
    }

    /// Whether that opens it.
    pub(super) const fn failed(&mut self) -> bool {
        self.failed = self.failed << 1 | 1;
        self.failed.trailing_ones() >= IN_A_ROW || self.failed.count_ones() >= HALF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_three_in_a_row() {
        let mut breaker = Breaker::default();
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        breaker.succeeded();
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        assert!(breaker.failed());
    }

    #[test]
    fn half_open_it_opens_at_the_next_failure() {
        let mut breaker = Breaker::half_open();
        assert!(breaker.failed());
        let mut breaker = Breaker::half_open();
        breaker.succeeded();
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        assert!(breaker.failed());
    }

    #[test]
    fn opens_when_half_of_them_fail() {
        let mut breaker = Breaker::default();
        for _ in 0..7 {
            breaker.succeeded();
            assert!(!breaker.failed());
        }
        breaker.succeeded();
        assert!(breaker.failed());
    }

    #[test]
    fn one_in_three_does_not_open_it() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            assert!(!breaker.failed());
            breaker.succeeded();
            breaker.succeeded();
        }
    }

    #[test]
    fn half_open_it_opens_at_the_first_failure_and_not_after_a_success() {
        assert!(Breaker::half_open().failed());
        let mut breaker = Breaker::half_open();
        breaker.succeeded();
        assert!(!breaker.failed());
    }
}
