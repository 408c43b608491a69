use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_hold_more_than_the_limit() {
    let (server, here, there) = in_two_processes(3).await;
    let holders = Arc::new(AtomicU32::new(0));
    let fleet = [here, there];
    let tasks = fleet.iter().flat_map(|permits| {
        let task = || {
            let (permits, holders) = (permits.clone(), Arc::clone(&holders));
            tokio::spawn(async move {
                let mut most = 0;
                for _ in 0..25 {
                    let lease = taken(&permits).await;
                    most = most.max(1 + holders.fetch_add(1, Ordering::SeqCst));
                    sleep(Duration::from_millis(1)).await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(lease);
                }
                most
            })
        };
        std::iter::repeat_with(task).take(8).collect::<Vec<_>>()
    });
    let mut most = 0;
    for task in tasks.collect::<Vec<_>>() {
        most = most.max(ends(task).await);
    }
    assert_eq!(most, 3);
    until_all_are_given_back(&server).await;
}

#[tokio::test]
async fn ids_of_one_process_and_of_two_differ() {
    let (server, one, other) = in_two_processes(200).await;
    let _held = (hold(&one, 100).await, hold(&other, 100).await);
    assert_eq!(alive(&server).await, 200);
    let members = members(&server).await;
    let nonces = members.iter().filter_map(|(id, _)| id.split_once(':'));
    let nonces: HashSet<_> = nonces.map(|(nonce, _)| nonce).collect();
    assert_eq!(nonces.len(), 2);
    // Each process has 128 random bits.
    assert!(nonces.iter().all(|nonce| nonce.len() == 32));
}
