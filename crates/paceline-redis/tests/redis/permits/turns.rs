//! The marks of waiting processes in Redis.

use super::*;

const MARKS: &str = "paceline:{jobs}:permits:waiting";

/// A mark in Redis, with its times in microseconds.
#[derive(Debug)]
struct Mark {
    turn: u64,
    /// How many leases the turn has taken.
    took: u64,
    waiters: u64,
    at: u64,
    stands: u64,
}

async fn marks(server: &Server) -> Vec<Mark> {
    let values: Vec<Vec<u8>> = server.cli(&["HVALS", MARKS]).await;
    values.iter().map(|value| read_mark(value)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers, far below 2^53"
)]
fn read_mark(value: &[u8]) -> Mark {
    let numbers = value.chunks(8).map(|bytes| {
        let bytes = bytes.try_into().expect("a mark is some doubles");
        f64::from_be_bytes(bytes) as u64
    });
    let numbers: Vec<u64> = numbers.collect();
    let [turn, took, waiters, at, stands] = numbers[..] else {
        panic!("{numbers:?}");
    };
    Mark {
        turn,
        took,
        waiters,
        at,
        stands,
    }
}

/// Writes the mark of a process that never asks. It was written `at` that time.
#[expect(clippy::cast_precision_loss, reason = "whole numbers, far below 2^53")]
async fn write_mark(server: &Server, turn: u64, waiters: u32, at: u64, stands: Duration) {
    let stands = stands.as_micros() as f64;
    let mark = [turn as f64, 0.0, waiters.into(), at as f64, stands];
    let mark = mark.map(f64::to_be_bytes).concat();
    let mut command = redis::cmd("HSET");
    command.arg(MARKS).arg("another").arg(mark);
    server.command::<()>(&command).await;
}

async fn write_lasting_mark(server: &Server, turn: u64, waiters: u32) {
    write_mark(server, turn, waiters, server.time_us().await, LONG).await;
}

/// Waits for a mark of that many requests.
async fn until_marked(server: &Server, waiters: u64) -> Mark {
    let looking = async {
        loop {
            let mut marks = marks(server).await.into_iter();
            if let Some(mark) = marks.find(|mark| mark.waiters == waiters) {
                return mark;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looking).await.expect("there is a mark")
}

#[tokio::test]
async fn a_waiting_process_has_one_mark_that_is_gone_when_nothing_waits() {
    let (server, holder, permits) = in_two_processes(1).await;
    let held = taken(&holder).await;
    let only = waiting(&permits, 1).remove(0);
    until_marked(&server, 1).await;
    let removed = count(&server, "hdel").await;
    only.abort();
    until("it is taken back", async || {
        count(&server, "hdel").await > removed
    })
    .await;
    assert_eq!(marks(&server).await.len(), 0);

    let mut waiting = waiting(&permits, 3);
    until_marked(&server, 3).await;
    assert_eq!(marks(&server).await.len(), 1);
    waiting.pop().unwrap().abort();
    until_marked(&server, 2).await;
    drop(held);
    for waiting in waiting {
        drop(ends(waiting).await);
    }
    until("nothing is left", async || {
        server.cli::<u32>(&["DBSIZE"]).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_try_does_not_overtake_a_waiter_of_another_process_and_leaves_no_mark() {
    let (server, permits) = so_many(2).await;
    assert!(permits.try_acquire().await.unwrap().is_some());
    write_lasting_mark(&server, 1, 2).await;

    none_is_free(permits.try_acquire().await);
    assert_eq!(marks(&server).await.len(), 1);
    write_lasting_mark(&server, 1, 1).await;
    let lease = permits.try_acquire().await.unwrap();
    assert!(lease.is_some());
    none_is_free(permits.try_acquire().await);
}

#[tokio::test]
async fn permits_of_earlier_turns_are_reserved() {
    let (server, permits) = so_many(3).await;
    write_lasting_mark(&server, 7, 1).await;

    // Two of three: one is reserved.
    let mut waiting = waiting(&permits, 3);
    until("two are granted", async || alive(&server).await == 2).await;
    until_marked(&server, 1).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(alive(&server).await, 2);

    server.cli::<()>(&["HDEL", MARKS, "another"]).await;
    for waiting in waiting.drain(..) {
        std::mem::forget(ends(waiting).await);
    }
    assert_eq!(alive(&server).await, 3);
}

#[tokio::test]
async fn one_turn_takes_an_equal_share_and_the_next_is_at_the_back() {
    let (server, permits) = so_many(4).await;
    write_lasting_mark(&server, 7, 1).await;

    // Half of four, although only one is reserved. The rest comes with the next turn, behind the other process.
    let waiting = waiting(&permits, 5);
    until("three are granted", async || alive(&server).await == 3).await;
    let marks = marks(&server).await;
    assert_eq!(marks.len(), 2);
    let own = marks.iter().find(|mark| mark.turn != 7).unwrap();
    assert!(own.turn > 7 && own.waiters == 2, "{own:?}");
    assert_eq!(own.took, 1);
    for waiting in waiting {
        waiting.abort();
    }
}

#[tokio::test]
async fn a_process_stays_in_front_until_it_has_taken_its_share() {
    let (server, holder, permits) = in_two_processes(4).await;
    let mut held = hold(&holder, 4).await;
    let waiting = waiting(&permits, 5);
    let mark = until_marked(&server, 5).await;
    write_lasting_mark(&server, mark.turn + 1, 4).await;

    // Two of four in this turn. The rest of what is free is reserved.
    for waiters in [4, 3] {
        held.pop().unwrap().release().await.unwrap();
        until_marked(&server, waiters).await;
    }
    held.clear();
    until("all are released", async || alive(&server).await == 2).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(alive(&server).await, 2);
    for waiting in waiting {
        waiting.abort();
    }
}

#[tokio::test]
async fn later_turns_reserve_nothing() {
    let (server, holder, permits) = in_two_processes(1).await;
    let held = taken(&holder).await;
    let mut waiting = waiting(&permits, 1);
    let mark = until_marked(&server, 1).await;
    write_lasting_mark(&server, mark.turn + 1, 1).await;

    drop(held);
    let lease = ends(waiting.remove(0)).await;
    // The process that has the permit now is behind the other one.
    lease.release().await.unwrap();
    none_is_free(permits.try_acquire().await);
    none_is_free(holder.try_acquire().await);
}

#[tokio::test]
async fn a_mark_that_is_not_written_again_lapses() {
    const STANDS: Duration = Duration::from_millis(300);
    let (server, permits) = so_many(1).await;
    let at = server.time_us().await;
    write_mark(&server, 1, 1, at, STANDS).await;

    let _lease = taken(&permits).await;
    let lapsed = at + u64::try_from(STANDS.as_micros()).unwrap();
    assert!(server.time_us().await >= lapsed);
    assert_eq!(marks(&server).await.len(), 0);
}

#[tokio::test]
async fn a_mark_from_before_a_step_back_of_the_clock_does_not_stand() {
    let (server, permits) = so_many(1).await;
    let in_an_hour = server.time_us().await + 3_600_000_000;
    write_mark(&server, 1, 1, in_an_hour, LONG).await;

    assert!(permits.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn the_mark_of_a_killed_process_lapses_within_the_time_of_a_lease() {
    let server = Server::start().await;
    let here = permits(&hasty(&server.url()), 1, SHORT);
    let held = taken(&here).await;
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.spawn(async move { permits(&hasty(&url), 1, SHORT).acquire().await });
    until_marked(&server, 1).await;
    sleep(Duration::from_millis(500)).await;

    // All its tasks end. The last mark that it wrote stands.
    runtime.shutdown_background();
    let mark = until_marked(&server, 1).await;
    assert!(Duration::from_micros(mark.stands) <= SHORT, "{mark:?}");
    held.release().await.unwrap();
    let _next = taken(&here).await;
    assert!(server.time_us().await >= mark.at + mark.stands);
}
