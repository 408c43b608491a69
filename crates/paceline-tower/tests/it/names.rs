//! Every public type can be named, and has the auto traits that its parts allow.

use std::fmt::Debug;
use std::future::Ready;
use std::time::Duration;

use paceline::concurrency::{Adaptive, AdaptivePermit, Aimd, Permits, PermitsAt};
use paceline::limiter::{KeyedAt, PolicyExt, Shared, Switch, SwitchExt, Switched};
use paceline::policy::Interval;
use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use paceline_tower::future::{
    AdaptFuture, Adapting, Admitting, AtClass, ByStatus, Charges, Classified, Classify,
    ConcurrencyFuture, Enforcing, FeedbackFuture, FeedbackService, Hold, LimitedFuture, Pacing,
    ReportOutcome, Reports, Respond, Shedding, Terms, Waits,
};
use paceline_tower::{
    AdaptiveLayer, Answer, Answers, AnswersWithBody, AsError, AsResponse, BadKey, ClientIp,
    ClientKey, ConcurrencyLayer, EnforceLayer, Error, Failures, FeedbackLayer, For, Held,
    LimitLayer, Limited, OnFailure, OnMissingKey, PaceLayer, Problem, ProblemFormat, Proxies,
    ProxyHeader, Refusal, ShedLayer, UntilBody, UntilResponse,
};

fn free<T: Send + Sync + Unpin>() {}
fn movable<T: Send + Unpin>() {}
fn shown<T: Debug>() {}
fn value<T: Copy + Eq + Debug + Send + Sync + Unpin + 'static>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn layers_and_services_can_be_shared_and_moved() {
    type One = For<u8, Shared<Interval>>;
    // A request need be neither sent nor shared for its layer to be.
    type Each = For<*const u8, KeyedAt<u8, Interval>>;
    type Inner = tower::util::ServiceFn<fn(u8) -> Ready<Result<u8, ()>>>;
    type Answered = AsResponse<fn(&http::request::Parts, &Refusal) -> http::Response<u8>>;
    type Many = For<u8, Permits>;
    type Permit = For<u8, PermitsAt<u8>>;
    type Following = For<u8, Adaptive<Aimd>>;
    fn answer<A: Answer<u8>>() {}
    fn answer_text<A: Answer<String>>() {}
    fn hold<H: Hold<u8, ()>>() {}
    fn respond<A: Respond<u8, u8, u8>>() {}
    fn terms<T: Terms<Request = u8>>() {}
    fn waits<K: Waits>() {}
    fn charges<K: Charges>() {}
    fn reports<G: ReportOutcome>() {}
    fn told<T: Reports<(), (), ()>>() {}
    fn classify<C: Classify<http::Response<u8>, u8>>() {}
    answer::<fn(&http::request::Parts, &Refusal) -> http::Response<u8>>();
    answer_text::<Answers>();
    hold::<UntilResponse>();
    respond::<AsError>();
    terms::<One>();
    terms::<Permit>();
    waits::<Pacing>();
    charges::<Enforcing>();
    reports::<Option<AdaptivePermit<Aimd>>>();
    waits::<Admitting<UntilBody>>();
    waits::<Admitting<UntilBody, Adapting>>();
    told::<One>();
    classify::<ByStatus>();
    terms::<Classified<Following, ByStatus>>();
    // What programs write down: a layer says what wraps its limit.
    let limit = Interval::every(Duration::from_secs(1)).shared();
    let switched = EnforceLayer::new(limit.switched(&Switch::new()));
    let _: EnforceLayer<For<u8, Switched<Shared<Interval>>>> = switched;
    free::<LimitLayer<Enforcing, One>>();
    free::<Limited<Pacing, Inner, One>>();
    free::<LimitedFuture<Inner, u8, One, AsError>>();
    value::<BadKey>();
    value::<ClientKey>();
    value::<ProxyHeader>();
    error::<BadKey>();
    free::<Answers>();
    free::<AnswersWithBody<u8>>();
    free::<ClientIp>();
    free::<Proxies>();
    shown::<ClientIp>();
    free::<Problem>();
    #[cfg(feature = "retry")]
    free::<paceline_tower::RetryPolicy<fn(&u8)>>();
    free::<ProblemFormat>();
    value::<OnMissingKey<u8>>();
    value::<Failures>();
    value::<OnFailure>();
    value::<Refusal>();
    error::<Refusal>();
    error::<Error<std::fmt::Error>>();
    free::<EnforceLayer<Each, Answered>>();
    free::<PaceLayer<One>>();
    free::<ConcurrencyLayer<Many, AsError, UntilBody>>();
    free::<ShedLayer<For<u8, AtClass<FleetUsage, Class>>, Answered>>();
    free::<
        Limited<Admitting<UntilBody, Shedding>, Inner, For<u8, AtClass<WorkerUtilization, Class>>>,
    >();
    free::<AtClass<WorkerUtilization, Class>>();
    shown::<Shedding>();
    free::<AdaptiveLayer<Following, ByStatus, AsError, UntilBody>>();
    free::<Limited<Admitting<UntilBody, Adapting>, Inner, Classified<Following, ByStatus>>>();
    shown::<Adapting>();
    free::<AdaptFuture<Inner, u8, Following, ByStatus, AsError, UntilResponse>>();
    free::<Limited<Enforcing, Inner, Each>>();
    free::<Limited<Admitting<UntilBody>, Inner, Permit>>();
    free::<ConcurrencyFuture<Inner, u8, Many, AsError, UntilResponse>>();
    free::<Held<u8>>();
    free::<FeedbackLayer<Each>>();
    free::<FeedbackService<Inner, Each>>();
    // What remains to be done on a server is a future that need not be `Sync`.
    movable::<FeedbackFuture<Inner, u8, One>>();
    shown::<FeedbackFuture<Inner, u8, One>>();
    shown::<Limited<Enforcing, Inner, One>>();
    shown::<One>();
    shown::<Held<u8>>();
}
