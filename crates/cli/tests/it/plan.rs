use crate::support::run;

/// What is printed of a policy, each line as `name: value`.
#[track_caller]
fn plan(args: &[&str]) -> String {
    let run = run("", &[&["plan"], args].concat());
    assert_eq!((run.status, &*run.err), (Some(0), ""));
    let lines = run.text().lines().map(|line| {
        let (name, value) = line.split_at(24);
        format!("{}: {value}\n", name.trim_end())
    });
    lines.collect()
}

#[test]
fn of_a_burst() {
    assert_eq!(
        plan(&["100/min", "--burst", "20"]),
        "policy: 100/min burst 20\n\
         at once, after a rest: 20\n\
         in any second: 21\n\
         in any minute: 119\n\
         sustained: 1.667/s, 100/min, 6000/h\n\
         gap: 600ms\n\
         longest wait: 600ms\n\
         next burst after: 12s\n"
    );
}

#[test]
fn of_a_burst_of_one() {
    assert_eq!(
        plan(&["30/s", "burst", "1"]),
        "policy: 30/s burst 1\n\
         at once, after a rest: 1\n\
         in any second: 30\n\
         in any minute: 1800\n\
         sustained: 30/s, 1800/min, 107999.998/h\n\
         gap: 33.333334ms\n\
         longest wait: 33.333334ms\n\
         next burst after: 33.333334ms\n"
    );
}

#[test]
fn of_a_log() {
    assert_eq!(
        plan(&["100/min"]),
        "policy: 100/min sliding\n\
         at once, after a rest: 100\n\
         in any second: 100\n\
         in any minute: 100\n\
         sustained: 1.667/s, 100/min, 6000/h\n\
         gap: 0ns to 1min\n\
         longest wait: 1min\n\
         next burst after: 1min\n"
    );
}

#[test]
fn of_a_strict_counter() {
    assert_eq!(
        plan(&["100/min sliding 10 buckets"]),
        "policy: 100/min sliding 10 buckets\n\
         at once, after a rest: 100\n\
         in any second: 100\n\
         in any minute: 100\n\
         sustained: 1.515/s, 90.909/min, 5454.545/h\n\
         gap: 0ns to 66s\n\
         longest wait: 66s\n\
         next burst after: 66s\n"
    );
}

#[test]
fn of_a_smooth_counter() {
    assert_eq!(
        plan(&["100/min", "smooth"]),
        "policy: 100/min smooth\n\
         at once, after a rest: 100\n\
         in any second: 101\n\
         in any minute: 198\n\
         sustained: 1.65/s, 99/min, 5940/h\n\
         gap: 600ms to 606.060607ms\n\
         longest wait: 60600ms\n\
         next burst after: 2min\n"
    );
}

#[test]
fn of_a_fixed_window() {
    assert_eq!(
        plan(&["100/min", "fixed"]),
        "policy: 100/min fixed\n\
         at once, after a rest: 100\n\
         in any second: 199\n\
         in any minute: 199\n\
         sustained: 1.667/s, 100/min, 6000/h\n\
         gap: 0ns to 1min\n\
         longest wait: 1min\n\
         next burst after: 1min\n"
    );
}

/// The time until the next burst is that until midnight.
#[test]
fn of_an_aligned_window() {
    let plan = plan(&["100/day aligned"]);
    let expected = "policy: 100/day aligned\n\
         at once, after a rest: 100\n";
    assert!(plan.starts_with(expected), "{plan}");
}

#[test]
fn of_an_interval() {
    assert_eq!(
        plan(&["every", "50ms"]),
        "policy: every 50ms\n\
         at once, after a rest: 1\n\
         in any 50ms: 1\n\
         in any second: 20\n\
         in any minute: 1200\n\
         sustained: 20/s, 1200/min, 72000/h\n\
         gap: 50ms\n\
         longest wait: 50ms\n\
         next burst after: 50ms\n"
    );
}

#[test]
fn of_an_interval_that_is_delayed() {
    assert_eq!(
        plan(&["every 2s delayed"]),
        "policy: every 2s delayed\n\
         at once, after a rest: 1\n\
         in any second: 1\n\
         in any 2s: 1\n\
         in any minute: 30\n\
         sustained: 0.5/s, 30/min, 1800/h\n\
         gap: 2s\n\
         longest wait: 2s\n\
         next burst after: 2s\n"
    );
}

#[test]
fn of_several() {
    assert_eq!(
        plan(&["10/s and 500/day"]),
        "policy: 10/s sliding and 500/day sliding\n\
         at once, after a rest: 10\n\
         in any second: 10\n\
         in any minute: 500\n\
         in any 1day: 500\n\
         sustained: 0.006/s, 0.347/min, 20.833/h\n\
         gap: 0ns to 86351s\n\
         longest wait: 86351s\n\
         next burst after: 1s\n"
    );
}

#[test]
fn of_requests() {
    assert_eq!(
        plan(&["60/min fixed per request"]),
        "policy: 60/min fixed\n\
         at once, after a rest: 60\n\
         in any second: 119\n\
         in any minute: 119\n\
         sustained: 1/s, 60/min, 3600/h\n\
         gap: 0ns to 1min\n\
         longest wait: 1min\n\
         next burst after: 1min\n"
    );
}

#[test]
fn of_no_limit() {
    assert_eq!(
        plan(&["unlimited"]),
        "policy: unlimited\n\
         at once: everything\n"
    );
}
