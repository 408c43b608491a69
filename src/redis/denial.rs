use core::time::Duration;

use crate::time::Tick;

use super::error::ServerError;

/// What costs no less than this one need not be asked for before then.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) until: Tick,
    pub(super) cost: u32,
    pub(super) by: By,
}

/// Who denied it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum By {
    Redis,
    /// The insurance, or since Redis is down.
    Alone,
    /// The server refuses to answer.
    Fault(ServerError),
}

impl Denial {
    /// How long nothing of that cost can pass.
    pub(super) fn wait(&self, now: Tick, cost: u32) -> Option<Duration> {
        (now < self.until && self.cost <= cost).then(|| self.until.since(now))
    }

    /// What the server said, for as long as it is not asked again.
    pub(super) fn fault(&self, now: Tick) -> Option<&ServerError> {
        match &self.by {
            By::Fault(fault) if now < self.until => Some(fault),
            By::Fault(_) | By::Redis | By::Alone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn what_costs_no_less_waits_until_then_and_what_is_cheaper_is_asked_for() {
        let (until, cost, by) = (at(30), 5, By::Redis);
        let denial = Denial { until, cost, by };
        let waits = [(10, 5), (10, 9), (10, 4), (29, 5), (30, 5), (31, 5)];
        assert_eq!(
            waits.map(|(now, cost)| denial.wait(at(now), cost)),
            [Some(20), Some(20), None, Some(1), None, None]
                .map(|wait| wait.map(Duration::from_nanos))
        );
        assert_eq!(denial.fault(at(10)), None);
    }

    #[test]
    fn a_fault_is_told_until_the_server_is_asked_again() {
        let fault = ServerError::new("WRONGTYPE".into());
        let by = By::Fault(fault.clone());
        let (until, cost) = (at(30), 0);
        let denial = Denial { until, cost, by };
        assert_eq!(denial.fault(at(29)), Some(&fault));
        assert_eq!(denial.fault(at(30)), None);
        assert_eq!(denial.wait(at(29), 1), Some(Duration::from_nanos(1)));
    }
}
