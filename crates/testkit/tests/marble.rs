//! Rows are read as they are drawn, played in time, and drawn as it happened.

use std::{
    future,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
    time::Duration,
};

use futures::{
    FutureExt, Stream, StreamExt,
    stream::{self, FusedStream},
};
use testkit::{
    clock::{self, Stopwatch},
    marble::{self, Failure, Mark, Row, TICK},
    wakes::Driven,
};

/// What a panic said.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<String>().unwrap()
}

/// The message about a bad row.
fn complaint<T>(read: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(read()))).unwrap_err();
    message(&*panic).to_owned()
}

/// The item, later by a delay.
async fn later<T>(item: T, by: Duration) -> T {
    let never = tokio::time::timeout(by, future::pending::<()>());
    never.await.unwrap_err();
    item
}

mod rows {
    use super::*;

    #[test]
    fn white_space_and_empty_ticks_at_the_end_do_not_matter() {
        assert_eq!(Row::new(" ( a b )\n -[cd]   | "), "(ab) - [cd] |");
        assert_eq!(Row::new("a - b - - -"), "a - b");
    }

    #[test]
    fn ticks_items_order_groups_and_ends_matter() {
        for other in [
            "a - (cb) |",
            "a (bc) |",
            "a - - (bc) |",
            "a - (bc|)",
            "a - (bc)",
            "a - [bc] |",
            "a - ([b]c) |",
            "d - (bc) |",
            "a - b c |",
        ] {
            assert_ne!(Row::new("a - (bc) |"), other);
        }
    }

    #[test]
    fn a_row_is_drawn_as_it_was_read() {
        for row in [
            "",
            "a",
            "|",
            "- - (ab|)",
            "[ab] - ([a][b]|)",
            "X - (aX) 1 |",
        ] {
            assert_eq!(Row::new(row).to_string(), row);
            assert_eq!(format!("{:?}", Row::new(row)), row);
        }
    }

    #[test]
    fn every_mistake_in_a_row_is_shown_with_its_place_and_how_to_draw_it() {
        assert_eq!(
            complaint(|| Row::new("a - + |")),
            "not a marble row, at position 4: a tick is a letter or digit, `X`, `-`, `|`, `(ab)` for several things \
             or `[ab]` for a group\n  a - + |\n      ^"
        );
        for (row, position, wish) in [
            ("a | -", 4, "nothing may follow the end, `|`"),
            ("a | |", 4, "nothing may follow the end, `|`"),
            ("(|a)", 2, "nothing may follow the end, `|`, but `)`"),
            ("a ()", 3, "an empty tick is drawn `-`"),
            ("(a-)", 2, "they are one tick"),
            ("(a(b))", 2, "they are one tick"),
            ("(ab", 3, "a `)` should close the tick"),
            ("[ab", 3, "a `]` should close the group"),
            ("[a-]", 2, "only items stand in a group"),
            ("a)", 1, "a tick is"),
            ("a …", 2, "a tick is"),
        ] {
            let complaint = complaint(|| Row::new(row));
            assert!(
                complaint.contains(&format!("position {position}: ")),
                "{complaint}"
            );
            assert!(complaint.contains(wish), "{complaint}");
        }
    }

    #[test]
    fn results_and_groups_are_marked() {
        assert_eq!(Ok::<_, ()>(vec!['a', 'b']).mark(), "[ab]");
        assert_eq!(vec![Ok('a'), Err(())].mark(), "[aX]");
    }
}

mod sources {
    use super::*;

    async fn with_instants<T>(stream: impl Stream<Item = T>) -> Vec<(u128, T)> {
        let watch = Stopwatch::start();
        let timed = stream.map(|item| (watch.elapsed_ms(), item));
        timed.collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn every_item_comes_at_its_tick_from_the_first_poll_on_and_an_x_is_a_failure() {
        assert_eq!(
            with_instants(marble::source("a - (bc) - - d |")).await,
            [(0, 'a'), (20, 'b'), (20, 'c'), (50, 'd')]
        );
        assert_eq!(
            with_instants(marble::try_source("a - (bX) |")).await,
            [(0, Ok('a')), (20, Ok('b')), (20, Err(Failure))]
        );
        let source = marble::source("- a |");
        clock::jump(TICK * 5).await;
        assert_eq!(with_instants(source).await, [(10, 'a')]);
    }

    #[test]
    fn a_source_is_built_and_hints_outside_a_runtime() {
        assert_eq!(marble::source("a - b |").size_hint(), (2, Some(2)));
        assert_eq!(marble::source("a - b").size_hint(), (2, None));
        assert_eq!(marble::try_source("a X |").size_hint(), (2, Some(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_for_ever_and_terminated() {
        let mut source = Driven::new(marble::source("a |"));
        assert_eq!(source.poll_next(), Poll::Ready(Some('a')));
        assert_eq!(source.get().size_hint(), (0, Some(0)));
        assert_eq!(source.poll_next(), Poll::Pending);
        assert!(!source.get().is_terminated());

        clock::jump(TICK).await;
        assert_eq!(source.poll_next(), Poll::Ready(None));
        assert_eq!(source.poll_next(), Poll::Ready(None));
        assert!(source.get().is_terminated());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_end_it_is_pending_for_ever_and_keeps_the_waker() {
        let mut source = Driven::new(marble::source("a"));
        assert_eq!(source.poll_next(), Poll::Ready(Some('a')));
        assert_eq!(source.poll_next(), Poll::Pending);
        assert!(source.is_waker_kept());

        clock::jump(Duration::from_secs(9999)).await;
        assert!(!source.is_woken());
        assert_eq!(source.poll_next(), Poll::Pending);
    }
}

mod runs {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn things_between_ticks_or_after_a_long_gap_are_drawn_with_their_instants() {
        let late = marble::source("a b - c |").then(|item| later(item, Duration::from_millis(5)));

        let row = marble::run(late).await;

        assert_eq!(row.to_string(), "- a@5ms - b@15ms - - c@35ms |");
        assert_ne!(row, "a b - c |");

        let slow = stream::iter(['a']).then(|item| later(item, Duration::from_secs(60)));
        let row = marble::run(slow.chain(marble::source("- b |"))).await;

        assert_eq!(row.to_string(), "a@60s b |");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_ends_in_an_ellipsis_after_an_hour_and_equals_nothing_drawn() {
        let watch = Stopwatch::start();

        let row = marble::run(marble::source("a - b")).await;

        assert_eq!(row.to_string(), "a - b …");
        assert_ne!(row, "a - b");
        assert_eq!(watch.elapsed(), TICK * 2 + Duration::from_secs(3600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_wakes_itself_for_ever_spins_and_one_that_never_stops_giving_goes_on() {
        let spin = stream::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<Option<char>>::Pending
        });
        assert_eq!(marble::run(spin).await.to_string(), "… (spins)");

        let at_once = stream::repeat('a');
        let in_time = stream::repeat('a').then(|item| later(item, TICK));

        for row in [marble::run(at_once).await, marble::run(in_time).await] {
            assert!(row.to_string().ends_with(" … (goes on)"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_is_not_polled_after_its_end() {
        let mut ended = false;
        let brittle = stream::poll_fn(move |_| {
            assert!(!ended, "polled after its end");
            ended = true;
            Poll::Ready(None::<char>)
        });

        assert_eq!(marble::run(brittle).await, "|");
    }
}

mod checks {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_as_drawn_passes() {
        marble::check(|input| input, "a - (bc) |", "a - (bc) |").await;
        marble::check(|input| input.ready_chunks(2), "a (bc)|", "[a] [bc] |").await;
        marble::try_check(|input| input, "a X |", "a X |").await;
    }

    #[tokio::test(start_paused = true)]
    async fn both_rows_start_together_even_if_the_input_is_first_polled_later() {
        let later_polled = |input| stream::once(later(input, TICK * 2)).flatten();

        marble::check(later_polled, "a b - c |", "- - (ab) c |").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_shows_all_rows_aligned_by_instant_and_names_the_line() {
        let line = line!() + 1;
        let check = marble::check(|input| input.ready_chunks(2), "(abc) - d |", "[ab] [c] |");
        let between_ticks = marble::check(
            |input| input.then(|item| later(item, Duration::from_millis(5))),
            "a - b |",
            "a - b |",
        );
        let panic = AssertUnwindSafe(check).catch_unwind().await.unwrap_err();

        let place = format!("not as drawn at {}:{line}:21", file!());
        let (named, rows) = message(&*panic).split_once('\n').unwrap();
        assert_eq!(named, place);
        assert_eq!(
            rows,
            [
                "   input  (abc)     -   d   |",
                "expected  [ab]      [c] |",
                "  actual  ([ab][c]) -   [d] |"
            ]
            .join("\n")
        );
        let check = AssertUnwindSafe(between_ticks).catch_unwind();
        assert!(
            message(&*check.await.unwrap_err()).ends_with(
                &[
                    "   input  a       - b        |",
                    "expected  a       - b        |",
                    "  actual  - a@5ms - - b@25ms |"
                ]
                .join("\n")
            )
        );
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "  actual  a - b …")]
    async fn a_hang_is_never_as_drawn() {
        marble::check(|input| input, "a - b", "a - b").await;
    }

    #[test]
    fn a_bad_row_is_refused_before_anything_is_polled() {
        let refuses = |complaint: String, wish: &str| {
            let wish = format!("position {wish}");
            assert!(complaint.contains(&wish), "{complaint}");
        };
        let bad = complaint(|| marble::source("a X |"));
        refuses(bad, "2: errors, `X`, are for `try_source`");
        let bad = complaint(|| marble::try_source("a ([c]) |"));
        refuses(bad, "3: groups are for outputs");
        let bad = complaint(|| marble::check(|input| input, "a +", "a |"));
        refuses(bad, "2: a tick is");
        let bad = complaint(|| marble::check(|input| input, "a |", "a | b"));
        refuses(bad, "4: nothing may follow");
        let bad = complaint(|| marble::check_on_demand(|input| input, "a |", "? a", "a |"));
        refuses(bad, "2: a demand row has only `?` and `-`");
    }

    #[tokio::test(start_paused = true)]
    async fn a_consumer_asks_only_at_question_marks_and_if_it_is_late_at_once() {
        for [input, demand, output] in [
            [
                "(abcd)  - - - - |",
                "?       - ? - -  ",
                "a       - b - - (cd|)",
            ],
            // It got its item late, and asks at once for the next.
            [
                "- - - (abc) - - |",
                "? ? - -     - ?  ",
                "- - - (ab)  - c |",
            ],
            // Time counts from the first tick of the demand.
            ["a b c - - - |", "- - - ?", "- - - a (bc) - |"],
        ] {
            marble::check_on_demand(|input| input, input, demand, output).await;
        }
    }
}
