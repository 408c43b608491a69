//! Requests for any of several limits, each on a server of its own.

use fastrand::Rng;
use paceline::limiter::{AcquireError, Event};

use super::*;

struct Of {
    servers: Vec<Server<SlidingLog>>,
    processes: Vec<Process<SlidingLog>>,
    limits: Vec<Limit<SlidingLog>>,
}

/// A limit for each of these policies. While its server is down it does as the outage policy says.
async fn of<const N: usize>(limits: [(OutagePolicy, SlidingLog); N]) -> Of {
    let mut of = Of {
        servers: Vec::new(),
        processes: Vec::new(),
        limits: Vec::new(),
    };
    for (when_down, policy) in limits {
        let (server, process, limit) = one(when_down, policy).await;
        of.servers.push(server);
        of.processes.push(process);
        of.limits.push(limit);
    }
    of
}

/// Closed while their servers are down.
async fn of_closed<const N: usize>(limits: [SlidingLog; N]) -> Of {
    of(limits.map(|policy| (OutagePolicy::closed(), policy))).await
}

impl Of {
    fn acquire(
        &self,
        cost: u32,
    ) -> impl Future<Output = Result<usize, AcquireError<ServerError>>> + use<> {
        RemoteLimit::wait_for_any(self.limits.iter().cloned().map(Some).collect(), cost)
    }

    fn counted(&self) -> Vec<u32> {
        self.servers.iter().map(counted).collect()
    }
}

fn every(millis: u64) -> SlidingLog {
    SlidingLog::new(1, ms(millis))
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_from_one_limit_the_first_that_has_room() {
    let of = of_closed([every(100), every(40)]).await;
    let watch = Stopwatch::start();
    let mut passed = Vec::new();
    for _ in 0..5 {
        let number = of.acquire(1).await.unwrap();
        passed.push((number, watch.elapsed()));
    }
    let expected = [(0, 0), (1, 0), (1, 40), (1, 80), (0, 100)];
    assert_eq!(passed, expected.map(|(number, at)| (number, ms(at))));
    assert_eq!(of.counted(), [2, 3]);
    let asked: usize = of.servers.iter().map(calls).sum();
    assert_eq!(asked, 5 + 4, "a wait that is known takes no call");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_waited_for_before_the_next_limit_is_asked() {
    let of = of_closed([every(100), every(100)]).await;
    of.servers[0].world().reply_in = ms(20);
    let watch = Stopwatch::start();
    let passed = of.acquire(1).await.unwrap();
    assert_eq!((passed, watch.elapsed()), (0, ms(20)));
    assert_eq!(of.counted(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_late_takes_nothing() {
    let of = of_closed([every(1_000), every(1_000)]).await;
    of.servers[0].world().reply_in = ms(60);
    assert_eq!(of.acquire(1).await.unwrap(), 1);
    sleep(ms(200)).await;
    assert_eq!(of.counted(), [0, 1]);
    of.servers[0].world().reply_in = ms(0);
    assert_eq!(of.acquire(1).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_has_taken_nothing() {
    for dropped_after in [0, 5, 10, 15, 25, 90] {
        let of = of_closed([every(1_000), every(1_000)]).await;
        for server in &of.servers {
            server.world().reply_in = ms(10);
        }
        assert_eq!(of.acquire(1).await.unwrap(), 0);
        let taken = within(ms(dropped_after), of.acquire(1)).await;
        sleep(ms(50)).await;
        let passed = taken.map_or(0, |number| number.unwrap());
        let second = u32::try_from(passed).unwrap();
        assert_eq!(of.counted(), [1, second], "{dropped_after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_is_counted_once_whatever_is_dropped() {
    let mut random = Rng::with_seed(7);
    for _ in 0..30 {
        let of = of_closed([every(30), SlidingLog::new(2, ms(70)), every(45)]).await;
        for server in &of.servers {
            server.world().reply_in = ms(random.u64(0..8));
        }
        let requests = (0..40).map(|_| {
            let (comes, gives_up) = (ms(random.u64(0..300)), ms(random.u64(1..200)));
            let request = of.acquire(1);
            async move {
                sleep(comes).await;
                within(gives_up, request).await
            }
        });
        let passed = join_all(requests).await.into_iter().flatten();
        let mut expected = vec![0; 3];
        passed.for_each(|number| expected[number.unwrap()] += 1);
        sleep(ms(200)).await;
        assert_eq!(of.counted(), expected);
        assert!(expected.iter().sum::<u32>() > 9, "{expected:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_left_to_the_policy_of_its_limit() {
    for (when_down, number) in [(OutagePolicy::closed(), 1), (OutagePolicy::open(), 0)] {
        let of = of([(when_down, every(50)), (OutagePolicy::closed(), every(50))]).await;
        of.servers[0].kill();
        for _ in 0..5 {
            assert_eq!(of.acquire(1).await.unwrap(), number);
        }
        let expected = if number == 0 { 0 } else { 5 };
        assert_eq!(of.counted(), [0, expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_whose_server_refuses_is_passed_over_and_asked_again_after_a_second() {
    let of = of_closed([plenty(), every(5_000)]).await;
    of.servers[0].world().refused_keys.insert(0);
    let watch = Stopwatch::start();
    assert_eq!(of.acquire(1).await.unwrap(), 1);
    let waits = tokio::spawn(of.acquire(1));
    sleep(ms(500)).await;
    of.servers[0].world().refused_keys.clear();
    assert_eq!(waits.await.unwrap().unwrap(), 0);
    assert_eq!(watch.elapsed(), ms(1_000));

    for server in &of.servers {
        server.world().refused_keys.insert(0);
    }
    sleep(ms(5_000)).await;
    let error = of.acquire(1).await.unwrap_err();
    assert!(error.limit().is_some(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_can_never_pass_the_cost_is_left_out() {
    let of = of_closed([SlidingLog::new(2, ms(50)), SlidingLog::new(5, ms(50))]).await;
    let watch = Stopwatch::start();
    assert_eq!(of.acquire(4).await.unwrap(), 1);
    assert_eq!(of.acquire(3).await.unwrap(), 1);
    assert_eq!((watch.elapsed(), of.counted()), (ms(50), vec![0, 7]));
    let never = of.acquire(6).await.unwrap_err().too_costly().unwrap();
    assert_eq!((never.cost(), never.capacity()), (6, 5));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_felt_within_a_second() {
    let of = of_closed([every(50), every(50)]).await;
    for limit in &of.limits {
        limit.pause_for(MINUTE, Event::paused).await.unwrap();
    }
    let watch = Stopwatch::start();
    let waits = tokio::spawn(of.acquire(1));
    sleep(ms(2_300)).await;
    let resumed = of.limits[1].change(Change::Resume, Event::Resumed);
    resumed.await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap(), 1);
    assert_eq!(watch.elapsed(), ms(3_000));
}

/// A limit is asked often by one request.
#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_one_request_that_waited_wherever_it_passed() {
    use std::sync::Mutex;

    let mut of = of_closed([every(5_000), every(3_000)]).await;
    assert_eq!(of.acquire(1).await.unwrap(), 0);
    assert_eq!(of.acquire(1).await.unwrap(), 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (number, limit) in of.limits.iter_mut().enumerate() {
        let seen = Arc::clone(&seen);
        let hear = move |event: Event| seen.lock().unwrap().push((number, event));
        limit.reporter = Reporter::new(hear);
    }
    assert_eq!(of.acquire(1).await.unwrap(), 1);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let [
        (1, Event::Passed { waited, .. }),
        (0, Event::GaveUp { waited: lost, .. }),
    ] = seen[..]
    else {
        panic!("{seen:?}");
    };
    assert_eq!((waited, lost), (ms(3_000), ms(3_000)));
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_one_limit_alone_come_first() {
    let of = of_closed([every(40)]).await;
    of.limits[0].acquire(1).await.unwrap();
    let any = tokio::spawn(of.acquire(1));
    settle().await;
    let plain = acquiring(&of.limits[0], 1);
    let watch = Stopwatch::start();
    assert_eq!(plain.await.unwrap(), ms(40));
    assert_eq!(any.await.unwrap().unwrap(), 0);
    assert_eq!(watch.elapsed(), ms(80));
    assert!(of.processes[0].is_up());
}

/// An outage lasts longer than the turn of a request.
#[tokio::test(start_paused = true)]
async fn a_request_behind_a_waiter_asks_ten_times_a_second_in_an_outage() {
    let (server, process, limit) = closed(every(40)).await;
    server.kill();
    notice(&process, &limit).await;
    let waits = acquiring(&limit, 1);
    settle().await;
    let watch = Stopwatch::start();
    let mut asked = 0;
    while watch.elapsed() < ms(10_000) {
        let Err(Undecided::Outage { retry_in }) = limit.ask(1).await else {
            panic!("the server is gone");
        };
        sleep(retry_in).await;
        asked += 1;
    }
    assert!(asked <= 110, "{asked}");
    server.world().is_reachable = true;
    waits.await.unwrap();
}
