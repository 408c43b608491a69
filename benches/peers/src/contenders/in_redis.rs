//! What decides in Redis, and what Redis costs without a decision.

use core::time::Duration;
use std::sync::LazyLock;
use std::time::SystemTime;

use ::paceline::policy::{All, Decision, FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
use ::paceline::time::Rate;
use futures::FutureExt;
use futures::future::BoxFuture;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};

/// Something that is asked over and over. Its limit never binds.
pub(crate) struct Stored {
    pub(crate) name: &'static str,
    /// What it asks the server for.
    pub(crate) command: &'static str,
    pub(crate) callers: fn(Meeting) -> BoxFuture<'static, Vec<Caller>>,
}

/// Asks once: whether it passed.
pub(crate) type Caller = Box<dyn FnMut() -> BoxFuture<'static, bool> + Send>;

/// Which callers share a server.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) url: String,
    pub(crate) connections: usize,
    /// On each connection.
    pub(crate) callers: usize,
    pub(crate) keys: Keys,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keys {
    /// Each caller has a key of its own.
    Own,
    /// All have the same.
    One,
}

/// More than is requested during the measurement.
const MANY: u32 = 1_000_000;

/// The same of a log, which has no more in Redis.
const MANY_KEPT: u32 = 100_000;

/// Short, so that a log holds no more than passes in it.
const WINDOW: Duration = Duration::from_millis(100);

/// The time of an answer is measured, so no caller gives up on one.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) const ALL: &[Stored] = &[
    Stored {
        name: "bare SET",
        command: "set",
        callers: |meeting| set(meeting).boxed(),
    },
    Stored {
        name: "Stripe's two keys",
        command: "evalsha",
        callers: |meeting| stripe(meeting).boxed(),
    },
    Stored {
        name: "paceline TokenBucket",
        command: "evalsha",
        callers: |meeting| paceline(bucket(), meeting).boxed(),
    },
    Stored {
        name: "paceline FixedWindow",
        command: "evalsha",
        callers: |meeting| paceline(FixedWindow::new(MANY, WINDOW), meeting).boxed(),
    },
    Stored {
        name: "paceline SlidingCounter, smooth",
        command: "evalsha",
        callers: |meeting| paceline(SlidingCounter::smooth(MANY, WINDOW), meeting).boxed(),
    },
    Stored {
        name: "paceline SlidingCounter, 10 buckets",
        command: "evalsha",
        callers: |meeting| paceline(SlidingCounter::strict(MANY, WINDOW, 10), meeting).boxed(),
    },
    Stored {
        name: "paceline SlidingLog",
        command: "evalsha",
        callers: |meeting| paceline(SlidingLog::new(MANY_KEPT, WINDOW), meeting).boxed(),
    },
    Stored {
        name: "paceline All, bucket and window",
        command: "evalsha",
        callers: |meeting| {
            let both = All::new((bucket(), FixedWindow::new(MANY, WINDOW)));
            paceline(both, meeting).boxed()
        },
    },
];

/// The token bucket in two keys that Stripe described in "Scaling your API with rate limiters" (stripe.com/blog/rate-limiters,
/// 2017), written anew from that description: the tokens in one key, the time at which they were counted in another, both set
/// with a lifetime of twice what a full bucket takes to fill; the time is the client's, in whole seconds.
pub(crate) static STRIPE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("in_redis/stripe.lua")));

/// A limit that Stripe's script keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Tokens a second.
    pub(crate) rate: u32,
    pub(crate) burst: u32,
}

impl Bucket {
    pub(crate) fn keys(name: &str) -> [String; 2] {
        ["tokens", "timestamp"].map(|of| format!("{{{name}}}:{of}"))
    }

    /// Whether that many tokens were there.
    pub(crate) async fn ask(
        self,
        name: &str,
        cost: u32,
        connection: &mut MultiplexedConnection,
    ) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut call = STRIPE.prepare_invoke();
        let call = call
            .key(&Self::keys(name)[..])
            .arg(self.rate)
            .arg(self.burst)
            .arg(now.map_or(0, |now| now.as_secs()))
            .arg(cost);
        let answer: (u32, f64) = call.invoke_async(connection).await.expect("it answers");
        answer.0 == 1
    }
}

impl Meeting {
    /// Of one connection.
    fn keys_on(&self, connection: usize) -> impl Iterator<Item = String> {
        let keys = self.keys;
        (0..self.callers).map(move |caller| match keys {
            Keys::Own => format!("key-{connection}-{caller}"),
            Keys::One => "the-key".to_owned(),
        })
    }
}

const fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(MANY), MANY)
}

/// On each connection, callers of the same key share one queue for it.
async fn paceline(policy: impl RedisPolicy, meeting: Meeting) -> Vec<Caller> {
    let mut callers = Vec::new();
    for connection in 0..meeting.connections {
        let redis = Redis::open(&meeting.url, OutagePolicy::closed()).expect("it is a URL");
        let redis = redis.with_deadline(PATIENCE).expect("it is long enough");
        redis.connect().await.expect("a server answers");
        let limits = redis.keyed("measured", policy.clone()).expect("it fits");
        for key in meeting.keys_on(connection) {
            let limit = limits.at(&key).expect("it is a key");
            let caller: Caller = Box::new(move || {
                let limit = limit.clone();
                async move { limit.try_acquire(1).await.is_ok_and(Decision::is_pass) }.boxed()
            });
            callers.push(caller);
        }
    }
    callers
}

async fn set(meeting: Meeting) -> Vec<Caller> {
    on_bare_connections(meeting, |key, mut connection| {
        async move {
            let mut set = redis::cmd("SET");
            let set = set.arg(key).arg("1");
            set.query_async::<()>(&mut connection).await.is_ok()
        }
        .boxed()
    })
    .await
}

async fn stripe(meeting: Meeting) -> Vec<Caller> {
    const BUCKET: Bucket = Bucket {
        rate: MANY,
        burst: MANY,
    };
    on_bare_connections(meeting, |key, mut connection| {
        async move { BUCKET.ask(&key, 1, &mut connection).await }.boxed()
    })
    .await
}

async fn on_bare_connections(
    meeting: Meeting,
    ask: fn(String, MultiplexedConnection) -> BoxFuture<'static, bool>,
) -> Vec<Caller> {
    let mut callers = Vec::new();
    for number in 0..meeting.connections {
        let connection = connection(&meeting.url).await;
        for key in meeting.keys_on(number) {
            let connection = connection.clone();
            let caller: Caller = Box::new(move || ask(key.clone(), connection.clone()));
            callers.push(caller);
        }
    }
    callers
}

/// Without timers of its own, which would be part of the figures. It sends every request at once.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let info = url.into_connection_info().expect("it is a URL");
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(tcp)).expect("it is an address");
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await.expect("a server answers")
}
