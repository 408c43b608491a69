use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::thread;

use rustix::process::Signal;

use crate::support::{Open, numbers, run, shell};

/// A folder of this test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("paceline-cli-rest-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines of the second number of lines, without those of the first.
fn after(written: u32, all: u32) -> String {
    numbers(all).split_off(numbers(written).len())
}

#[test]
fn the_rest_of_a_file_is_all_that_was_not_written() {
    let folder = Folder::new("file");
    let (input, rest) = (folder.path("input"), folder.path("rest"));
    fs::write(&input, numbers(100_000)).unwrap();
    // 9 lines are 18 bytes.
    for (options, lines) in [("", 18), ("--bytes", 9), ("--batch 1", 18)] {
        let line = format!("exec \"$0\" 1/h --burst 18 {options} --rest {rest} < {input}");
        let mut open = Open::of(shell(&line));
        assert_eq!(open.lines(lines as usize).concat(), numbers(lines));
        open.signal(Signal::INT);
        let (status, err) = open.ended();
        assert_eq!(status, Some(130));
        let told = format!("were not written; the rest of the input is in {rest}\n");
        assert!(err.ends_with(&told), "{err}");
        assert!(folder.read("rest") == after(lines, 100_000), "{options}");
    }
}

#[test]
fn the_rest_of_a_pipe_is_what_was_read_and_what_is_in_it() {
    let folder = Folder::new("pipe");
    let mut open = Open::start(["1/h", "--burst", "3", "--rest", &folder.path("rest")]);
    open.send(&numbers(10_000));
    open.send("without a newline");
    assert_eq!(open.lines(3).concat(), numbers(3));
    open.signal(Signal::TERM);
    assert_eq!(open.ended().0, Some(143));
    let expected = after(3, 10_000) + "without a newline";
    assert!(folder.read("rest") == expected);
}

#[test]
fn the_rest_of_keys_is_in_the_order_of_the_input() {
    let folder = Folder::new("keys");
    let rest = folder.path("rest");
    let mut open = Open::start(["1/h", "--by-key", "column 2", "--rest", &rest]);
    open.send("1 ann\n2 ann\n3 bob\n4 ann\n5 bob\n6 eve\n7");
    let mut lines = open.lines(3);
    lines.sort();
    assert_eq!(lines, ["1 ann\n", "3 bob\n", "6 eve\n"]);
    open.signal(Signal::TERM);
    assert_eq!(open.ended().0, Some(143));
    assert_eq!(folder.read("rest"), "2 ann\n4 ann\n5 bob\n7");
}

#[test]
fn what_a_slow_reader_has_not_been_written_is_in_the_rest() {
    let folder = Folder::new("slow");
    let (input, rest) = (folder.path("input"), folder.path("rest"));
    fs::write(&input, numbers(200_000)).unwrap();
    for option in ["--bytes", "--json"] {
        let line = format!("exec \"$0\" unlimited {option} --rest {rest} < {input}");
        let mut open = Open::of(shell(&line));
        let mut written = vec![0];
        open.stdout.read_exact(&mut written).unwrap();
        // As `timeout` does.
        open.signal(Signal::INT);
        open.signal(Signal::INT);
        while open.is_running() {
            thread::yield_now();
        }
        open.stdout.read_to_end(&mut written).unwrap();
        assert_eq!(open.ended().0, Some(130));
        let written = String::from_utf8(written).unwrap();
        assert!(option == "--bytes" || written.ends_with('\n'));
        assert!(
            written + &folder.read("rest") == numbers(200_000),
            "{option}"
        );
    }
}

#[test]
fn a_closed_pipe_and_a_full_disk_leave_a_rest_too() {
    let folder = Folder::new("closed");
    let rest = folder.path("rest");
    let mut open = Open::start(["1/h", "--rest", &rest]);
    open.send(&numbers(3));
    assert_eq!(open.line(), "1\n");
    assert_eq!(open.closed().0, Some(141));
    assert_eq!(folder.read("rest"), "2\n3\n");

    let line = format!("printf '1\\n2\\n' | \"$0\" 1/h --rest {rest} > /dev/full");
    assert_eq!(Open::of(shell(&line)).ended().0, Some(1));
    assert_eq!(folder.read("rest"), "1\n2\n");
}

#[test]
fn the_rest_is_empty_if_all_is_written() {
    let folder = Folder::new("all");
    let rest = folder.path("rest");
    fs::write(&rest, "of a run before").unwrap();
    let done = run("a\nb", &["unlimited", "--rest", &rest]);
    assert_eq!(
        (done.status, done.text(), &*done.err),
        (Some(0), "a\nb", "")
    );
    assert_eq!(folder.read("rest"), "");
}

#[test]
fn the_input_is_no_place_for_the_rest() {
    let folder = Folder::new("same");
    let path = folder.path("input");
    fs::write(&path, "a\n").unwrap();
    for redirection in [format!("< {path}"), format!(">> {path}")] {
        let line = format!("exec \"$0\" unlimited --rest {path} {redirection}");
        let (status, err) = Open::of(shell(&line)).ended();
        assert_eq!(status, Some(2));
        assert!(err.contains("put too: name another file"), "{err}");
        assert_eq!(folder.read("input"), "a\n");
    }
}

#[test]
fn a_rest_that_cannot_be_written_is_an_error() {
    let mut open = Open::start(["1/h", "--rest", "/dev/full"]);
    open.send("a\nb\n");
    assert_eq!(open.line(), "a\n");
    open.signal(Signal::INT);
    let (status, err) = open.ended();
    assert_eq!(status, Some(1));
    let expected = "paceline: cannot save the rest of the input in /dev/full: No space left on device (os error 28)\n\
                    paceline: SIGINT: 1 line that was read was not written\n";
    assert_eq!(err, expected);

    let nowhere = run("a\n", &["unlimited", "--rest", "/nowhere/rest"]);
    assert_eq!((nowhere.status, nowhere.text()), (Some(1), ""));
    assert!(
        nowhere
            .err
            .starts_with("error: --rest /nowhere/rest: No such file"),
        "{nowhere:?}"
    );
}
