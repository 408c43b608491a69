//! Every public type can be named, and has the auto traits that its parts allow.
//!
//! The lint `unnameable_types` does not look into `pin_project!`, so this is written out.

use std::fmt::Debug;
use std::future::Ready;
use std::path::Path;
use std::task::{Context, Poll};

use futures::sink::Drain;
use futures::stream::{Iter, Pending, PollFn};
use paceline::batch::{Group, Window};
use paceline::concurrency::future::{
    AcquirePermit, AcquirePermitFrom, AcquirePermitWithin, AcquirePermits,
};
use paceline::concurrency::{
    Adaptive, AdaptivePermit, Admit, Aimd, Controller, FairPermits, Gradient, KeyedPermits,
    Outcome, Permit, Permits, PermitsAt,
};
use paceline::config::ConfigError;
use paceline::fair::{Claim, ClientTerms, Division, FairShare, GuaranteedShare, Newcomers, Rule};
use paceline::feedback::{Caps, Feedback, Ignored, LimitHeaders, QuotaUnit};
use paceline::io::{PaceRead, PaceReadExt, PaceWrite, PaceWriteExt};
use paceline::limiter::future::{Acquire, AcquireOne, AcquireWithin, ByHand, Lent, Obeying};
use paceline::limiter::{
    AcquireError, AsKey, ClientShare, Event, Exceeded, Fair, FairAt, FairCycle, FairQueue, Gate,
    Keyed, KeyedAt, Limiter, LimiterExt, Limits, Mode, Obey, Observed, Observer, Owned, PolicyExt,
    Quota, Reporter, Share, Shared, Stats, Status, Switch, SwitchExt, SwitchStats, Switched,
    TooCostly, Unfailing, WhenFull,
};
use paceline::policy::states::{
    FixedWindowState, IntervalState, RampState, SlidingCounterState, SlidingLogState,
    TokenBucketState,
};
use paceline::policy::{
    All, Decision, FixedWindow, Interval, Policy, Ramp, SlidingCounter, SlidingLog, TokenBucket,
    Unlimited,
};
use paceline::retry::{Attempts, Failure, GiveUp, Retry, RetryBudget};
use paceline::shed::{
    Class, ClassStats, FleetUsage, InUse, Sensor, UsagePermit, WorkerUtilization,
};
use paceline::sink::{
    EnforceSends, Exceeded as ExceededInSink, GroupSends, PaceSends, PaceSendsByCost, PaceSinkExt,
    SendError, ShedSends,
};
use paceline::stream::{
    Concurrent, Debounce, Enforce, Exceeded as ExceededInStream, GroupedWeightedWithin,
    GroupedWithin, Late, NoLimit, OnError, Pace, PaceBatches, PaceByCost, PaceByDeadline,
    PaceByKey, PaceByKeyAndCost, PaceByKeyError, PaceStreamExt, PaceTryStreamExt, Retried, Sample,
    Shed, ShedBy, ThrottleFirst, Tried, TryGroupedWeightedWithin, TryGroupedWithin, TryPace,
    TryPaceByKey,
};
use paceline::time::{Clock, OutOfRange, Rate, Resolution, Tick, Timer};
use testkit::source::public_types;

type Results = Pending<Result<u8, u8>>;
type Output = Drain<u8>;

fn free<T: Debug + Send + Sync + Unpin>() {}
fn movable<T: Send + Unpin>() {}
fn value<T: Copy + Eq + Debug + Send + Sync + Unpin + 'static>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn values_are_plain() {
    value::<Tick>();
    value::<Rate>();
    value::<Decision>();
    value::<Interval>();
    value::<Ramp>();
    value::<RampState>();
    value::<IntervalState>();
    value::<TokenBucket>();
    value::<TokenBucketState>();
    value::<Unlimited>();
    value::<SlidingLog>();
    value::<SlidingCounter>();
    value::<FixedWindow>();
    value::<FixedWindowState>();
    value::<All<(Interval, SlidingLog)>>();
    value::<Window>();
    value::<Caps>();
    value::<QuotaUnit>();
    value::<Mode>();
    value::<WhenFull<Interval>>();
    value::<Event>();
    value::<Stats>();
    value::<Quota>();
    value::<Status>();
    value::<Share>();
    value::<SwitchStats>();
    free::<Reporter>();
    value::<FairCycle>();
    value::<FairShare>();
    value::<GuaranteedShare>();
    value::<Newcomers>();
    value::<Division>();
    value::<Claim>();
    value::<ClientTerms>();
    value::<OnError>();
    value::<Attempts>();
    value::<Failure>();
    value::<GiveUp>();
    free::<Retry>();
    free::<RetryBudget>();
    value::<Outcome>();
    value::<Class>();
    value::<ClassStats>();
    value::<InUse>();
}

#[test]
fn errors_are_errors_whatever_is_in_them() {
    struct Secret;
    error::<OutOfRange>();
    error::<ConfigError>();
    error::<TooCostly<Secret>>();
    error::<AcquireError<OutOfRange>>();
    error::<AcquireError>();
    error::<Exceeded<Secret>>();
    error::<ExceededInStream<Secret>>();
    error::<SendError<OutOfRange, TooCostly<Secret>>>();
    error::<SendError<OutOfRange, ExceededInSink<Secret>>>();
    error::<NoLimit<Secret, OutOfRange>>();
    error::<PaceByKeyError<Secret, OutOfRange>>();
}

#[test]
fn everything_can_be_sent_shared_moved_and_printed_also_over_items_that_cannot_be_printed() {
    struct Secret;
    type Stream<T> = PollFn<fn(&mut Context<'_>) -> Poll<Option<T>>>;
    type Secrets = Stream<Secret>;
    type KeyOf = fn(&Secret) -> u8;
    type CostOf = fn(&Secret) -> u32;
    type SecretResults = Stream<Result<Secret, Secret>>;
    free::<Clock>();
    free::<SlidingLogState>();
    free::<SlidingCounterState>();
    free::<Resolution>();
    free::<Timer>();
    free::<Group<Secret>>();
    free::<Feedback>();
    free::<Ignored>();
    free::<LimitHeaders>();
    free::<Owned<TokenBucket>>();
    free::<Shared<TokenBucket>>();
    free::<Gate<Shared<Interval>>>();
    free::<Observed<Owned<Interval>, fn(Event)>>();
    free::<PaceRead<tokio::io::Empty, Owned<Interval>>>();
    free::<PaceWrite<tokio::io::Sink, Shared<Interval>>>();
    free::<Acquire<Shared<Interval>>>();
    free::<Acquire<Lent<'_, Interval>>>();
    free::<AcquireOne<Lent<'_, Interval>>>();
    free::<Switch>();
    free::<Switched<Shared<Interval>>>();
    free::<Keyed<String, Interval>>();
    free::<KeyedAt<String, Interval>>();
    free::<FairQueue<Secret, Interval>>();
    free::<Acquire<KeyedAt<String, Interval>>>();
    free::<AcquireWithin<KeyedAt<String, Interval>>>();
    free::<AcquireWithin<Shared<Interval>>>();
    free::<Pace<Secrets, Owned<Interval>>>();
    free::<TryPace<Secrets, Owned<Interval>>>();
    free::<PaceByCost<Secrets, Shared<Interval>, CostOf>>();
    free::<PaceByDeadline<Secrets, Shared<Interval>, CostOf>>();
    error::<Late<Secret>>();
    free::<Retried<Secrets, CostOf, Ready<Result<(), Secret>>, KeyOf>>();
    free::<Tried<Secret, Secret>>();
    free::<PaceByKey<Secrets, u8, Keyed<u8, Interval>, KeyOf>>();
    free::<TryPaceByKey<Secrets, u8, Keyed<u8, Interval>, KeyOf>>();
    free::<PaceByKeyAndCost<Secrets, u8, Keyed<u8, Interval>, KeyOf, CostOf>>();
    free::<PaceBatches<Secrets, Owned<Interval>>>();
    free::<GroupedWithin<Secrets>>();
    free::<GroupedWeightedWithin<Secrets, fn(&Secret) -> u64>>();
    free::<Enforce<Secrets, Owned<Interval>>>();
    free::<Shed<Secrets, Owned<Interval>>>();
    free::<ShedBy<Secrets, WorkerUtilization, fn(&Secret) -> Class>>();
    free::<TryGroupedWithin<SecretResults>>();
    free::<TryGroupedWeightedWithin<SecretResults, fn(&Secret) -> u64>>();
    free::<Debounce<Secrets>>();
    free::<Sample<Secrets>>();
    free::<ThrottleFirst<Secrets>>();
    free::<PaceSends<Output, Owned<Interval>, Secret>>();
    free::<PaceSendsByCost<Output, Shared<Interval>, CostOf, Secret>>();
    free::<EnforceSends<Output, Owned<Interval>, Secret>>();
    free::<ShedSends<Output, Owned<Interval>, Secret>>();
    free::<GroupSends<Output, Secret>>();
    free::<Concurrent<Secrets, fn(Secret) -> Ready<Secret>, Ready<Secret>>>();
    free::<Permits>();
    free::<Permit>();
    free::<AcquirePermit>();
    free::<AcquirePermits>();
    free::<AcquirePermitWithin<Permits>>();
    free::<Fair<String>>();
    free::<FairAt<String>>();
    free::<Fair<String, GuaranteedShare>>();
    free::<FairAt<String, GuaranteedShare>>();
    free::<Acquire<FairAt<String>>>();
    free::<AcquireWithin<FairAt<String>>>();
    free::<ClientShare<String>>();
    free::<FairPermits<Secret>>();
    free::<FairPermits<Secret, Adaptive<Aimd>>>();
    free::<KeyedPermits<Secret>>();
    free::<PermitsAt<Secret>>();
    free::<AcquirePermitFrom<PermitsAt<u8>>>();
    free::<AcquirePermitWithin<PermitsAt<Secret>>>();
    free::<FleetUsage>();
    free::<UsagePermit>();
    free::<WorkerUtilization>();
    free::<Adaptive<Secret>>();
    free::<AdaptivePermit<Gradient>>();
    free::<AcquirePermitFrom<Adaptive<Secret>>>();
    free::<AcquirePermitWithin<Adaptive<Aimd>>>();
    free::<Aimd>();
    free::<Gradient>();
}

#[test]
fn what_is_settled_can_be_sent_shared_and_printed() {
    use paceline::limiter::future::{Reserve, ReserveWithin};
    use paceline::limiter::{Reservation, Settle};

    fn settles<L: Settle>() {}
    settles::<Shared<Interval>>();
    settles::<KeyedAt<String, Interval>>();
    settles::<Switched<Observed<Shared<Interval>, fn(Event)>>>();
    free::<Reservation<Shared<Interval>>>();
    free::<Reserve<Shared<Interval>>>();
    free::<ReserveWithin<KeyedAt<String, Interval>>>();
}

#[test]
fn what_goes_around_limiters_can_be_sent_shared_and_printed() {
    use paceline::limiter::future::{Part, Together};
    use paceline::limiter::{AnyOf, Combined, DynLimiter, Line, LineError, Priority, WithTotal};

    // Those are sealed: a `Member` of them, and `Charge`, cannot be named.
    fn part<L: Part>() {}
    fn together<T: Together>() {}
    type Both = (KeyedAt<u8, Interval>, Shared<TokenBucket>);
    part::<Shared<Interval>>();
    part::<KeyedAt<String, Interval>>();
    together::<Both>();
    free::<Combined<Both>>();
    free::<Acquire<Combined<Both>>>();
    free::<Line<Combined<Both>>>();
    free::<Line<Keyed<u8, Interval>>>();
    free::<WithTotal<u8, Interval, TokenBucket>>();
    free::<AnyOf<Shared<Interval>>>();
    value::<LineError>();
    error::<LineError<OutOfRange>>();
    value::<Priority>();
    free::<DynLimiter>();
}

#[test]
fn what_a_configuration_has_can_be_sent_shared_and_printed() {
    use paceline::config::{Changes, LimitConfig, LimitsConfig, NamedLimits};
    use paceline::policy::states::{AlignedWindowState, AnyPolicyState};
    use paceline::policy::{AlignedWindow, Alignment, AnyKind, AnyLimit, AnyPolicy, PerRequest};
    use paceline::time::WallClock;

    value::<Alignment>();
    value::<AlignedWindowState>();
    value::<PerRequest<Interval>>();
    free::<AlignedWindow>();
    free::<AnyKind>();
    free::<AnyLimit>();
    free::<AnyPolicy>();
    free::<AnyPolicyState>();
    free::<WallClock>();
    free::<LimitConfig>();
    free::<LimitsConfig>();
    free::<NamedLimits>();
    free::<Changes>();
}

#[cfg(all(feature = "metrics", feature = "tracing"))]
#[test]
fn what_is_behind_features_too() {
    use paceline::limiter::{Metrics, TracingObserver};
    free::<Metrics>();
    value::<TracingObserver>();
}

#[test]
fn traits_can_be_named_and_limiters_made_objects() {
    fn policy<P: Policy + PolicyExt>() {}
    fn observer<O: Observer>() {}
    fn limits<L: Limits<u8>>() {}
    fn switches<L: SwitchExt>() {}
    fn keys<Q: AsKey<String> + ?Sized>() {}
    fn handles<L: LimiterExt>() {}
    fn obeys<L: Obey>() {}
    fn readers<R: PaceReadExt>() {}
    fn writers<W: PaceWriteExt>() {}
    fn sensors<S: Sensor>() {}
    fn streams<S: PaceStreamExt>() {}
    fn results<S: PaceTryStreamExt>() {}
    fn sinks<S: PaceSinkExt<u8>>() {}
    policy::<Interval>();
    observer::<fn(Event)>();
    limits::<FairPermits<u8>>();
    limits::<KeyedPermits<u8>>();
    switches::<Permits>();
    keys::<str>();
    limits::<Keyed<u8, Interval>>();
    limits::<FairQueue<u8, Interval>>();
    limits::<Switched<Keyed<u8, Interval>>>();
    handles::<Switched<KeyedAt<u8, Interval>>>();
    obeys::<Switched<KeyedAt<u8, Interval>>>();
    obeys::<Observed<Shared<Interval>, fn(Event)>>();
    movable::<Obeying<()>>();
    sensors::<fn() -> f64>();
    readers::<tokio::io::Empty>();
    writers::<tokio::io::Sink>();
    streams::<Iter<std::vec::IntoIter<u8>>>();
    results::<Results>();
    sinks::<Output>();
    let _: Box<dyn Limiter<Error = std::convert::Infallible>> = Box::new(Unlimited.owned());
    let _: Box<dyn Unfailing> = Box::new(Unlimited.owned());
    asked::<Shared<Interval>>();
    rule::<FairShare>();
    rule::<GuaranteedShare>();
    let _: Box<dyn Admit<Guard = Permit, Error = std::convert::Infallible>> =
        Box::new(Permits::new(1));
    let _: Box<dyn Controller> = Box::new(Aimd::new(1, 2));
}

fn rule<R: Rule>() {}

fn asked<L: ByHand>() {}

/// A type that is added has to be named above.
#[test]
fn every_public_type_is_named_above() {
    let here = include_str!("names.rs");
    let mut seen = 0;
    for (name, path) in public_types(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        seen += 1;
        let path = path.display();
        assert!(here.contains(&name), "{name} of {path} is not named here");
    }
    assert!(seen > 25, "{seen} types were found");
}

#[test]
fn rates_that_adapt_can_be_shared_and_moved() {
    use paceline::limiter::{
        AdaptiveRate, AdditiveIncrease, CallOutcome, HoldAndProbe, RateCall, RateRule,
    };

    free::<AdaptiveRate<HoldAndProbe>>();
    free::<HoldAndProbe>();
    free::<AdditiveIncrease>();
    free::<CallOutcome>();
    movable::<RateCall>();
    let rule = AdditiveIncrease::new(Rate::per_second(1), Rate::per_second(2));
    let _: Box<dyn RateRule> = Box::new(rule);
}

#[test]
fn sensors_can_be_shared_and_moved() {
    use paceline::shed::{BusyPermits, CgroupCpu, CgroupError, CgroupPressure, QueueDelay, Sensor};

    fn sensor<S: Sensor + Debug + Send + Sync + Unpin>() {}
    sensor::<BusyPermits>();
    sensor::<CgroupCpu>();
    sensor::<CgroupPressure>();
    sensor::<QueueDelay>();
    error::<CgroupError>();
}
