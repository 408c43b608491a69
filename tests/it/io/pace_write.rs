use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::FutureExt;
use paceline::limiter::Limiter;
use paceline::policy::{Decision, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::{bucket, bytes};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn writes_bytes_in_order_and_loses_none() {
    let start = now();
    let mut writer = Vec::new().pace_writes(bucket().owned());
    writer.write_all(&bytes(1_000)).await.unwrap();
    assert_eq!(since(start), 900);
    assert_eq!(writer.into_inner(), bytes(1_000));
}

#[tokio::test(start_paused = true)]
async fn an_empty_write_a_flush_and_a_shutdown_do_not_wait_for_the_limit() {
    let (mut theirs, ours) = duplex(1_024);
    let mut writer = ours.pace_writes(bucket().owned());
    assert_eq!(writer.write(&[]).now_or_never().unwrap().unwrap(), 0);
    assert_eq!(writer.write(&[1; 200]).await.unwrap(), 100);
    assert!(writer.write(&[1; 200]).now_or_never().is_none());
    assert_eq!(writer.write(&[]).now_or_never().unwrap().unwrap(), 0);
    assert!(writer.flush().now_or_never().unwrap().is_ok());
    assert!(writer.shutdown().now_or_never().unwrap().is_ok());
    let mut read = Vec::new();
    assert_eq!(theirs.read_to_end(&mut read).await.unwrap(), 100);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_a_full_peer_does_not_accept_need_one_grant() {
    let start = now();
    let (mut theirs, ours) = duplex(60);
    let mut writer = ours.pace_writes(bucket().owned());
    assert_eq!(writer.write(&[1; 100]).await.unwrap(), 60);
    let the_pipe_is_full = writer.write(&[2; 100]).now_or_never();
    assert!(the_pipe_is_full.is_none());
    theirs.read_exact(&mut [0; 60]).await.unwrap();
    let paid_for = writer.write(&[2; 100]).await.unwrap();
    assert_eq!(paid_for, 40);
    assert_eq!(since(start), 0);
    assert_eq!(writer.write(&[3; 20]).await.unwrap(), 20);
    assert_eq!(since(start), 20);
}

#[tokio::test(start_paused = true)]
async fn two_writers_share_the_bandwidth_and_feel_a_change() {
    let start = now();
    let limit = bucket().shared();
    let mut first = Vec::new().pace_writes(limit.clone());
    let mut second = Vec::new().pace_writes(limit.clone());
    tokio::spawn(async move {
        sleep(500).await;
        limit.retune(TokenBucket::new(Rate::per_second(10_000), 100));
    });
    tokio::try_join!(first.write_all(&[1; 1_000]), second.write_all(&[2; 1_000])).unwrap();
    // 600 bytes by then, and 1,400 bytes ten times as fast.
    assert_eq!(since(start), 640);
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_takes_no_more_than_the_burst() {
    let mut writer = Vec::new().pace_writes(bucket().owned());
    assert_eq!(writer.write(&[1; 500]).await.unwrap(), 100);
    assert!(writer.write(&[1; 500]).now_or_never().is_none());
    jump(ms(10_000)).await;
    let burst = writer.write(&[1; 500]).now_or_never().unwrap();
    assert_eq!(burst.unwrap(), 100);
    assert!(writer.write(&[1; 500]).now_or_never().is_none());
}

/// A limiter that breaks the law: it refuses every cost, and says that a larger one could pass.
struct Closed;

impl Limiter for Closed {
    type Error = Infallible;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        Poll::Ready(Ok(Decision::Never { capacity: 1_000 }))
    }

    fn give_up(&mut self) {}
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a limiter must let cost 1 pass in the end")]
async fn names_the_law_that_a_limiter_breaks() {
    let _ = Vec::new().pace_writes(Closed).write(&[1; 9]).await;
}
