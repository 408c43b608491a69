//! Tests each rule with small texts that break it.

use super::{Fault, layering, locking, purity};

/// No line at all.
const NONE: [usize; 0] = [];

/// The lines on which `rule` finds a fault.
fn seen(rule: fn(&str, &str) -> Vec<Fault>, path: &str, text: &str) -> Vec<usize> {
    rule(path, text).iter().map(|fault| fault.line).collect()
}

#[test]
fn an_import_from_above_is_found_anywhere_in_the_code() {
    let text =
        "use crate::time::Tick;\nuse crate::limiter::Shared;\nfn f(_: crate::stream::Pace) {}\n";
    assert_eq!(seen(layering, "src/policy/interval.rs", text), [2, 3]);
    assert_eq!(seen(layering, "src/limiter/shared.rs", text), [3]);
    assert_eq!(seen(layering, "src/lib.rs", text), NONE);
}

#[test]
fn only_layers_with_waiters_import_the_queue() {
    let text = "use crate::wait::WaitQueue;";
    assert_eq!(seen(layering, "src/limiter/shared.rs", text), NONE);
    assert_eq!(seen(layering, "src/concurrency/permits.rs", text), NONE);
    assert_eq!(seen(layering, "src/stream/pace.rs", text), [1]);
    assert_eq!(seen(layering, "src/policy/interval.rs", text), [1]);
    let upward = "use crate::limiter::Shared;\nuse crate::concurrency::Permits;";
    assert_eq!(seen(layering, "src/wait/queue.rs", upward), [1, 2]);
}

#[test]
fn an_import_from_a_layer_beside_is_found() {
    assert_eq!(
        seen(layering, "src/sink/pace.rs", "use crate::stream::Pace;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/stream/pace.rs", "use crate::redis::Redis;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/batch/mod.rs", "use crate::policy::Policy;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/shed/mod.rs", "use crate::fair::FairShare;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/sink/group.rs", "use crate::batch::Batch;"),
        NONE
    );
}

#[test]
fn the_limiter_imports_feedback_and_not_the_reverse() {
    let text = "use crate::time::Rate;\nuse crate::limiter::Shared;\nuse crate::policy::Policy;";
    assert_eq!(seen(layering, "src/feedback/mod.rs", text), [2]);
    let heed = "use crate::feedback::Feedback;";
    assert_eq!(seen(layering, "src/limiter/shared.rs", heed), NONE);
    assert_eq!(seen(layering, "src/policy/interval.rs", heed), [1]);
}

#[test]
fn paths_that_hide_their_target_are_found() {
    assert_eq!(
        seen(
            layering,
            "src/stream/pace.rs",
            "use crate::{\n    time::Tick,\n};"
        ),
        [1]
    );
    assert_eq!(
        seen(layering, "src/stream/pace.rs", "use super::super::sink;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/stream/mod.rs", "use super::sink::Pace;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/stream/mod.rs", "use crate as all;"),
        [1]
    );
    assert_eq!(
        seen(layering, "src/stream/pace.rs", "use super::ext::Ext;"),
        NONE
    );
    assert_eq!(
        seen(layering, "src/stream/mod.rs", "pub(super) mod pace;"),
        NONE
    );
}

#[test]
fn a_folder_without_a_layer_is_found() {
    assert_eq!(seen(layering, "src/util/mod.rs", ""), [1]);
}

#[test]
fn every_banned_word_is_found() {
    for word in super::BANNED {
        let text = format!("fn f() {{\n    {word} }}\n");
        assert_eq!(seen(purity, "src/batch/mod.rs", &text), [2], "{word}");
        assert_eq!(
            seen(purity, "src/concurrency/aimd.rs", &text),
            [2],
            "{word}"
        );
        assert_eq!(
            seen(purity, "src/concurrency/permits.rs", &text),
            NONE,
            "{word}"
        );
        assert_eq!(seen(purity, "src/limiter/mod.rs", &text), NONE, "{word}");
    }
    assert_eq!(
        seen(
            purity,
            "src/policy/interval.rs",
            "fn f(_: f64) {}\nfn g(_: f32) {}"
        ),
        [1, 2]
    );
    assert_eq!(
        seen(
            purity,
            "src/feedback/mod.rs",
            "let now = SystemTime::now();\nfn g(_: f64) {}"
        ),
        [1, 2]
    );
    assert_eq!(seen(purity, "src/shed/curve.rs", "fn f(_: f64) {}"), NONE);
    assert_eq!(
        seen(
            purity,
            "src/fair/mod.rs",
            "fn f(_: MutexGuard<u8>) {}\nx.unwrap();"
        ),
        [1, 2]
    );
}

#[test]
fn words_that_resemble_banned_ones_are_allowed() {
    let text = "#[expect(clippy::cast_possible_truncation)]\nassert!(x);\ny.unwrap_or(0);\nfn expects() {}";
    assert_eq!(seen(purity, "src/policy/interval.rs", text), NONE);
}

#[test]
fn an_atomic_without_a_model_is_found() {
    for line in [
        "use core::sync::atomic::{AtomicU64, Ordering};",
        "use std::sync::atomic;",
        "    count: AtomicUsize,",
        "    fence(SeqCst);",
    ] {
        let text = format!("use std::sync::Mutex;\n{line}\n// atomic\n");
        assert_eq!(seen(locking, "src/limiter/shared.rs", &text), [2], "{line}");
    }
}

#[test]
fn an_atomic_is_allowed_where_a_model_tries_it() {
    let text = "use core::sync::atomic::AtomicU64;\n";
    assert_eq!(seen(locking, "src/limiter/prefetch.rs", text), NONE);
    assert_eq!(seen(locking, "src/limiter/shared.rs", text), [1]);
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = "/// [`Shared`](crate::limiter::Shared)\n// Instant\n/* Mutex\n/* Waker */ async */\n\
                const A: &str = \"sleep // \\\" todo!\";\nconst B: &str = r#\"\"panic!\"#;\nlet c = '\"';";
    assert_eq!(seen(purity, "src/policy/interval.rs", text), NONE);
    assert_eq!(seen(layering, "src/policy/interval.rs", text), NONE);
    let after = format!("{text}\nfn f<'a>() {{ async {{}} }} // '\n");
    assert_eq!(seen(purity, "src/policy/interval.rs", &after), [8]);
}

#[test]
fn test_modules_are_exempt_and_the_code_before_them_is_not() {
    let text = "#[cfg(test)]\nfn f() { panic!() }\n#[cfg(test)]\nmod tests {\n    use crate::stream::Pace;\n    panic!()\n}";
    assert_eq!(seen(purity, "src/policy/interval.rs", text), [2]);
    assert_eq!(seen(layering, "src/policy/interval.rs", text), NONE);
}

#[test]
fn a_fault_names_file_and_line() {
    let fault = &layering("src/sink/pace.rs", "\nuse crate::stream::Pace;")[0];
    assert_eq!(
        fault.to_string(),
        "src/sink/pace.rs:2: `sink` must not know `stream`"
    );
}
