//! Lines pass as the limit lets them.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{Stream, StreamExt};
use paceline::limiter::{DynLimiter, Keyed, Limits, PolicyExt};
use paceline::policy::AnyPolicy;
use paceline::stream::{GroupedWithin, PaceByKeyAndCost};
use paceline::time::Tick;
use tokio::runtime::Builder;

use crate::Failure;
use crate::args::{KeyOf, Pace};
use crate::job::{End, Job, until_writable};
use crate::lines::{self, Line};
use crate::policy::policy;
use crate::signals;

/// Does not return when it has begun.
pub(crate) fn run(args: &Pace) -> Result<(), Failure> {
    let policy = policy(&args.limit, args.bytes)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limits = {
        let _entered = runtime.enter();
        KeyLimits::new(args, policy)?
    };
    let job = Arc::new(Job::new(args));
    signals::watch(&job)?;
    Arc::clone(&job).watch_reader();
    Arc::clone(&job).show_progress();
    runtime.block_on(pace(args, &job, limits));
    job.end(&End::Done)
}

async fn pace(args: &Pace, job: &Arc<Job>, limits: KeyLimits) {
    // A line without a key waits at the limit, and the others outside.
    let held = match args.by_key {
        Some(_) => args.max_waiting.unwrap_or(MAX_WAITING) as usize,
        None => 1,
    };
    let items = items(args, job);
    let paced = PaceByKeyAndCost::try_new(
        items,
        limits.clone(),
        |item: &Item| item.key.clone(),
        |item: &Item| item.cost,
        held,
    );
    let paced = paced.unwrap_or_else(|error| job.end(&End::Failed(error.to_string())));
    let mut paced = pin!(paced);
    let mut clock = job.clock();
    loop {
        // A permit is for now, so none is taken while the reader is slow.
        until_writable().await;
        let item = match paced.next().await {
            None => return,
            Some(Ok(item)) => item,
            Some(Err(refused)) => {
                let why = match (refused.too_costly(), refused.no_limit()) {
                    (Some(costly), _) => format!(
                        "{} bytes never pass at once, at most {}: a `burst` that is large enough lets them pass, and so does `debt` \
                         after a `burst`",
                        costly.cost(),
                        costly.capacity()
                    ),
                    (None, Some(error)) => error.clone(),
                    (None, None) => "it has no limit".to_owned(),
                };
                let number = refused.into_item().number;
                job.end(&End::Failed(format!("line {number}: {why}")));
            }
        };
        let waited = clock.now().since(item.since);
        if let Err(error) = job.write(&item.bytes, item.lines, waited) {
            job.end(&match error.kind() {
                io::ErrorKind::BrokenPipe => End::Closed,
                _ => End::Failed(format!("cannot write the output: {error}")),
            });
        }
        limits.count_now(&item.key, item.cost);
    }
}

const MAX_WAITING: u32 = 10_000;

/// What passes together.
#[derive(Debug)]
struct Item {
    bytes: Vec<u8>,
    lines: u64,
    /// Of its first line.
    number: u64,
    key: Vec<u8>,
    cost: u32,
    /// When it began to wait.
    since: Tick,
}

fn items(args: &Pace, job: &Arc<Job>) -> Pin<Box<dyn Stream<Item = Item>>> {
    let lines = lines::read(Arc::clone(job));
    let mut clock = job.clock();
    let Some(most) = args.batch else {
        let (by_key, costs_bytes) = (args.by_key.clone(), args.bytes);
        return Box::pin(lines.map(move |line| Item {
            since: clock.now(),
            ..of_line(line, by_key.as_ref(), costs_bytes)
        }));
    };
    let within = args.within.unwrap_or(AT_THE_END);
    let separate = args.separate;
    let groups = GroupedWithin::try_new(lines, most as usize, within);
    let groups = groups.unwrap_or_else(|error| job.end(&End::Failed(error.to_string())));
    Box::pin(groups.map(move |group| Item {
        since: clock.now(),
        ..of_group(&group, separate)
    }))
}

/// No input is read for so long.
const AT_THE_END: Duration = Duration::from_secs(10 * 365 * 86_400);

fn of_line(line: Line, by_key: Option<&KeyOf>, costs_bytes: bool) -> Item {
    let cost = u32::try_from(line.bytes.len()).unwrap_or(u32::MAX);
    Item {
        key: by_key.map_or_else(Vec::new, |of| of.key(&line.bytes).to_vec()),
        cost: if costs_bytes { cost } else { 1 },
        lines: 1,
        number: line.number,
        bytes: line.bytes,
        since: Tick::ZERO,
    }
}

fn of_group(group: &[Line], separate: bool) -> Item {
    let mut bytes: Vec<u8> = group.iter().flat_map(|line| &line.bytes).copied().collect();
    // A last line without a newline stays so.
    if separate && bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    Item {
        bytes,
        lines: group.len() as u64,
        number: group.first().map_or(0, |line| line.number),
        key: Vec::new(),
        cost: 1,
        since: Tick::ZERO,
    }
}

/// The limit of each key. Without keys all lines have the same one.
#[derive(Clone)]
enum KeyLimits {
    Local(Keyed<Vec<u8>, AnyPolicy>),
    #[cfg(feature = "redis")]
    Redis(crate::redis::LimitOf),
}

impl KeyLimits {
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unnecessary_wraps, reason = "Redis may be unfit")
    )]
    fn new(args: &Pace, policy: AnyPolicy) -> Result<Self, Failure> {
        #[cfg(feature = "redis")]
        if let (Some(url), Some(name)) = (&args.redis.url, &args.redis.name) {
            let by_key = args.by_key.is_some();
            let limit_of = crate::redis::limits(url, name, args.redis.outage, &policy, by_key);
            return limit_of.map(Self::Redis).map_err(Failure::Argument);
        }
        #[cfg(not(feature = "redis"))]
        let _ = args;
        Ok(Self::Local(policy.keyed()))
    }

    /// Counts the passed lines as of now, when they are written, and not as of the time when they passed. So a slow reader never sees
    /// lines closer together than the policy says. (Redis counts when a line passes.)
    fn count_now(&self, key: &Vec<u8>, cost: u32) {
        match self {
            Self::Local(limits) => {
                limits.with(key, |limit| limit.refund(cost));
                limits.charge(key, cost);
            }
            #[cfg(feature = "redis")]
            Self::Redis(_) => {}
        }
    }
}

impl Limits<Vec<u8>> for KeyLimits {
    type Limit = DynLimiter;
    type Error = String;

    fn at(&self, key: Vec<u8>) -> Result<DynLimiter, String> {
        match self {
            Self::Local(limits) => {
                let Ok::<_, Infallible>(limiter) = Limits::at(limits, key);
                Ok(DynLimiter::new(limiter))
            }
            #[cfg(feature = "redis")]
            Self::Redis(limit_of) => limit_of(&key),
        }
    }
}
