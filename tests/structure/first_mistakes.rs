//! What the compiler says to a user who takes one thing for another.

use testkit::program::Program;

const MISTAKES: [(&str, &str); 10] = [
    (
        "let _ = every().acquire_one();",
        "`paceline::policy::Interval` is not a limiter",
    ),
    (
        "let _ = every().owned().acquire_one();",
        "`.shared()` instead of `.owned()` makes a limit that is asked with `acquire` and `try_acquire`",
    ),
    (
        "let _ = items().pace(every());",
        "a policy becomes a limiter with `.owned()` (for one adapter) or `.shared()` (for many tasks)",
    ),
    (
        "let _ = items().pace(Line::new(every().shared()));",
        "a `Line`, or a limit in Redis that fails fast, has errors: `try_pace` takes it",
    ),
    (
        "let _ = Line::new(Permits::new(1)).acquire(1);",
        "`line.acquire_permit()` of a `Line` around them",
    ),
    (
        "let _ = items().enforce(every().keyed::<String>());",
        "a `Keyed` has a limiter for each key: `keyed.at(key)`",
    ),
    (
        "let _ = every().keyed::<&str>().try_acquire(\"ann\", 1);",
        "a limit by text is `keyed::<String>()`",
    ),
    (
        "let _ = Combined::new((every().shared(), every().owned()));",
        "a policy becomes one with `.shared()`; an `Owned` belongs to one adapter",
    ),
    (
        "let _ = AnyOf::new([Line::new(every().shared())]);",
        "for limits in Redis: `All` in one limit, and `RedisLimiter::acquire_any`",
    ),
    (
        "struct Message;
         let messages = futures::stream::iter([Message]);
         let sent = messages.concurrent(Permits::new(1), async |_| Err::<(), ()>(()));
         let retry = Retry::new(RetryBudget::new(1, Share::NONE));
         let _ = sent.retry(retry, |()| Failure::Final, 1);",
        "`Message: Clone` is not satisfied",
    ),
];

#[test]
fn a_first_mistake_is_answered_with_what_is_right() {
    let package = Program::new(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/first_mistakes"),
        "[dependencies]\npaceline.path = '{workspace}'\nfutures = '0.3'",
    );
    let functions = MISTAKES.iter().enumerate().map(|(number, (mistake, _))| {
        format!("pub fn mistake_{number}() {{ {mistake} }} // ends here\n")
    });
    let program = format!(
        "use paceline::concurrency::Permits;
         use paceline::limiter::{{AnyOf, Combined, Line, Share}};
         use paceline::retry::{{Failure, Retry, RetryBudget}};
         use paceline::prelude::*;
         fn every() -> Interval {{ Interval::every(std::time::Duration::from_millis(5)) }}
         fn items() -> impl futures::Stream<Item = u8> {{ futures::stream::iter(0..3) }}
         {}",
        functions.collect::<String>()
    );
    let checked = package.cargo(&["check"], "lib.rs", &program);
    assert!(!checked.status.success());
    let errors = String::from_utf8(checked.stderr).unwrap();
    // Each error shows its line.
    let errors: Vec<_> = errors.split("\nerror").collect();
    for (number, (mistake, says)) in MISTAKES.iter().enumerate() {
        let place = format!("mistake_{number}()");
        let of_it = errors.iter().filter(|error| error.contains(&place));
        assert!(
            of_it.clone().any(|error| error.contains(says)),
            "{mistake}\n{:#?}",
            of_it.collect::<Vec<_>>()
        );
    }
}
