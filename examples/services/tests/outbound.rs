//! Runs the example `outbound` as a user does, and reads its table.

use std::process::Command;

struct Row {
    name: String,
    counts: Vec<u32>,
    done: f64,
}

fn rows(out: &str) -> Vec<Row> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Row {
            name: words[0].to_owned(),
            counts: words[1..7]
                .iter()
                .map(|word| word.parse().unwrap())
                .collect(),
            done: words[7].parse().unwrap(),
        }
    };
    out.lines().skip(1).map(row).collect()
}

#[test]
fn a_refusal_of_one_host_neither_breaks_a_quota_nor_holds_up_another_host() {
    let run = Command::new(env!("CARGO_BIN_EXE_outbound"))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&run.stdout);
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{out}\n{err}");

    let rows = rows(&out);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["refusing", "calm", "quiet"]);
    for row in &rows {
        let [tasks, arrivals, meanwhile, refused, above_quota, too_early] = row.counts[..] else {
            panic!("{out}");
        };
        let is_calm = row.name != "refusing";
        assert_eq!((above_quota, too_early), (0, 0), "{}", row.name);
        assert_eq!(arrivals, tasks + refused, "{}", row.name);
        assert_eq!(refused == 0, is_calm, "{}", row.name);
        assert!(row.done <= rows[0].done, "{}", row.name);
        assert!(!is_calm || meanwhile >= tasks / 2, "{}", row.name);
    }
    assert_eq!(rows.iter().map(|row| row.counts[0]).sum::<u32>(), 50);
    assert!(rows[0].done >= 2.0);
}
