//! Lines pass as the limit lets them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures::stream::{Stream, StreamExt};
use paceline::limiter::{DynLimiter, Keyed, Limits, PolicyExt, Shared, TooCostly};
use paceline::policy::AnyPolicy;
use paceline::stream::{PaceByKeyAndCost, PaceStreamExt};
use tokio::runtime::Builder;

use crate::args::Pace;
use crate::items::items;
use crate::job::{End, Item, Job, PAGE, until_writable};
use crate::parts::Unit;
use crate::{Failure, bandwidth, policy, signals};

/// Does not return when it has begun.
pub(crate) fn run(args: &Pace) -> Result<(), Failure> {
    let (policy, unit) = if args.copies() {
        if args.null {
            let message = "--null is for lines, and --bytes copies without regard to them: leave one of them out";
            return Err(Failure::Argument(message.to_owned()));
        }
        // Limits in Redis do.
        #[cfg(feature = "redis")]
        let starts_full = args.redis.url.is_some();
        #[cfg(not(feature = "redis"))]
        let starts_full = false;
        let policy = bandwidth::policy(&args.limit, starts_full)?;
        let slice = bandwidth::slice(&policy);
        (policy, Unit::Byte(slice))
    } else {
        let policy = policy::policy(&args.limit, args.bytes)?;
        (policy, Unit::Line(args.end_of_line()))
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limits = {
        let _entered = runtime.enter();
        KeyLimits::new(args, policy)?
    };
    let job = Arc::new(Job::new(args, unit)?);
    signals::watch(&job)?;
    Arc::clone(&job).watch_reader();
    Arc::clone(&job).show_progress();
    runtime.block_on(pace(args, &job, &limits));
    job.end(&End::Done)
}

async fn pace(args: &Pace, job: &Arc<Job>, limits: &KeyLimits) {
    let mut paced = paced(args, job, limits);
    let mut passed = Vec::new();
    let mut ended = None;
    loop {
        // A permit is for now, so none is taken while the reader is slow.
        let room = until_writable(job.unit()).await;
        if ended.is_none() {
            ended = gather(&mut paced, &mut passed).await;
        }
        match (&ended, passed.first_mut()) {
            (Some(Ok(())), None) => return,
            (Some(Err(why)), None) => job.end(&End::Failed(why.clone())),
            (_, Some(slice)) if args.copies() && slice.length() > room => {
                let piece = slice.split_to(room);
                passed.insert(0, piece);
            }
            _ => {}
        }
        // The last one may be too long, and waits. If it is alone, it is written whole.
        let length: usize = passed.iter().map(Item::length).sum();
        let count = passed.len() - usize::from(length > room && passed.len() > 1);
        if let Err(error) = job.write(&passed[..count]) {
            job.end(&match error.kind() {
                io::ErrorKind::BrokenPipe => End::Closed,
                _ => End::Failed(format!("cannot write the output: {error}")),
            });
        }
        limits.count_now(&passed[..count]);
        passed.drain(..count);
    }
}

/// Adds what passes now, about as many bytes as any write takes. It waits only if there is nothing to write. Returns how the
/// stream has ended, if it has.
async fn gather(paced: &mut Paced, passed: &mut Vec<Item>) -> Option<Result<(), String>> {
    let mut length: usize = passed.iter().map(Item::length).sum();
    poll_fn(|cx| {
        while length < PAGE {
            match paced.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(item))) => {
                    length += item.length();
                    passed.push(item);
                }
                Poll::Ready(Some(Err(why))) => return Poll::Ready(Some(Err(why))),
                Poll::Ready(None) => return Poll::Ready(Some(Ok(()))),
                Poll::Pending if passed.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(None)
    })
    .await
}

/// What has passed, or why an item never passes.
type Paced = Pin<Box<dyn Stream<Item = Result<Item, String>>>>;

fn paced(args: &Pace, job: &Arc<Job>, limits: &KeyLimits) -> Paced {
    let items = items(args, job);
    if args.by_key.is_none() {
        let limit = limits.at(Vec::new());
        let limit = limit.unwrap_or_else(|error| job.end(&End::Failed(error)));
        let paced = items.pace_by_cost(limit, |item| item.cost);
        return Box::pin(paced.map(|passed| passed.map_err(|never| too_costly(&never))));
    }
    let held = args.max_waiting.unwrap_or(MAX_WAITING) as usize;
    let paced = PaceByKeyAndCost::try_new(
        items,
        limits.clone(),
        |item: &Item| item.key.clone(),
        |item: &Item| item.cost,
        held,
    );
    let paced = paced.unwrap_or_else(|error| job.end(&End::Failed(error.to_string())));
    Box::pin(paced.map(|passed| {
        passed.map_err(|refused| {
            let why = match (refused.too_costly(), refused.no_limit()) {
                (Some(never), _) => too_costly(&never),
                (None, Some(error)) => error.clone(),
                (None, None) => "it has no limit".to_owned(),
            };
            format!("line {}: {why}", refused.into_item().number)
        })
    }))
}

const MAX_WAITING: u32 = 10_000;

fn too_costly<T>(never: &TooCostly<T>) -> String {
    format!(
        "{} bytes never pass at once, at most {}: a `burst` that is large enough lets them pass, and so does `debt` after a `burst`",
        never.cost(),
        never.capacity()
    )
}

/// The limit of each key. Without keys there is one.
#[derive(Clone)]
enum KeyLimits {
    One(Shared<AnyPolicy>),
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
        Ok(match args.by_key {
            Some(_) => Self::Local(policy.keyed()),
            None => Self::One(policy.shared()),
        })
    }

    /// Counts what has passed as of now, when it is written, and not as of the time when it passed. So a slow reader never sees
    /// lines closer together than the policy says. (Redis counts when a line passes.)
    fn count_now(&self, items: &[Item]) {
        match self {
            Self::One(limit) => {
                let cost = items.iter().map(|item| item.cost).sum();
                limit.refund(cost);
                limit.charge(cost);
            }
            Self::Local(limits) => {
                for item in items {
                    limits.with(&item.key, |limit| limit.refund(item.cost));
                    limits.charge(&item.key, item.cost);
                }
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
            Self::One(limit) => Ok(DynLimiter::new(limit.clone())),
            Self::Local(limits) => {
                let Ok::<_, Infallible>(limiter) = Limits::at(limits, key);
                Ok(DynLimiter::new(limiter))
            }
            #[cfg(feature = "redis")]
            Self::Redis(limit_of) => limit_of(&key),
        }
    }
}
