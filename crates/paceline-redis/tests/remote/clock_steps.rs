//! The server's clock is set back or forward.

use super::*;

const HOUR: i64 = 3_600_000_000;

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_costs_one_window_and_one_lost_state_and_one_set_forward_passes_a_burst() {
    for (step, expected, lost_states) in [
        (-HOUR, [100, 100, 200, 200, 300, 300], 1),
        (HOUR, [0, 0, 100, 100, 200, 200], 0),
    ] {
        let (server, process, limit) = closed(SlidingLog::new(2, ms(100))).await;
        passed_at(&limit, &[1; 4]).await;
        server.world().step += step;
        assert_eq!(passed_at(&limit, &[1; 6]).await, expected.map(ms));
        assert_eq!(process.stats().lost_states, lost_states);
    }
}

#[tokio::test(start_paused = true)]
async fn another_process_goes_on_too_when_the_clock_was_set_back() {
    let (server, _processes, limits) = two(SlidingLog::new(2, ms(100))).await;
    for limit in &limits {
        limit.acquire(1).await.unwrap();
    }
    server.world().step -= HOUR;
    let watch = Stopwatch::start();
    for _ in 0..3 {
        for limit in &limits {
            limit.acquire(1).await.unwrap();
        }
    }
    // Each process finds the state lost once.
    assert!(watch.elapsed() <= ms(600), "{:?}", watch.elapsed());
}
