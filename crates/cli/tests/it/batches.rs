use std::time::Duration;

use crate::support::{Open, numbers, run};

#[test]
fn a_group_takes_one_permit_and_may_be_separated() {
    let args = ["every 40ms", "--batch", "2"];
    let plain = run(numbers(5), &args);
    assert_eq!(plain.text(), numbers(5));
    assert!(plain.time >= Duration::from_millis(80), "{plain:?}");

    let separate = [&args[..], &["--separate"]].concat();
    let groups = run(numbers(5), &separate);
    assert_eq!(groups.text(), "1\n2\n\n3\n4\n\n5\n\n");
    assert_eq!(run("1\n2\n3", &separate).text(), "1\n2\n\n3");
}

#[test]
fn a_group_that_is_full_does_not_wait_for_another_line() {
    let mut open = Open::start(["1/h", "--batch", "3"]);
    open.send("1\n2\n3\n");
    assert_eq!(open.lines(3), ["1\n", "2\n", "3\n"]);
}

#[test]
fn a_group_leaves_within_its_time() {
    let mut open = Open::start(["unlimited", "--batch", "100", "--within", "20ms"]);
    open.send("1\n2\n");
    assert_eq!(open.lines(2), ["1\n", "2\n"]);
}
