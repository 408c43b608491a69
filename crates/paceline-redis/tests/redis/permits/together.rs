use std::sync::{Arc, Mutex};

use super::*;

/// Counts the present holders, and the most at once.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<(u32, u32)>>);

impl Gauge {
    fn up(&self) {
        let mut gauge = self.0.lock().unwrap();
        gauge.0 += 1;
        gauge.1 = gauge.1.max(gauge.0);
    }

    fn down(&self) {
        self.0.lock().unwrap().0 -= 1;
    }

    fn most(&self) -> u32 {
        self.0.lock().unwrap().1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_hold_more_than_the_limit() {
    let server = Server::start().await;
    let gauge = Gauge::default();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let permits = permits(&process(&server.url()), 3, LONG);
        for _ in 0..8 {
            let (permits, gauge) = (permits.clone(), gauge.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let lease = taken(&permits).await;
                    gauge.up();
                    sleep(Duration::from_millis(1)).await;
                    gauge.down();
                    drop(lease);
                }
            }));
        }
    }
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }

    assert_eq!(gauge.most(), 3);
    until("none is in use", async || alive(&server).await == 0).await;
}

#[tokio::test]
async fn a_process_with_a_fast_clock_evicts_no_other_holder() {
    let server = Server::start().await;
    let holder = permits(&process(&server.url()), 1, LONG);
    let held = taken(&holder).await;

    // This process's clock jumps an hour ahead while it runs.
    let url = server.url();
    let ahead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let redis = process(&url);
            redis.connect().await.unwrap();
            let permits = permits(&redis, 1, LONG);
            assert!(permits.try_acquire().await.unwrap().is_none());
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(3600)).await;
            tokio::time::resume();
            assert!(permits.try_acquire().await.unwrap().is_none());
            // The second refusal came from the server.
            assert_eq!(redis.stats().answered, 2);
        });
    });
    ahead.join().unwrap();

    assert!(!held.is_lost());
    assert_eq!(alive(&server).await, 1);
}

#[tokio::test]
async fn ids_of_one_process_and_of_two_differ() {
    let server = Server::start().await;
    let one = permits(&process(&server.url()), 200, LONG);
    let other = permits(&process(&server.url()), 200, LONG);

    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(taken(&one).await);
        held.push(taken(&other).await);
    }
    assert_eq!(alive(&server).await, 200);
    let members = members(&server).await;
    let nonces: std::collections::HashSet<_> = members
        .iter()
        .filter_map(|(id, _)| id.split_once(':'))
        .map(|(nonce, _)| nonce)
        .collect();
    assert_eq!(nonces.len(), 2);
    // Each process has 128 random bits.
    assert!(nonces.iter().all(|nonce| nonce.len() == 32));
}
