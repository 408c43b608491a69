//! A new configuration while the sidecar serves: by signal, by request, and when the file changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::client::{Client, scrape};
use crate::hello;
use crate::support::{Sidecar, wait_until};

/// A sidecar with a file.
struct Subject {
    sidecar: Sidecar,
    /// A folder of its own. It is removed when it is dropped.
    folder: PathBuf,
    required: String,
}

impl Subject {
    /// With what is required in the file, and more.
    fn start(more: &str, flags: &[&str]) -> Self {
        Self::start_at(more, flags, |path, text| fs::write(path, text).unwrap())
    }

    fn start_at(more: &str, flags: &[&str], write: impl Fn(&PathBuf, &str)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("paceline-reload-{}-{number}", id()));
        fs::create_dir(&folder).unwrap();
        let upstream = hello::start();
        let required = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\ncapacity = 2\ncycle = \"10m\"\n"
        );
        let path = folder.join("sidecar.toml");
        write(&path, &format!("{required}{more}"));
        let flags = [&["--config", path.to_str().unwrap()], flags].concat();
        Self {
            sidecar: Sidecar::run(&flags),
            folder,
            required,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("sidecar.toml")
    }

    /// Writes the file: what is required, and more from its sixth line on. It is replaced as a whole, so that no half is read.
    fn write(&self, more: &str) {
        self.replace(&format!("{}{more}", self.required));
    }

    fn replace(&self, text: &str) {
        let new = self.folder.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// The answer to a request without a client.
    fn anonymous(&self) -> u16 {
        let mut client = Client::connect(self.sidecar.listen);
        client.send("GET", "/", &[], b"").unwrap().status
    }

    /// How many reloads were done and refused.
    fn reloads(&self) -> [u32; 2] {
        let scrape = scrape(self.sidecar.admin);
        ["done", "refused"].map(|outcome| {
            let series = format!("paceline_config_reloads_total{{outcome=\"{outcome}\"}} ");
            let mut lines = scrape.lines();
            let count = lines.find_map(|line| line.strip_prefix(&series)?.parse().ok());
            count.unwrap_or_else(|| panic!("{scrape}"))
        })
    }

    /// Waits until the log has these words.
    fn wait_for_log(&self, words: &str) {
        wait_until(words, || self.sidecar.log().contains(words));
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_signal_reloads_the_file() {
    let subject = Subject::start("anonymous = \"refuse\"\n", &[]);
    assert_eq!(subject.anonymous(), 429);

    subject.write("anonymous = \"pass\"\nresponse-timeout = \"3s\"\n[clients.shop]\nweight = 2\n");
    subject.sidecar.send(Signal::HUP);
    subject.wait_for_log(
        "configuration reloaded: anonymous from `refuse` to `pass`, response-timeout from `30s` to `3s`, clients",
    );
    assert_eq!(subject.anonymous(), 200);

    // One more, or two if the sidecar had looked at the file before the first signal came.
    let [done, refused] = subject.reloads();
    assert_eq!(refused, 0);
    subject.sidecar.send(Signal::HUP);
    subject.wait_for_log("configuration reloaded, nothing changed");
    wait_until("a reload", || subject.reloads()[0] > done);
}

#[test]
fn a_new_capacity_holds_at_once_and_what_was_spent_stays_spent() {
    let subject = Subject::start("", &[]);
    let mut client = Client::connect(subject.sidecar.listen);
    let mut passed = || {
        let answers = (0..5).map(|_| client.get("/", "a").status);
        answers.filter(|status| *status == 200).count()
    };
    assert_eq!(passed(), 2);

    subject.replace(&subject.required.replace("capacity = 2", "capacity = 5"));
    subject.sidecar.send(Signal::HUP);
    subject.wait_for_log("configuration reloaded: capacity from `2` to `5`");
    assert_eq!(passed(), 3);
}

#[test]
fn a_file_that_changes_as_a_config_map_does_is_reloaded() {
    // The file is a link into a folder, which is a link to the folder of a version.
    let write = |path: &PathBuf, text: &str| {
        let folder = path.parent().unwrap();
        let versions = fs::read_dir(folder).unwrap().count();
        let version = folder.join(format!("version-{versions}"));
        fs::create_dir(&version).unwrap();
        fs::write(version.join("sidecar.toml"), text).unwrap();
        let new = folder.join("new");
        symlink(&version, &new).unwrap();
        fs::rename(new, folder.join("data")).unwrap();
        if !path.exists() {
            symlink(folder.join("data").join("sidecar.toml"), path).unwrap();
        }
    };
    let subject = Subject::start_at("", &[], write);
    assert_eq!(subject.anonymous(), 429);

    let text = format!("{}anonymous = \"pass\"\n", subject.required);
    write(&subject.path(), &text);
    subject.wait_for_log("configuration reloaded: anonymous from `refuse` to `pass`");
    assert_eq!(subject.anonymous(), 200);
    assert_eq!(subject.reloads(), [1, 0]);
}

#[test]
fn a_bad_file_is_refused_and_the_old_configuration_stays_while_requests_go_on() {
    let subject = Subject::start("anonymous = \"pass\"\n", &[]);
    let is_over = Arc::new(AtomicBool::new(false));
    let requests = {
        let is_over = Arc::clone(&is_over);
        let mut client = Client::connect(subject.sidecar.listen);
        thread::spawn(move || {
            let mut requests = 0;
            while !is_over.load(Ordering::Relaxed) {
                let answer = client.send("GET", "/", &[], b"").unwrap();
                assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
                requests += 1;
            }
            requests
        })
    };

    // Anonymous requests would be refused from here on, if the capacity were not wrong.
    subject.write("anonymous = \"refuse\"\nforget-after = 0\nlgo = \"info\"\n");
    let path = subject.path();
    let path = path.display();
    let lines = [
        format!("{path}:8:1: unknown key `lgo`; did you mean `log`?"),
        format!(
            "{path}:7:16: forget-after: a client is forgotten after at least 1 idle cycle, got 0"
        ),
    ];
    let mut operator = Client::connect(subject.sidecar.admin);
    let by_program = [("x-requested-with", "test")];
    let mut reload = || operator.send("POST", "/reload", &by_program, b"").unwrap();
    let answer = reload();
    assert_eq!(answer.status, 422);
    for line in &lines {
        let as_json = line.replace('"', "\\\"");
        assert!(answer.text().contains(&as_json), "{}", answer.text());
        subject.wait_for_log(&format!("configuration refused, the old one stays: {line}"));
    }
    // One refusal, or two if the sidecar had looked at the file before.
    let [done, refused] = subject.reloads();
    assert_eq!(done, 0);
    assert!((1..=2).contains(&refused), "{refused}");
    assert_eq!(subject.anonymous(), 200);

    subject.sidecar.send(Signal::HUP);
    wait_until("a refusal", || subject.reloads() == [0, refused + 1]);
    assert_eq!(subject.anonymous(), 200);

    subject.write("anonymous = \"pass\"\nforget-after = 20\n");
    let answer = reload();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(subject.reloads()[0] >= 1);
    is_over.store(true, Ordering::Relaxed);
    assert!(requests.join().unwrap() > 0);
}

#[test]
fn what_cannot_change_is_named_and_nothing_else_changes_either() {
    let subject = Subject::start("", &[]);
    let upstream = hello::start();
    let before = subject.required.lines().nth(2).unwrap();
    let old = before.trim_start_matches("upstream = ").trim_matches('"');
    let changed = subject
        .required
        .replace("listen = \"127.0.0.1:0\"", "listen = \"127.0.0.1:1\"")
        .replace("admin = \"127.0.0.1:0\"", "admin = \"127.0.0.2:0\"")
        .replace(before, &format!("upstream = \"http://{upstream}\""));
    let more = "cores = 2\nmax-head-bytes = 8192\nmax-fields = 1\nmax-streams = 1\nlog = \"warn\"\nlog-json = true\nanonymous = \"pass\"\n";
    subject.replace(&format!("{changed}{more}"));
    subject.sidecar.send(Signal::HUP);
    for (key, old, new) in [
        ("listen", "127.0.0.1:0", "127.0.0.1:1"),
        ("admin", "127.0.0.1:0", "127.0.0.2:0"),
        ("upstream", old, &format!("http://{upstream}")),
        ("cores", "1", "2"),
        ("max-head-bytes", "65536", "8192"),
        ("max-fields", "100", "1"),
        ("max-streams", "250", "1"),
        ("log", "info", "warn"),
        ("log-json", "false", "true"),
    ] {
        subject.wait_for_log(&format!(
            "the old one stays: {key}: cannot change from `{old}` to `{new}` while the sidecar runs: restart it"
        ));
    }
    assert_eq!(subject.reloads()[0], 0);
    assert_eq!(subject.anonymous(), 429);
}

#[test]
fn a_flag_holds_over_a_file_that_changes() {
    let subject = Subject::start("", &["--anonymous", "pass"]);
    subject.write("anonymous = \"refuse\"\n");
    subject.sidecar.send(Signal::HUP);
    subject.wait_for_log("configuration reloaded, nothing changed");
    assert_eq!(subject.anonymous(), 200);
}

#[test]
fn a_file_that_is_gone_is_refused_once_and_read_when_it_is_back() {
    let subject = Subject::start("", &[]);
    fs::remove_file(subject.path()).unwrap();
    let path = subject.path();
    subject.wait_for_log(&format!(
        "the old one stays: {}: cannot be read: No such file or directory (os error 2)",
        path.display()
    ));
    assert_eq!(subject.anonymous(), 429);

    subject.write("anonymous = \"pass\"\n");
    subject.wait_for_log("configuration reloaded: anonymous from `refuse` to `pass`");
    assert_eq!(subject.anonymous(), 200);
    assert_eq!(subject.reloads(), [1, 1]);
}
