//! What a caller gives wrongly is named by an error, by a panic at the caller's line, or by both with the same text.

use std::cell::RefCell;
use std::fmt::Display;
use std::panic;
use std::sync::Once;
use std::time::Duration;

use paceline::concurrency::{KeyedPermits, Permits};
use paceline::limiter::Share;
use paceline_tower::{Answers, ConcurrencyLayer, For, PaceLayer, Proxies, header_key};

use super::per_second;

/// A panic: its text, its file and its line.
type Panic = (String, String, u32);

thread_local! {
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

fn panic_of<T>(work: impl FnOnce() -> T) -> Panic {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().unwrap();
            let text = info.payload().downcast_ref::<String>().cloned();
            let literal = info.payload().downcast_ref::<&str>().copied();
            let panic = (
                text.unwrap_or_else(|| literal.unwrap_or_default().to_owned()),
                place.file().to_owned(),
                place.line(),
            );
            LAST.set(Some(panic));
            others(info);
        }));
    });
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    assert!(result.is_err(), "it panics");
    LAST.take().unwrap()
}

/// The panic has `text`, and is in this file at `line` or soon after it.
#[track_caller]
fn assert_panics<T>(line: u32, work: impl FnOnce() -> T, text: &str) -> String {
    let (panic, file, at) = panic_of(work);
    assert!(panic.contains(text), "{panic}");
    assert_eq!(file, file!());
    assert!((line..line + 7).contains(&at), "{at} is near {line}");
    panic
}

/// Both forms say the same.
#[track_caller]
fn assert_bad<T, E: Display, U>(
    line: u32,
    error: Result<T, E>,
    work: impl FnOnce() -> U,
    text: &str,
) {
    let Err(error) = error else {
        panic!("`{text}` is an error");
    };
    assert_eq!(assert_panics(line, work, text), error.to_string());
}

#[test]
fn no_time_to_wait_and_no_place_are_named() {
    let pace = || PaceLayer::<For<(), _>>::new(per_second(2));
    assert_panics(line!(), || pace().within(Duration::ZERO), "got 0 s");
    assert_panics(line!(), || pace().max_waiting(0), "got 0");

    let permits = || ConcurrencyLayer::<For<(), _>>::new(Permits::new(1));
    assert_panics(line!(), || permits().within(Duration::ZERO), "got 0 s");
    assert_panics(line!(), || permits().max_waiting(0), "got 0");
}

#[test]
fn a_share_above_all_is_named() {
    let text = "0 to 100 percent, got 101";
    let error = Share::try_percent(101);
    assert_bad(line!(), error, || Share::percent(101), text);
}

#[test]
fn proxies_that_nothing_is_trusted_of_are_named() {
    let error = Proxies::try_hops(0);
    assert_bad(line!(), error, || Proxies::hops(0), "got 0");
    let error = Proxies::try_ranges(["10.0.0.0/33"]);
    let ranges = || Proxies::ranges(["10.0.0.0/33"]);
    assert_bad(line!() - 1, error, ranges, "got 33");
}

#[test]
fn names_that_are_none_are_named() {
    let error = Answers::try_new("");
    assert_bad(line!(), error, || Answers::new(""), "got ``");
    let line = line!();
    let (key, by_header) = (
        panic_of(|| header_key::<()>("x user")),
        panic_of(|| For::<http::Request<()>, _>::header(KeyedPermits::<String>::new(1), "x user")),
    );
    let text = "`x user` is not the name of a header".to_owned();
    let expected = |line| (text.clone(), file!().to_owned(), line);
    assert_eq!([key, by_header], [expected(line + 2), expected(line + 3)]);
}
