//! The probes do what their handles say, and tell what was done to them.

use std::{task::Poll, time::Duration};

use futures::{Sink, SinkExt, Stream, stream::FusedStream};
use testkit::{
    clock,
    probe::{self, Broken},
    wakes::Driven,
};

/// Asks the sink whether it is ready.
fn ready<T>(sink: &mut Driven<probe::Sink<T>>) -> Poll<Result<(), Broken>> {
    sink.poll_with(Sink::poll_ready)
}

/// Sends without asking.
fn send<T>(sink: &mut Driven<probe::Sink<T>>, item: T) -> Result<(), Broken> {
    sink.poll_with(|sink, _| sink.start_send(item))
}

mod source {
    use super::*;

    #[test]
    fn it_emits_the_items_sent_in_order_and_wakes_for_its_end_too() {
        let (handle, source) = probe::source();
        let mut source = Driven::new(source);
        handle.send('a');
        handle.send('b');

        assert_eq!(source.poll_next(), Poll::Ready(Some('a')));
        assert_eq!(source.poll_next(), Poll::Ready(Some('b')));
        assert!(source.poll_next().is_pending());
        handle.end();
        assert!(source.is_woken() && !source.get().is_terminated());
        assert_eq!(source.poll_next(), Poll::Ready(None));
        assert!(source.get().is_terminated());
        assert_eq!(handle.polls(), 4);
    }

    #[test]
    fn it_keeps_the_latest_waker_and_wakes_it_once() {
        let (handle, source) = probe::source();
        let mut source = Driven::new(source);
        assert!(source.poll_next().is_pending());
        source.change_task();
        assert!(source.poll_next().is_pending());
        assert!(source.is_waker_kept());

        handle.send('a');
        handle.end();

        assert!(source.is_woken());
        assert_eq!(source.wakes(), 1);
    }

    #[test]
    #[should_panic(expected = "a source gives nothing after its end")]
    fn its_size_hint_is_the_number_sent_and_nothing_is_sent_after_the_end() {
        let (handle, source) = probe::source();
        handle.send('a');
        assert_eq!(source.size_hint(), (1, None));
        handle.end();
        assert_eq!(source.size_hint(), (1, Some(1)));

        handle.send('b');
    }
}

mod sink {
    use super::*;

    #[test]
    fn it_has_no_room_at_first_wakes_when_it_has_and_sending_costs_one_asking_none() {
        let (handle, sink) = probe::sink();
        let mut sink = Driven::new(sink);
        assert!(ready(&mut sink).is_pending());
        assert!(sink.is_waker_kept());

        handle.accept(1);
        assert!(sink.is_woken());
        assert_eq!(ready(&mut sink), Poll::Ready(Ok(())));
        assert_eq!(ready(&mut sink), Poll::Ready(Ok(())));

        send(&mut sink, 'a').unwrap();
        assert!(ready(&mut sink).is_pending());
        assert!(!handle.sent_when_not_ready());
    }

    #[test]
    fn accepting_all_is_for_ever_and_an_item_sent_unasked_is_taken_and_reported() {
        let (handle, sink) = probe::sink();
        let mut sink = Driven::new(sink);
        assert!(ready(&mut sink).is_pending());
        handle.accept_all();
        handle.accept(1);
        for item in 0..100 {
            assert_eq!(ready(&mut sink), Poll::Ready(Ok(())));
            send(&mut sink, item).unwrap();
        }
        assert!(handle.taken().into_iter().eq(0..100));
        assert!(!handle.sent_when_not_ready());

        send(&mut sink, 100).unwrap();
        assert!(handle.sent_when_not_ready(), "it was not asked again");
        assert_eq!(handle.taken(), [100]);

        let (handle, sink) = probe::sink();
        let mut sink = Driven::new(sink);
        assert!(ready(&mut sink).is_pending());
        send(&mut sink, 'a').unwrap();
        assert!(handle.sent_when_not_ready(), "it was pending");
    }

    #[tokio::test(start_paused = true)]
    async fn instants_count_from_its_first_call() {
        let (handle, sink) = probe::sink();
        let mut sink = Driven::new(sink);
        clock::jump(Duration::from_millis(70)).await;
        assert!(ready(&mut sink).is_pending());

        clock::jump(Duration::from_millis(30)).await;
        handle.accept(1);
        assert!(ready(&mut sink).is_ready());
        clock::jump(Duration::from_millis(5)).await;
        send(&mut sink, 'a').unwrap();

        assert_eq!(handle.taken_at(), [(Duration::from_millis(35), 'a')]);
    }

    #[test]
    fn the_next_call_fails_whichever_it_is_and_only_that() {
        let (handle, sink) = probe::sink();
        let mut sink = Driven::new(sink);
        assert!(ready(&mut sink).is_pending());
        handle.fail_next();
        assert!(sink.is_woken());
        assert_eq!(ready(&mut sink), Poll::Ready(Err(Broken)));
        assert!(ready(&mut sink).is_pending());

        handle.accept_all();
        assert!(ready(&mut sink).is_ready());
        handle.fail_next();
        assert_eq!(send(&mut sink, 'a'), Err(Broken));
        assert!(handle.taken().is_empty());

        handle.fail_next();
        let flushed = sink.poll_with(Sink::poll_flush);
        assert_eq!(flushed, Poll::Ready(Err(Broken)));
        handle.fail_next();
        let closed = sink.poll_with(Sink::poll_close);
        assert_eq!(closed, Poll::Ready(Err(Broken)));
        assert_eq!((handle.flushes(), handle.is_closed()), (0, false));
    }

    #[tokio::test]
    async fn flushes_are_counted_and_a_close_is_reported() {
        let (handle, mut sink) = probe::sink();
        handle.accept_all();
        sink.send('a').await.unwrap();
        sink.flush().await.unwrap();
        assert_eq!((handle.flushes(), handle.is_closed()), (2, false));

        sink.close().await.unwrap();

        assert!(handle.is_closed());
    }
}
