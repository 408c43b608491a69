use crate::support::run;

/// What is printed of a policy, each line with its name.
#[track_caller]
fn plan(args: &str) -> Vec<(String, String)> {
    let args: Vec<_> = ["plan"].into_iter().chain(args.split(' ')).collect();
    let run = run("", &args);
    assert_eq!((run.status, &*run.err), (Some(0), ""));
    let lines = run.text().lines().map(|line| line.split_at(24));
    let lines = lines.map(|(name, value)| (name.trim_end().to_owned(), value.to_owned()));
    lines.collect()
}

const HEADER: &str =
    "policy | at once, after a rest | most | sustained | gap | longest wait | next burst after";

/// Arguments, and the cells that belong to the header. The most that passes in any time is one cell.
const PLANS: &str = "\
100/min --burst 20: 100/min burst 20 | 20 | 21 in any second, 119 in any minute | 1.667/s, 100/min, 6000/h | 600ms | 600ms | 12s
30/s burst 1: 30/s burst 1 | 1 | 30 in any second, 1800 in any minute | 30/s, 1800/min, 107999.998/h | 33.333334ms | 33.333334ms | 33.333334ms
100/min: 100/min sliding | 100 | 100 in any second, 100 in any minute | 1.667/s, 100/min, 6000/h | 0ns to 1min | 1min | 1min
100/min sliding 10 buckets: 100/min sliding 10 buckets | 100 | 100 in any second, 100 in any minute | 1.515/s, 90.909/min, 5454.545/h | 0ns to 66s | 66s | 66s
100/min smooth: 100/min smooth | 100 | 101 in any second, 198 in any minute | 1.65/s, 99/min, 5940/h | 600ms to 606.060607ms | 60600ms | 2min
100/min fixed: 100/min fixed | 100 | 199 in any second, 199 in any minute | 1.667/s, 100/min, 6000/h | 0ns to 1min | 1min | 1min
every 50ms: every 50ms | 1 | 1 in any 50ms, 20 in any second, 1200 in any minute | 20/s, 1200/min, 72000/h | 50ms | 50ms | 50ms
10/s margin 80ms: 10/1080ms sliding | 10 | 10 in any second, 10 in any 1080ms, 560 in any minute | 9.259/s, 555.556/min, 33333.333/h | 0ns to 1080ms | 1080ms | 1080ms
every 2s delayed: every 2s delayed | 1 | 1 in any second, 1 in any 2s, 30 in any minute | 0.5/s, 30/min, 1800/h | 2s | 2s | 2s
10/s and 500/day: 10/s sliding and 500/day sliding | 10 | 10 in any second, 500 in any minute, 500 in any 1day | 0.006/s, 0.347/min, 20.833/h | 0ns to 86351s | 86351s | 1s
1K/s --bytes: 1024/s burst 256 start 0 | 256 | 1279 in any second, 61695 in any minute | 1024/s, 61440/min, 3686400/h | 976.562µs to 976.563µs | 976.563µs | 250ms
60/min fixed per request: 60/min fixed | 60 | 119 in any second, 119 in any minute | 1/s, 60/min, 3600/h | 0ns to 1min | 1min | 1min
";

#[test]
fn the_plan_of_each_kind_of_policy() {
    for row in PLANS.lines() {
        let (args, expected) = row.split_once(": ").unwrap();
        let (mut names, mut cells, mut most) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in plan(args) {
            if name.starts_with("in any") {
                most.push(format!("{value} {name}"));
            } else {
                names.push(name);
                cells.push(value);
            }
        }
        names.insert(2, "most".to_owned());
        cells.insert(2, most.join(", "));
        assert_eq!(names.join(" | "), HEADER, "{args}");
        assert_eq!(cells.join(" | "), expected, "{args}");
    }
}

#[test]
fn the_plan_of_an_aligned_window_and_of_no_limit() {
    let [at_once, everything] = ["at once, after a rest", "at once"];
    for (args, known) in [
        // The time until the next burst is that until midnight.
        ("100/day aligned", (at_once, "100")),
        ("unlimited", (everything, "everything")),
    ] {
        let plan = plan(args);
        let known = [("policy", args), known];
        let known = known.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(plan[..2], known);
        assert_eq!(plan.len() == 2, args == "unlimited");
    }
}
