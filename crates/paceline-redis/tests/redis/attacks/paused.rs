//! Processes under full load, of which one pauses the limit and takes the pause back.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use paceline::policy::SlidingLog;
use paceline_redis::{OutagePolicy, RedisLimiter};
use tokio::task::JoinSet;

use super::{one_calm_round, process};
use crate::limits::pause;
use crate::servers::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A round trip on a busy machine.
const TRIP: Duration = Duration::from_millis(200);

async fn passes(limit: RedisLimiter<SlidingLog>, passed: Arc<Mutex<Vec<Instant>>>) {
    loop {
        limit.acquire(1).await.unwrap();
        passed.lock().unwrap().push(Instant::now());
    }
}

async fn round() -> Result<(), String> {
    let server = Server::start().await;
    let mut callers = JoinSet::new();
    let (mut limits, mut passed) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let redis = process(&server.url(), OutagePolicy::open(), SECOND).await;
        let limit = redis.limit("a", SlidingLog::new(50_000, SECOND)).unwrap();
        let times = Arc::default();
        for _ in 0..8 {
            callers.spawn(passes(limit.clone(), Arc::clone(&times)));
        }
        limits.push(limit);
        passed.push(times);
    }
    pause(SECOND * 2).await;
    let pauses = Instant::now();
    limits[0].pause_for(SECOND * 3).await.unwrap();
    pause(SECOND * 5).await;
    let pauses_again = Instant::now();
    limits[0].pause_for(SECOND * 100).await.unwrap();
    pause(SECOND * 2).await;
    let resumes = Instant::now();
    limits[0].resume().await.unwrap();
    pause(SECOND + TRIP).await;
    callers.shutdown().await;

    for (number, passed) in passed.iter().enumerate() {
        let passed = passed.lock().unwrap();
        let between = |from: Instant, to: Instant| {
            let inside = passed.iter().filter(|at| (from..to).contains(*at));
            inside.count()
        };
        let late = between(pauses + SECOND + TRIP, pauses + SECOND * 3);
        let late = late + between(pauses_again + SECOND + TRIP, resumes);
        let after = between(pauses + SECOND * 3, pauses_again);
        let later = between(resumes, resumes + SECOND + TRIP);
        if late > 0 || after == 0 || later == 0 {
            return Err(format!(
                "process {number}: {late} during a pause, {after} after it, {later} after the resume"
            ));
        }
    }
    Ok(())
}

#[tokio::test]
async fn nothing_passes_a_pause_a_second_and_a_trip_after_it_and_all_go_on_after_a_resume() {
    one_calm_round(round).await;
}
