//! The task of the batcher.

use std::collections::HashSet;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::*;

/// In how many tasks the calls were made, of which there were this many.
fn tasks(server: &Server<SlidingLog>) -> (usize, usize) {
    let world = server.world();
    let tasks: HashSet<_> = world.calls.iter().map(|(task, ..)| task).collect();
    (tasks.len(), world.calls.len())
}

#[tokio::test(start_paused = true)]
async fn a_thousand_decisions_are_made_in_one_task() {
    let server = Server::start();
    let process = process(&server, OutagePolicy::closed()).await;
    let limits = [process.limit(0, plenty()), process.limit(1, plenty())];
    for number in 0..1_000 {
        limits[number % 2].acquire(1).await.unwrap();
        match number % 100 {
            // The task is idle meanwhile, and the overrides are read with the next call.
            0 => sleep(ms(1_500)).await,
            // The next request finds a call under way.
            50 => drop(limits[0].join(1)),
            _ => {}
        }
    }
    assert_eq!(tasks(&server), (1, 1_000));
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// A server, and how many tasks are alive without a process.
async fn alone<P: Rule>() -> (Server<P>, usize) {
    let server = Server::start();
    settle().await;
    (server, alive_tasks())
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_handle() {
    let (server, before) = alone().await;
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(1, MINUTE));
    let connection = Arc::downgrade(&process.batcher.connection);
    limit.acquire(1).await.unwrap();
    let waiter = limit.join(1);
    settle().await;
    let other = Process::clone(&process);
    drop((process, limit));
    settle().await;
    assert_eq!(alive_tasks(), before + 1);
    drop((waiter, other));
    settle().await;
    assert_eq!(alive_tasks(), before);
    assert!(connection.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_after_a_call_whose_caller_and_limit_are_gone() {
    let (server, before) = alone().await;
    let process = process(&server, OutagePolicy::closed()).await;
    server.world().reply_in = ms(10);
    let asking = process.limit(0, SlidingLog::new(3, MINUTE)).join(2);
    drop(process);
    settle().await;
    drop(asking);
    sleep(ms(50)).await;
    settle().await;
    // Asked, and returned.
    assert_eq!(calls(&server), 2);
    assert_eq!(alive_tasks(), before);
}

/// A paused clock advances to the next timer while all tasks wait.
#[tokio::test(start_paused = true)]
async fn an_idle_task_holds_no_timer() {
    let (_server, _process, limit) = closed(SlidingLog::new(1, MINUTE)).await;
    limit.acquire(1).await.unwrap();
    // It waits for a minute, and then for nothing.
    let waiter = limit.join(1);
    settle().await;
    drop(waiter);
    settle().await;
    let watch = Stopwatch::start();
    let (done, is_done) = oneshot::channel();
    let other = thread::spawn(move || {
        thread::sleep(ms(20));
        done.send(()).unwrap();
    });
    is_done.await.unwrap();
    assert_eq!(watch.elapsed(), ms(0));
    other.join().unwrap();
}

#[test]
fn runtimes_that_take_turns_have_one_task_each_and_wait_for_no_other() {
    let mut servers = Builder::new_multi_thread();
    let servers = servers.worker_threads(1).enable_all().build().unwrap();
    let server = servers.block_on(async { Server::start() });
    let process = Process::with(&server, OutagePolicy::closed(), MINUTE);
    servers.block_on(process.connect());
    let limit = process.limit(0, plenty());
    let runtimes = [(); 3].map(|()| {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    });
    for _ in 0..10 {
        for runtime in &runtimes {
            // The others stand still.
            runtime.block_on(limit.acquire(1)).unwrap();
        }
    }
    assert_eq!(tasks(&server), (3, 30));
    let [first, rest @ ..] = runtimes;
    drop(rest);
    first.block_on(limit.acquire(1)).unwrap();
    assert_eq!(tasks(&server), (3, 31));
}
