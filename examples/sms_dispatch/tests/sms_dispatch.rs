//! Runs the `sms_dispatch` example as a user does, and checks its exit status, its output and its files.

#[path = "../../strict/running.rs"]
mod running;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::running::{Run, Scratch, count};

const HEADER: &str = "id,provider,to,text\n";

impl Scratch {
    fn new(test: &str) -> Self {
        Self::of("sms_dispatch", test)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Starts the example in this directory, with the words of `args`.
    fn start(&self, args: &str) -> Child {
        let args: Vec<&str> = args.split_whitespace().collect();
        self.command(EXAMPLE, &args).spawn().unwrap()
    }

    fn run(&self, args: &str) -> Run {
        self.start(args).wait_with_output().unwrap().into()
    }

    /// Runs the example with these rows as its standard input.
    fn feed(&self, rows: &str, args: &str) -> Run {
        let mut child = self.start(&format!("- --json {args}"));
        let mut input = child.stdin.take().unwrap();
        write!(input, "{HEADER}{rows}").unwrap();
        drop(input);
        child.wait_with_output().unwrap().into()
    }
}

impl Run {
    /// The JSON of the run. It checks the sums, which must be right in every run.
    #[track_caller]
    fn report(&self) -> Value {
        let report = self.json();
        assert_eq!(
            report["rows"],
            count(&report, "sent") + count(&report, "unsent") + count(&report, "bad_rows"),
        );
        let sums = ["sent", "unsent", "duplicates"];
        for sum in [sums, ["violations", "announcements", "bans"]].concat() {
            let providers = report["providers"].as_array().unwrap();
            let each = providers.iter().map(|provider| count(provider, sum));
            assert_eq!(each.sum::<u64>(), count(&report, sum), "{sum}");
        }
        report
    }
}

const EXAMPLE: &str = env!("CARGO_BIN_EXE_sms_dispatch");

fn of<'a>(report: &'a Value, provider: &str) -> &'a Value {
    let providers = report["providers"].as_array().unwrap();
    providers
        .iter()
        .find(|line| line["provider"] == provider)
        .unwrap()
}

/// The ids in a CSV file, in their order.
fn ids(path: &Path) -> Vec<String> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader
        .records()
        .map(|record| record.unwrap()[0].to_owned())
        .collect()
}

/// Good rows for one provider.
fn rows(provider: &str, count: usize) -> String {
    let row = |id| format!("{provider}{id},{provider},+4915112345678,message {id}\n");
    (0..count).map(row).collect()
}

#[test]
fn every_message_is_sent_and_no_quota_is_exceeded() {
    let run = Scratch::new("all").run("--limit 40 --skip-bad --json");
    let report = run.report();

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(count(&report, "sent"), 120);
    assert_eq!(count(&report, "bad_rows"), 10);
    assert_eq!(count(&report, "violations"), 0, "{report}");
    assert_eq!(count(&report, "duplicates"), 0);
    assert_eq!(report["mode"], "paced");
    for provider in report["providers"].as_array().unwrap() {
        let percent = provider["percent_of_allowed"].as_f64().unwrap();
        assert!(percent > 0.0 && percent <= 100.0, "{provider}");
        if provider["kept_apart_by"] == "margin" {
            assert!(provider["margin_worst_ms"].as_f64().unwrap() > 0.0);
        } else {
            assert_eq!(provider["kept_apart_by"], "cool-down");
            assert_eq!(provider["margin_worst_ms"], Value::Null);
        }
    }
    let codes = &report["codes"];
    let ended = ["sent", "too_late", "given_up"].map(|end| count(codes, end));
    assert_eq!(ended.iter().sum::<u64>(), 40, "{report}");
    assert_eq!(count(codes, "unsent"), 0);
    assert_eq!(count(codes, "failed"), 1, "{report}");
    assert_eq!(count(codes, "out_of_order"), 0);
}

#[test]
fn passwords_and_news_that_were_stopped_are_unsent() {
    let run = Scratch::new("codes").run("--for 1 --json");
    let report = run.json();

    assert_eq!(run.status, Some(3), "{run:?}");
    let codes = &report["codes"];
    let all = ["sent", "too_late", "given_up", "unsent"].map(|end| count(codes, end));
    assert_eq!(all.iter().sum::<u64>(), 400, "{report}");
    // One each 50 ms comes.
    assert!(count(codes, "unsent") >= 400 - 21, "{report}");
}

#[test]
fn a_lower_quota_is_obeyed_and_nothing_is_lost() {
    let run = Scratch::new("lower").feed(&rows("bulk", 120), "");
    let report = run.report();
    let bulk = of(&report, "bulk");

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(count(bulk, "sent"), 120);
    assert_eq!(count(bulk, "accepted"), 120);
    assert_eq!(count(bulk, "duplicates"), 0);
    assert_eq!(bulk["lowered_quota"], "3 batches in any 1 s");
    // On a machine that stalls, the dispatcher may be slow enough for the lower quota. Then an accepting answer announces it.
    assert!(count(bulk, "announcements") <= 1, "{bulk}");
    assert_eq!(count(&report, "violations"), 0, "{report}");
    assert_eq!(count(&report, "bans"), 0, "{report}");
    // Six batches under the old quota, then one new window without emissions. (The time of an emission is taken just before
    // the limit decides, and the report rounds.)
    let at = |instant: &str| bulk[instant].as_f64().unwrap();
    assert!(at("told_at_s") >= 1.49, "{bulk}");
    assert!(at("obeyed_at_s") >= at("told_at_s") + 0.99, "{bulk}");
    // The last six batches, a third of a second apart.
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(seconds >= at("obeyed_at_s") + 1.65, "{report}");
}

#[test]
fn an_unchanged_quota_is_not_announced() {
    let run = Scratch::new("same").feed(&rows("bulk", 60), "--lower-quota-at 100");
    let report = run.report();
    let bulk = of(&report, "bulk");

    assert_eq!(count(bulk, "sent"), 60);
    assert_eq!(count(bulk, "announcements"), 0);
    for absent in ["lowered_quota", "told_at_s", "obeyed_at_s"] {
        assert_eq!(bulk[absent], Value::Null, "{absent}");
    }
}

#[test]
fn a_client_that_ignores_a_lower_quota_is_banned() {
    // Lowered before the first request, so that the first answer announces it.
    let args = "--naive throttle --lower-quota-at 0";
    let run = Scratch::new("deaf").feed(&rows("bulk", 100), args);
    let report = run.report();
    let bulk = of(&report, "bulk");

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(bulk["told_at_s"], Value::Null);
    assert_eq!(count(bulk, "announcements"), 0);
    assert!(count(bulk, "violations") > 0, "{bulk}");
    assert!(count(bulk, "bans") > 0, "{bulk}");
}

#[test]
fn the_table_is_the_whole_standard_output() {
    let run = Scratch::new("table").run("--limit 3 --skip-bad");

    assert!(run.out.starts_with('┌'), "{run:?}");
    assert!(
        run.out
            .contains("19 rows = 9 sent + 0 unsent + 10 bad; 0 duplicates;"),
        "{run:?}"
    );
    for row in ["announcements", "kept apart by", "told/obeyed at s"] {
        assert!(run.out.contains(row), "{row}: {run:?}");
    }
}

#[test]
fn bad_rows_are_reported_with_their_lines_and_the_others_are_sent() {
    let scratch = Scratch::new("bad");
    let mut input = HEADER.as_bytes().to_vec();
    input.extend(b"a,solo,+4915112345678,\"two\nlines\"\n");
    input.extend(b"b,telco,+4915112345678,hi\n");
    input.extend(b"c,solo\n");
    input.extend(b"d,solo,015112345678,hi\n");
    input.extend(b"e,solo,+4915112345678,\n");
    input.extend(b"a,solo,+4915112345678,again\n");
    input.extend(b"f,solo,+4915112345678,caf\xe9\n");
    input.extend(format!("g,segments,+4915112345678,{}\n", "x".repeat(700)).bytes());
    input.extend(b"h,bulk,+4915112345678,last\n");
    scratch.file("rows.csv", input);

    let run = scratch.run("rows.csv --json");
    let report = run.report();

    assert_eq!(run.status, Some(1), "{run:?}");
    for line in [
        "line 4: unknown provider \"telco\", known are solo, bulk, segments",
        "line 5: 2 columns where 4 are needed",
        "line 6: the number \"015112345678\" is not + and 7 to 15 digits",
        "line 7: the text is empty",
        "line 8: the id \"a\" is taken by line 2",
        "line 9: the text is not UTF-8",
        "line 10: the text takes 5 segments, segments takes at most 4",
    ] {
        assert!(run.err.lines().any(|said| said == line), "{line}: {run:?}");
    }
    assert_eq!((count(&report, "sent"), count(&report, "bad_rows")), (2, 7));
}

#[test]
fn unusable_input_ends_it_with_a_message_and_status_2() {
    let scratch = Scratch::new("nonsense");
    scratch.file("headless.csv", rows("bulk", 3));
    scratch.file("unclosed.csv", format!("\"{HEADER}{}", rows("bulk", 3)));
    scratch.file("binary", [0xff, 0, 0xfe, b'\n', 7, 7]);
    scratch.file("header.csv", HEADER);
    for (args, said) in [
        ("no/such.csv", "no/such.csv: "),
        ("-", "the input is empty"),
        ("headless.csv", "the header is \"bulk0,bulk,"),
        ("unclosed.csv", "line 1: a quote is opened and not closed"),
        ("binary", "the header is "),
        ("header.csv", "not one row"),
        ("--naive perfectly", "invalid value 'perfectly'"),
        ("--limit 0", "invalid value '0' for '--limit <N>'"),
        (
            "--lower-quota-at 101",
            "invalid value '101' for '--lower-quota-at <PERCENT>'",
        ),
        ("--down telco", "possible values: solo, bulk, segments"),
        ("--nonsense", "--nonsense"),
    ] {
        let run = scratch.run(args);
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.err.contains(said), "{said}: {run:?}");
        assert_eq!(run.out, "");
    }
}

#[test]
fn unsent_messages_of_a_dead_provider_can_be_sent_by_another_run() {
    let scratch = Scratch::new("down");
    let input = format!("{HEADER}{}{}", rows("solo", 5), rows("bulk", 12));
    let input = scratch.file("rows.csv", input);
    // The file of an earlier run.
    let earlier = scratch.file("unsent.csv", "not to be overwritten");

    let run = scratch.run("rows.csv --down bulk --retries 1 --json");
    let report = run.report();
    assert_eq!(run.status, Some(3), "{run:?}");
    assert_eq!(count(of(&report, "solo"), "sent"), 5);
    assert_eq!(count(of(&report, "bulk"), "unsent"), 12);
    assert!(
        run.err.contains("bulk was given up: it answered 503"),
        "{run:?}"
    );
    assert_eq!(
        fs::read_to_string(earlier).unwrap(),
        "not to be overwritten"
    );

    let unsent = scratch.0.join("unsent-2.csv");
    assert_eq!(ids(&unsent), ids(&input)[5..]);
    let again = scratch.run("unsent-2.csv --json");
    assert_eq!(again.status, Some(0), "{again:?}");
    assert_eq!(count(of(&again.report(), "bulk"), "sent"), 12);
}

#[test]
fn a_lost_answer_is_a_duplicate_at_the_provider_and_no_loss() {
    for provider in ["solo", "bulk", "segments"] {
        let scratch = Scratch::new(provider);
        let messages = if provider == "bulk" { 205 } else { 45 };
        let run = scratch.feed(
            &rows(provider, messages),
            &format!("--lose-answers {provider}"),
        );
        let report = run.report();

        assert_eq!(run.status, Some(0), "{run:?}");
        assert_eq!(count(&report, "sent"), messages as u64);
        assert_eq!(count(of(&report, provider), "accepted"), messages as u64);
        assert!(count(&report, "duplicates") > 0, "{report}");
        assert_eq!(count(&report, "violations"), 0, "{report}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_every_row_is_accounted_for() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let scratch = Scratch::new(signal);
        let mut child = scratch.start("--json --unsent rest.csv");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // It has begun, and has far more to send than it can in a second.
        assert!(lines.any(|line| line.unwrap().starts_with("solo 0/")));
        let reader = thread::spawn(move || lines.count());
        thread::sleep(Duration::from_secs(1));
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let run: Run = child.wait_with_output().unwrap().into();
        let report = run.report();
        reader.join().unwrap();

        assert_eq!(run.status, Some(status), "{run:?}");
        assert_eq!(count(&report, "rows"), 2095);
        assert!(count(&report, "sent") > 0);
        assert!(count(&report, "unsent") > 0);
        let rest = ids(&scratch.0.join("rest.csv")).len() as u64;
        assert_eq!(rest, count(&report, "unsent"));
        for provider in report["providers"].as_array().unwrap() {
            // The request in flight was answered, so its messages are not sent again.
            assert_eq!(
                count(provider, "accepted"),
                count(provider, "sent"),
                "{provider}"
            );
        }
    }
}

#[test]
fn a_stray_quote_costs_its_own_row_only() {
    let rows = ["solo", "bulk", "segments"].map(|provider| rows(provider, 100));
    let quoted = rows.concat().replacen("message 99", "\"message 99", 1);
    assert_eq!(quoted.lines().count(), 300);

    let run = Scratch::new("quote").feed(&quoted, "");
    let report = run.report();
    assert_eq!(run.status, Some(1), "{run:?}");
    let counts = (count(&report, "sent"), count(&report, "bad_rows"));
    assert_eq!(counts, (299, 1));
    let expected = "line 101: a quote is opened and not closed where its column ends";
    assert!(run.err.lines().any(|line| line == expected), "{run:?}");
}

#[test]
fn a_file_from_windows_is_read() {
    let scratch = Scratch::new("windows");
    let input = format!("\u{feff}{HEADER}{}", rows("bulk", 5)).replace('\n', "\r\n");
    scratch.file("rows.csv", input);
    let run = scratch.run("rows.csv --json");

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(count(&run.report(), "sent"), 5);
}

#[test]
fn a_huge_column_is_one_bad_row_with_a_short_report() {
    let huge = "x".repeat(5_000_000);
    let good = rows("bulk", 2);
    let rows = format!(
        "{huge},bulk,+4915112345678,hi\na,{huge},+4915112345678,hi\nb,bulk,{huge},hi\nc,bulk,+4915112345678,{huge}\n{good}"
    );
    let run = Scratch::new("huge").feed(&rows, "");
    let report = run.report();

    assert_eq!(run.status, Some(1), "{:?}", run.status);
    assert_eq!((count(&report, "sent"), count(&report, "bad_rows")), (2, 4));
    for line in 2..=5 {
        let start = format!("line {line}: ");
        assert!(
            run.err.lines().any(|line| line.starts_with(&start)),
            "{line}"
        );
    }
    assert!(run.err.len() < 2_000, "{}", run.err.len());
}

#[test]
fn unsent_messages_are_printed_if_their_file_cannot_be_written() {
    let args = "--for 0 --unsent no/such/folder.csv";
    let run = Scratch::new("unwritable").feed(&rows("bulk", 30), args);
    let report = run.report();

    assert_eq!(run.status, Some(3), "{run:?}");
    let printed = run
        .err
        .lines()
        .filter(|line| line.starts_with("bulk") && line.contains(",+49"));
    assert_eq!(printed.count() as u64, count(&report, "unsent"), "{run:?}");
}

#[test]
fn unsent_messages_are_written_if_no_one_reads_its_output() {
    let scratch = Scratch::new("closed");
    let mut child = scratch.start("--for 1 --json");
    drop(child.stdout.take());
    drop(child.stderr.take());
    let run: Run = child.wait_with_output().unwrap().into();

    // There was nowhere to print the report.
    assert_eq!(run.status, Some(2));
    let unsent = ids(&scratch.0.join("unsent.csv")).len();
    assert!((1_000..2_085).contains(&unsent), "{unsent}");
}

#[test]
fn a_token_bucket_is_banned_and_loses_no_message() {
    let run = Scratch::new("naive").feed(&rows("solo", 4), "--naive bucket");
    let report = run.report();

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(report["mode"], "naive bucket");
    assert_eq!(count(&report, "sent"), 4);
    assert!(count(&report, "violations") > 0);
    assert!(count(&report, "bans") > 0);
}
