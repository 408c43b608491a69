use crate::support::run;

/// Standard error of a run that an argument has ended.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let run = run("a\n", args);
    assert_eq!((run.status, run.text()), (Some(2), ""), "{run:?}");
    run.err
}

#[test]
fn a_text_that_is_no_policy_gets_the_error_of_the_library() {
    assert_eq!(
        refused(&["100/fortnight"]),
        "error: `100/fortnight` is not a policy: the unit must be one of ns, us, ms, s, min, h, day, got `fortnight`\n"
    );
    let brust = refused(&["100/min", "brust", "20"]);
    assert!(brust.starts_with("error: `100/min brust 20` is not a policy: `brust` at column 9"));
    assert!(brust.ends_with("did you mean `burst`?\n"), "{brust}");
}

#[test]
fn an_argument_that_is_wrong_is_named_with_what_would_be_right() {
    for (args, expected) in [
        (
            "100/min --burst 0",
            "error: `100/min burst 0` is not a policy:",
        ),
        ("plan 100/min fixed --burst 3", "`burst` at column 15"),
        ("1/s --by-key row", "write 'column 2'"),
        ("1/s --batch 0", "'0' for '--batch <N>'"),
        (
            "1/s --batch 2 --within 20",
            "write a whole number and a unit",
        ),
        ("1/s --batch 2 --bytes", "cannot be used with '--bytes'"),
        ("1/s --within 20ms", "--batch <N>"),
        ("1/s --max-waiting 5", "--by-key <KEY>"),
        (
            "9G/s --bytes",
            "`9G` in `9G/s` is too large: at most 4294967295 bytes",
        ),
        ("1K/s", "got `1K`"),
        ("1K/s --bytes --null", "--null is for lines"),
        (
            "60/min fixed per request --bytes",
            "`per request` is for lines",
        ),
        ("1/s --outage open", "--redis <URL>"),
        ("completions tcsh", "[possible values: bash,"),
        ("", "<POLICY>"),
    ] {
        let args: Vec<_> = args.split_whitespace().collect();
        let error = refused(&args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn there_are_completions_for_each_shell_and_a_manual_page() {
    for command in [
        "completions bash",
        "completions elvish",
        "completions fish",
        "completions powershell",
        "completions zsh",
        "man",
    ] {
        let args: Vec<_> = command.split(' ').collect();
        let printed = run("", &args);
        assert_eq!((printed.status, &*printed.err), (Some(0), ""));
        let text = printed.text().replace('\\', "");
        for option in ["by-key", "bytes", "rest"] {
            assert!(text.contains(option), "{command}: {option}");
        }
    }
}
