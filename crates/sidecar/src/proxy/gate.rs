use std::time::Duration;

use paceline::concurrency::{Adaptive, AdaptivePermit, FairPermits, Gradient, Outcome, Permit};
use paceline::shed::{CgroupCpu, CgroupError, Class, WorkerUtilization};

use super::limit::Limit;
use super::problem::Problem;
use crate::config::{Concurrency, Config, Shed};

/// What protects the upstream from all clients together: a bound on the requests under way, and a shedder. Both are off by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    bound: Option<Bound>,
    shedder: Option<WorkerUtilization>,
}

/// Clients divide it by their weights. `None`: all those without a share of their own.
#[derive(Clone, Debug)]
enum Bound {
    Fixed(FairPermits<Option<String>>),
    Adaptive(FairPermits<Option<String>, Adaptive<Gradient>>),
}

/// A request under way, until the body of its response ends.
#[derive(Debug, Default)]
pub(super) struct Admitted(Option<Held>);

#[derive(Debug)]
enum Held {
    /// Given back when it is dropped.
    Fixed {
        _permit: Permit,
    },
    Adaptive(AdaptivePermit<Gradient>),
}

/// How soon a client of a full or shedding sidecar may come back: it can pass as soon as another request ends.
const COME_BACK: Duration = Duration::from_secs(1);

impl Gate {
    /// # Errors
    ///
    /// If it is to shed, and the processor time of the cgroup cannot be read.
    pub(crate) fn new(config: &Config, limit: &Limit) -> Result<Self, CgroupError> {
        Ok(Self {
            bound: config.concurrency.map(|it| bound(it, limit)),
            shedder: config.shed.map(shedder).transpose()?,
        })
    }

    /// The gate for another configuration. What stays the same keeps its state.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn changed(
        &self,
        old: &Config,
        new: &Config,
        limit: &Limit,
    ) -> Result<Self, CgroupError> {
        let mut gate = self.clone();
        // First what can fail: the permits are shared with the gate of now.
        if old.shed != new.shed {
            gate.shedder = new.shed.map(shedder).transpose()?;
        }
        if old.concurrency != new.concurrency {
            match (&gate.bound, new.concurrency) {
                (Some(Bound::Fixed(permits)), Some(Concurrency::Fixed(number))) => {
                    permits.total().resize(number);
                }
                (_, concurrency) => gate.bound = concurrency.map(|it| bound(it, limit)),
            }
        }
        Ok(gate)
    }

    /// Lets a request of this client pass when it is its turn, or says why it does not.
    pub(super) async fn admit(
        &self,
        client: Option<String>,
        within: Duration,
    ) -> Result<Admitted, Problem> {
        if let Some(shedder) = &self.shedder
            && !shedder.admits(Class::Sheddable(0))
        {
            return Err(refusal("the service sheds load"));
        }
        let held = match &self.bound {
            None => return Ok(Admitted(None)),
            Some(Bound::Fixed(permits)) => {
                let permit = permits.at(client).acquire_within(within).await;
                permit.map(|permit| Held::Fixed { _permit: permit })
            }
            Some(Bound::Adaptive(permits)) => {
                let permit = permits.at(client).acquire_within(within).await;
                permit.map(Held::Adaptive)
            }
        };
        let held = held.map_err(|_| refusal("too many requests are under way"))?;
        Ok(Admitted(Some(held)))
    }
}

impl Admitted {
    /// The head of the response is there: that is the latency that counts, since a body can take as long as its reader likes.
    pub(super) fn answered(&mut self) {
        if let Some(Held::Adaptive(permit)) = &mut self.0 {
            let latency = permit.latency();
            permit.report(Outcome::Success { latency });
        }
    }

    /// The upstream did not answer in time.
    pub(super) fn overloaded(&mut self) {
        if let Some(Held::Adaptive(permit)) = &mut self.0 {
            permit.report(Outcome::Dropped);
        }
    }
}

fn bound(concurrency: Concurrency, limit: &Limit) -> Bound {
    let weights = limit.weights();
    match concurrency {
        Concurrency::Fixed(number) => Bound::Fixed(FairPermits::new(number).with_weights(weights)),
        Concurrency::Adaptive { initial, max } => {
            let gradient = Gradient::new(1, max).with_start(initial);
            let permits = FairPermits::adaptive(&Adaptive::new(gradient));
            Bound::Adaptive(permits.with_weights(weights))
        }
    }
}

fn shedder(shed: Shed) -> Result<WorkerUtilization, CgroupError> {
    let shedder = WorkerUtilization::new(CgroupCpu::open()?)
        .try_with_thresholds(shed.good, shed.bad)
        .expect("the configuration is checked")
        .try_with_delay(shed.delay)
        .expect("the configuration is checked")
        .try_with_ramp(shed.ramp)
        .expect("the configuration is checked");
    Ok(shedder)
}

pub(super) fn refusal(detail: &'static str) -> Problem {
    let problem = paceline_tower::Problem::reduced_capacity(detail);
    problem.with_wait(COME_BACK).into()
}
