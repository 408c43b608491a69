use std::task::Poll;

use futures::{FutureExt, SinkExt};
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::sink::{GroupSends, Window};
use testkit::clock::jump;
use testkit::probe::{self, Broken, SinkHandle};
use testkit::wakes::Driven;

use super::driven::{Does, Fickle, Steps, taken_ms};
use crate::timed::{ms, now, since};

type Groups = GroupSends<probe::Sink<Vec<char>>, char>;

/// An inner sink that counts its instants from now.
fn inner() -> (SinkHandle<Vec<char>>, probe::Sink<Vec<char>>) {
    let (handle, sink) = probe::sink();
    let mut sink = Driven::new(sink);
    assert!(sink.ready().is_pending());
    (handle, sink.into_inner())
}

fn groups(max: usize) -> (SinkHandle<Vec<char>>, Driven<Groups>) {
    let (handle, sink) = inner();
    (handle, Driven::new(sink.group_sends(max, ms(100))))
}

fn feed(sink: &mut Driven<Groups>, items: &str) {
    for item in items.chars() {
        assert_eq!(sink.ready(), Poll::Ready(Ok(())), "{item}");
        sink.start(item).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_group_leaves_in_the_instant_of_its_last_item() {
    let (handle, mut sink) = groups(3);
    handle.accept_all();
    feed(&mut sink, "ab");
    jump(ms(30)).await;
    feed(&mut sink, "c");
    assert_eq!(taken_ms(&handle), [(30, vec!['a', 'b', 'c'])]);
    assert!(!handle.sent_when_not_ready());
}

#[tokio::test(start_paused = true)]
async fn collects_one_group_while_the_inner_sink_is_full() {
    let (handle, mut sink) = groups(3);
    feed(&mut sink, "abc");
    assert!(sink.ready().is_pending() && sink.is_waker_kept());
    assert!(sink.flush().is_pending());

    jump(ms(150)).await;
    handle.accept(1);
    assert!(sink.is_woken());
    feed(&mut sink, "def");
    assert_eq!(taken_ms(&handle), [(150, vec!['a', 'b', 'c'])]);
    assert!(sink.ready().is_pending());
    assert!(!handle.sent_when_not_ready());
    assert_eq!(sink.into_inner().into_parts().1, ['d', 'e', 'f']);
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_window_is_over_leaves_at_the_next_poll() {
    let (handle, mut sink) = groups(9);
    handle.accept_all();
    feed(&mut sink, "a");
    jump(ms(99)).await;
    feed(&mut sink, "b");
    assert_eq!(taken_ms(&handle), []);
    jump(ms(180)).await;
    assert!(!sink.is_woken(), "there is no timer for the window");
    assert_eq!(taken_ms(&handle), []);
    feed(&mut sink, "c");
    assert_eq!(
        handle.taken(),
        [vec!['a', 'b']],
        "without the item that came after"
    );
    assert_eq!(sink.into_inner().into_parts().1, ['c']);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_ends_between_ready_and_send_does_not_take_the_item_in() {
    let (handle, mut sink) = groups(9);
    handle.accept_all();
    feed(&mut sink, "a");
    assert!(sink.ready().is_ready());
    jump(ms(100)).await;
    sink.start('b').unwrap();
    assert_eq!(taken_ms(&handle), [(100, vec!['a'])], "with the next item");
    jump(ms(100)).await;
    assert!(sink.ready().is_ready());
    assert_eq!(taken_ms(&handle), [(200, vec!['b'])]);
}

#[tokio::test(start_paused = true)]
async fn two_groups_that_are_both_old_leave_at_the_same_poll() {
    let (handle, mut sink) = groups(9);
    feed(&mut sink, "a");
    assert!(sink.ready().is_ready());
    jump(ms(100)).await;
    sink.start('b').unwrap(); // the inner sink is full
    jump(ms(100)).await;
    handle.accept_all();
    assert!(sink.ready().is_ready());
    assert_eq!(taken_ms(&handle), [(200, vec!['a']), (200, vec!['b'])]);
}

#[tokio::test(start_paused = true)]
async fn windows_start_as_configured() {
    let from_the_first_item = [(150, "ab"), (160, "c"), (460, "de")];
    let from_the_last_group = [(150, "ab"), (160, "c"), (380, "d"), (460, "e")];
    let on_a_grid = [(150, "ab"), (160, "c"), (450, "d"), (460, "e")];
    for (window, expected) in [
        (Window::FirstItem, &from_the_first_item[..]),
        (Window::LastGroup, &from_the_last_group),
        (Window::Grid, &on_a_grid),
    ] {
        let (handle, sink) = inner();
        handle.accept_all();
        let mut sink = sink.group_sends(9, ms(100)).with_window(window);
        for (after, item) in [(0, 'a'), (50, 'b'), (100, 'c')] {
            jump(ms(after)).await;
            sink.feed(item).now_or_never().unwrap().unwrap();
        }
        jump(ms(10)).await;
        sink.flush().now_or_never().unwrap().unwrap();
        for (after, item) in [(220, 'd'), (70, 'e')] {
            jump(ms(after)).await;
            sink.feed(item).now_or_never().unwrap().unwrap();
        }
        jump(ms(10)).await;
        sink.close().await.unwrap();
        let left = taken_ms(&handle).into_iter();
        let left: Vec<_> = left
            .map(|(at, group)| (at, String::from_iter(group)))
            .collect();
        let left: Vec<_> = left
            .iter()
            .map(|(at, group)| (*at, group.as_str()))
            .collect();
        assert_eq!(left, expected, "{window:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_are_counted_from_the_first_poll_although_nothing_is_held() {
    for window in [Window::LastGroup, Window::Grid] {
        let (handle, sink) = inner();
        handle.accept_all();
        let mut sink = Driven::new(sink.group_sends(9, ms(100)).with_window(window));
        assert!(sink.ready().is_ready());
        jump(ms(30)).await;
        feed(&mut sink, "a");
        jump(ms(70)).await;
        assert!(sink.ready().is_ready());
        assert_eq!(taken_ms(&handle), [(100, vec!['a'])], "{window:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_in_order_the_items_that_a_failing_inner_sink_was_not_given() {
    let (handle, mut sink) = groups(9);
    feed(&mut sink, "a");
    assert!(sink.ready().is_ready());
    jump(ms(100)).await;
    handle.fail_next();
    assert_eq!(sink.start('b'), Err(Broken), "a had to leave");
    sink.start('b').unwrap();
    handle.fail_next();
    assert_eq!(sink.close(), Poll::Ready(Err(Broken)));
    assert_eq!(sink.into_inner().into_parts().1, ['a', 'b']);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_send_fails_is_not_held_and_is_sent_once_when_it_is_sent_again() {
    let (handle, mut sink) = groups(3);
    handle.accept_all();
    feed(&mut sink, "ab");
    handle.fail_next();
    assert_eq!(sink.start('c'), Err(Broken), "the group was full with c");
    feed(&mut sink, "cd");
    assert!(sink.flush().is_ready());
    let taken = taken_ms(&handle).into_iter();
    let groups: Vec<_> = taken.map(|(_, group)| String::from_iter(group)).collect();
    assert_eq!(groups, ["abc", "d"]);
}

/// The inner sink may join the queue of a shared limit. So it is polled only when a group has to leave.
#[tokio::test(start_paused = true)]
async fn an_incomplete_group_holds_up_no_waiter_of_the_limit_behind_it() {
    let limit = Interval::every(ms(100)).shared();
    let inner = futures::sink::drain().pace_sends(limit.clone());
    let mut sink = Driven::new(inner.group_sends(9, ms(1_000)));
    limit.acquire(1).await.unwrap();
    assert!(sink.ready().is_ready());
    sink.start('a').unwrap();
    assert!(sink.ready().is_ready());

    let start = now();
    limit.acquire(1).await.unwrap();
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 200);
}

/// `Sink::start_send` consumes what it is given, and its error does not contain it.
#[tokio::test(start_paused = true)]
async fn a_group_that_the_inner_sink_fails_to_send_is_lost() {
    let inner = Fickle::default();
    inner.0.set(Does::FailsToSend);
    let sink = GroupSends::<_, char>::try_new(inner, 2, ms(100)).unwrap();
    let mut sink = Driven::new(sink);
    assert!(sink.ready().is_ready());
    sink.start('a').unwrap();
    assert!(sink.ready().is_ready());
    assert_eq!(sink.start('b'), Err(Broken));
    assert!(sink.into_inner().into_parts().1.is_empty());
}
