use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use paceline::policy::{Interval, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::{bucket, bytes};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn reads_bytes_in_order_and_loses_none() {
    let start = now();
    let file = bytes(1_000);
    let mut reader = file.as_slice().pace_reads(bucket().owned());
    let mut read = Vec::new();
    let mut slices = Vec::new();
    loop {
        let mut buf = [0; 64];
        let count = reader.read(&mut buf).await.unwrap();
        if count == 0 {
            break;
        }
        read.extend_from_slice(&buf[..count]);
        slices.push((since(start), count));
    }
    assert_eq!(read, file);
    assert_eq!(slices[..3], [(0, 64), (28, 64), (92, 64)]);
    assert_eq!(since(start), 900);
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_at_once() {
    let start = now();
    let file = bytes(100);
    let mut reader = file.as_slice().pace_reads(bucket().owned());
    let mut read = Vec::new();
    reader.read_to_end(&mut read).await.unwrap();
    assert_eq!((read.len(), since(start)), (100, 0));

    let nothing: &[u8] = &[];
    let mut reader = nothing.pace_reads(Interval::every(ms(1_000)).with_delayed_start().owned());
    assert_eq!(reader.read_to_end(&mut read).await.unwrap(), 0);
    assert_eq!(since(start), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_no_more_than_is_asked_for_and_into_parts_returns_the_bytes_held() {
    let file = bytes(300);
    let mut reader = file.as_slice().pace_reads(bucket().owned());
    let mut buf = [0; 60];
    for _ in 0..2 {
        assert_eq!(reader.read(&mut buf).await.unwrap(), 60);
    }
    assert_eq!(buf, file[60..120]);

    let dropped = reader.read(&mut buf[..50]).now_or_never();
    assert!(dropped.is_none(), "and takes none");
    let without_room = reader.read(&mut [0; 0]).now_or_never();
    assert!(without_room.is_some(), "no wait");
    let (rest, held) = reader.into_parts();
    assert_eq!((held.as_slice(), rest), (&file[120..170], &file[170..]));
}

#[tokio::test(start_paused = true)]
async fn hands_on_slices_however_large_the_buffer_is_and_whatever_it_holds() {
    let file = bytes(20_000);
    let mut reader = file.as_slice().pace_reads(Unlimited.owned());
    let mut whole = Vec::with_capacity(20_000);
    let mut counts = Vec::new();
    while whole.len() < file.len() {
        counts.push(reader.read_buf(&mut whole).await.unwrap());
    }
    assert_eq!(counts, [8_192, 8_192, 3_616]);
    assert_eq!(whole, file);
}

#[tokio::test(start_paused = true)]
async fn holds_one_slice_at_most_however_large_the_buffer_is() {
    let file = bytes(20_000);
    let mut reader = file.as_slice().pace_reads(bucket().owned());
    assert_eq!(reader.read(&mut [0; 12_000]).await.unwrap(), 100);

    let (rest, held) = reader.into_parts();
    assert_eq!((held.as_slice(), rest), file[100..].split_at(8_092));
}

/// There is no runtime to wait in.
#[test]
fn bytes_that_were_read_are_held_when_the_limiter_panics() {
    let file = bytes(200);
    let mut reader = file.as_slice().pace_reads(bucket().owned());
    let mut buf = [0; 100];
    let read = reader.read(&mut buf).now_or_never().unwrap();
    assert_eq!(read.unwrap(), 100);

    let panicked = catch_unwind(AssertUnwindSafe(|| reader.read(&mut buf).now_or_never()));
    assert!(panicked.is_err());
    assert_eq!(reader.into_parts().1, file[100..]);
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_input_are_handed_on() {
    let mut reader = failing().pace_reads(bucket().owned());
    let mut read = Vec::new();
    let failed = reader.read_to_end(&mut read).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::BrokenPipe);
    assert_eq!(read, [1, 2, 3]);
}

/// Three bytes, and then a failure.
fn failing() -> impl tokio::io::AsyncRead {
    let failure = std::io::Error::from(ErrorKind::BrokenPipe);
    let stream = futures::stream::iter([Ok(&[1_u8, 2, 3][..]), Err(failure)]);
    tokio_util::io::StreamReader::new(stream)
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_is_waited_for_and_feels_the_limit() {
    let start = now();
    let (mut theirs, ours) = duplex(64);
    let sending = tokio::spawn(async move {
        theirs.write_all(&bytes(500)).await.unwrap();
    });
    let mut read = Vec::new();
    ours.pace_reads(bucket().shared())
        .read_to_end(&mut read)
        .await
        .unwrap();
    sending.await.unwrap();
    assert_eq!(read, bytes(500));
    assert_eq!(since(start), 400);
}

#[tokio::test(start_paused = true)]
async fn slices_grow_again_with_the_limit() {
    let limit = TokenBucket::new(Rate::per_second(1_000), 10).shared();
    let file = bytes(1_000_000);
    let mut reader = file.as_slice().pace_reads(limit.clone());
    let mut buf = vec![0; 1_000_000];
    reader.read_exact(&mut buf[..100]).await.unwrap();
    assert_eq!(limit.stats().passed, 10, "ten bytes each");

    limit.retune(TokenBucket::new(Rate::per_second(1_000_000), 1_000_000));
    reader.read_exact(&mut buf[100..]).await.unwrap();
    assert_eq!(buf, file);
    let passed = limit.stats().passed;
    assert!(passed < 400, "{passed} slices");
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_fills_from_the_first_poll_on() {
    let start = now();
    let (mut theirs, ours) = duplex(200);
    let sending = tokio::spawn(async move {
        sleep(50).await;
        theirs.write_all(&bytes(50)).await.unwrap();
    });
    let mut reader = ours.pace_reads(bucket().with_empty_start().owned());
    let mut read = [0; 50];
    reader.read_exact(&mut read).await.unwrap();
    sending.await.unwrap();
    assert_eq!(since(start), 50);
}
