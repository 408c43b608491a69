//! Tests each rule with small texts that break it.

use super::{Fault, layering, locking, purity};

type Rule = fn(&str, &str) -> Vec<Fault>;

/// In a file with this path and this text, the rule finds a fault on each of these lines.
#[track_caller]
fn assert_found(rule: Rule, path: &str, text: &str, lines: &[usize]) {
    let faults = rule(path, text);
    let found: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(found, lines, "{path}: {text}");
}

#[test]
fn an_import_from_above_or_from_beside_is_found_anywhere_in_the_code() {
    let many =
        "use crate::time::Tick;\nuse crate::limiter::Shared;\nfn f(_: crate::stream::Pace) {}\n";
    let queue = "use crate::wait::WaitQueue;";
    let upward = "use crate::limiter::Shared;\nuse crate::concurrency::Permits;";
    let read = "use crate::time::Rate;\nuse crate::limiter::Shared;\nuse crate::policy::Policy;";
    let feedback = "use crate::feedback::Feedback;";
    for (path, text, lines) in [
        ("src/policy/interval.rs", many, &[2, 3][..]),
        ("src/limiter/shared.rs", many, &[3]),
        ("src/lib.rs", many, &[]),
        // Only layers with waiters import the queue.
        ("src/limiter/shared.rs", queue, &[]),
        ("src/concurrency/permits.rs", queue, &[]),
        ("src/stream/pace.rs", queue, &[1]),
        ("src/policy/interval.rs", queue, &[1]),
        ("src/wait/queue.rs", upward, &[1, 2]),
        // The limiter imports feedback, and not the reverse.
        ("src/feedback/mod.rs", read, &[2]),
        ("src/limiter/shared.rs", feedback, &[]),
        ("src/policy/interval.rs", feedback, &[1]),
        // A layer beside.
        ("src/sink/pace.rs", "use crate::stream::Pace;", &[1]),
        ("src/stream/pace.rs", "use crate::redis::Redis;", &[1]),
        ("src/batch/mod.rs", "use crate::policy::Policy;", &[1]),
        ("src/shed/mod.rs", "use crate::fair::FairShare;", &[1]),
        ("src/sink/group.rs", "use crate::batch::Batch;", &[]),
        // A folder without a layer.
        ("src/util/mod.rs", "", &[1]),
    ] {
        assert_found(layering, path, text, lines);
    }
}

#[test]
fn paths_that_hide_their_target_are_found() {
    for (path, text, lines) in [
        (
            "src/stream/pace.rs",
            "use crate::{\n    time::Tick,\n};",
            &[1][..],
        ),
        ("src/stream/pace.rs", "use super::super::sink;", &[1]),
        ("src/stream/mod.rs", "use super::sink::Pace;", &[1]),
        ("src/stream/mod.rs", "use crate as all;", &[1]),
        ("src/stream/pace.rs", "use super::ext::Ext;", &[]),
        ("src/stream/mod.rs", "pub(super) mod pace;", &[]),
    ] {
        assert_found(layering, path, text, lines);
    }
}

#[test]
fn every_banned_word_is_found_in_pure_code_and_words_that_resemble_them_are_not() {
    for word in super::BANNED {
        let text = format!("fn f() {{\n    {word} }}\n");
        for (path, lines) in [
            ("src/batch/mod.rs", &[2][..]),
            ("src/concurrency/aimd.rs", &[2]),
            ("src/concurrency/permits.rs", &[]),
            ("src/limiter/mod.rs", &[]),
        ] {
            assert_found(purity, path, &text, lines);
        }
    }
    let floats = "fn f(_: f64) {}\nfn g(_: f32) {}";
    let guard = "fn f(_: MutexGuard<u8>) {}\nx.unwrap();";
    let allowed = "#[expect(clippy::cast_possible_truncation)]\nassert!(x);\ny.unwrap_or(0);\nfn expects() {}";
    for (path, text, lines) in [
        ("src/policy/interval.rs", floats, &[1, 2][..]),
        ("src/feedback/mod.rs", floats, &[1, 2]),
        ("src/shed/curve.rs", floats, &[]),
        ("src/fair/mod.rs", guard, &[1, 2]),
        ("src/policy/interval.rs", allowed, &[]),
    ] {
        assert_found(purity, path, text, lines);
    }
}

#[test]
fn an_atomic_is_found_unless_a_model_tries_it() {
    for line in [
        "use core::sync::atomic::{AtomicU64, Ordering};",
        "use std::sync::atomic;",
        "    count: AtomicUsize,",
        "    fence(SeqCst);",
    ] {
        let text = format!("use std::sync::Mutex;\n{line}\n// atomic\n");
        assert_found(locking, "src/limiter/shared.rs", &text, &[2]);
        assert_found(locking, "src/wait/offer.rs", &text, &[]);
    }
}

#[test]
fn comments_literals_and_test_modules_are_not_code_and_what_is_around_them_is() {
    let text = "/// [`Shared`](crate::limiter::Shared)\n// Instant\n/* Mutex\n/* Waker */ async */\n\
                const A: &str = \"sleep // \\\" todo!\";\nconst B: &str = r#\"\"panic!\"#;\nlet c = '\"';";
    let after = format!("{text}\nfn f<'a>() {{ async {{}} }} // '\n");
    let tests = "#[cfg(test)]\nfn f() { panic!() }\n#[cfg(test)]\nmod tests {\n    use crate::stream::Pace;\n    panic!()\n}";
    for (rule, text, lines) in [
        (purity as Rule, text, &[][..]),
        (layering, text, &[]),
        (purity, &after, &[8]),
        (purity, tests, &[2]),
        (layering, tests, &[]),
    ] {
        assert_found(rule, "src/policy/interval.rs", text, lines);
    }
}

#[test]
fn a_fault_names_file_and_line() {
    let fault = &layering("src/sink/pace.rs", "\nuse crate::stream::Pace;")[0];
    assert_eq!(
        fault.to_string(),
        "src/sink/pace.rs:2: `sink` must not know `stream`"
    );
}
