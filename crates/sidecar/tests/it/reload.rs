//! A new configuration while the sidecar serves: by signal, by request, and when the file changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;

use super::client::{Answer, Client};
use super::support::{File, Sidecar, wait_until};
use super::upstream::hello;

/// A sidecar with a file.
struct Subject {
    sidecar: Sidecar,
    file: File,
    required: String,
}

impl Subject {
    /// With what is required in the file, and more.
    fn start(more: &str, flags: &[&str]) -> Self {
        Self::start_at(more, flags, File::write)
    }

    fn start_at(more: &str, flags: &[&str], write: impl Fn(&File, &str)) -> Self {
        let required = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://{}\"\ncapacity = 4\ncycle = \"10m\"\n",
            hello()
        );
        let file = File::missing("sidecar.toml");
        write(&file, &format!("{required}{more}"));
        let flags = [&["--config", file.path()], flags].concat();
        Self {
            sidecar: Sidecar::run(&flags),
            file,
            required,
        }
    }

    /// Writes the file: what is required, and more from its sixth line on.
    fn write(&self, more: &str) {
        self.file.write(&format!("{}{more}", self.required));
    }

    /// Writes the file and sends the signal. Waits until the log has these words.
    fn reload(&self, text: &str, words: &str) {
        self.file.write(text);
        self.sidecar.signal(Signal::HUP);
        self.sidecar.wait_for_log(words);
    }

    fn anonymous(&self) -> u16 {
        self.sidecar.anonymous().status
    }

    /// How many reloads were done and refused.
    fn reloads(&self) -> [u32; 2] {
        let scrape = self.sidecar.scrape();
        ["done", "refused"].map(|outcome| {
            let series = format!("paceline_config_reloads_total{{outcome=\"{outcome}\"}} ");
            let count = scrape.lines().find_map(|line| line.strip_prefix(&series));
            count.unwrap_or_else(|| panic!("{scrape}")).parse().unwrap()
        })
    }
}

/// Clients that send one request after the other until they are told to stop.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(sidecar: &Sidecar, ask: impl Fn(&mut Client) -> Answer + Copy + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = (0..4).map(|_| {
            let (mut client, is_over) = (sidecar.client(), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut answered = 0;
                while !is_over.load(Ordering::Relaxed) || answered == 0 {
                    let answer = ask(&mut client);
                    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
                    answered += 1;
                }
            })
        });
        let clients = clients.collect();
        Self { is_over, clients }
    }

    /// All requests were answered.
    fn ends(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
    }
}

#[test]
fn the_way_to_share_changes_and_what_each_client_has_is_published() {
    let subject = Subject::start("", &[]);
    let sidecar = &subject.sidecar;
    assert_eq!(
        sidecar.client().statuses("shop", 5),
        [200, 200, 200, 200, 429]
    );

    subject.write("sharing = \"guaranteed\"\ndepth = \"50%\"\n");
    sidecar.signal(Signal::HUP);
    sidecar.wait_for_log(
        "configuration reloaded: sharing from `demand` to `guaranteed`, depth from `100%` to `50%`",
    );
    // A bucket of 2, and 4 that all can borrow.
    let passed = [200; 6];
    assert_eq!(sidecar.client().statuses("shop", 6), passed);
    assert_eq!(sidecar.client().statuses("shop", 1), [429]);
    let scrape = sidecar.scrape();
    for sample in [
        "paceline_capacity 4",
        "paceline_cycle_duration_seconds 600.0",
        "paceline_cycles_total 0",
        "paceline_client_size{client=\"shop\"} 4",
        "paceline_client_borrowed{client=\"shop\"} 2",
        "paceline_client_lent{client=\"shop\"} 0",
        "paceline_client_requests_total{client=\"shop\",outcome=\"passed\"} 6",
        "paceline_client_requests_total{client=\"shop\",outcome=\"refused\"} 1",
    ] {
        assert!(
            scrape.lines().any(|line| line == sample),
            "{sample}: {scrape}"
        );
    }

    // What was spent by the other rule is still spent.
    subject.write("");
    sidecar.signal(Signal::HUP);
    sidecar.wait_for_log("sharing from `guaranteed` to `demand`");
    assert_eq!(sidecar.client().statuses("shop", 1), [429]);
}

#[test]
fn a_signal_reloads_the_file_and_loses_no_connection() {
    let subject = Subject::start("anonymous = \"refuse\"\n", &[]);
    let mut client = subject.sidecar.client();
    assert_eq!(client.send("GET", "/", &[], b"").status, 429);

    subject.write("anonymous = \"pass\"\nresponse-timeout = \"3s\"\n[clients.shop]\nweight = 2\n");
    subject.sidecar.signal(Signal::HUP);
    subject.sidecar.wait_for_log(
        "configuration reloaded: anonymous from `refuse` to `pass`, response-timeout from `30s` to `3s`, clients",
    );
    assert_eq!(client.send("GET", "/", &[], b"").status, 200);

    // One more, or two if the sidecar had looked at the file before the first signal came.
    let [done, refused] = subject.reloads();
    assert_eq!(refused, 0);
    subject.sidecar.signal(Signal::HUP);
    let nothing = "configuration reloaded, nothing changed";
    subject.sidecar.wait_for_log(nothing);
    wait_until("a reload", || subject.reloads()[0] > done);
}

#[test]
fn a_new_capacity_holds_at_once_and_what_was_spent_stays_spent() {
    let subject = Subject::start("", &[]);
    let mut client = subject.sidecar.client();
    assert_eq!(client.statuses("a", 5), [200, 200, 200, 200, 429]);
    let text = subject.required.replace("capacity = 4", "capacity = 6");
    let words = "configuration reloaded: capacity from `4` to `6`";
    subject.reload(&text, words);
    assert_eq!(client.statuses("a", 3), [200, 200, 429]);
}

#[test]
fn the_terms_of_clients_change_with_a_reload() {
    let subject = Subject::start("", &[]);
    let mut client = subject.sidecar.client();
    assert_eq!(client.statuses("a", 5), [200, 200, 200, 200, 429]);
    let text = format!("{}[clients.b]\nweight = 3\n", subject.required);
    subject.reload(&text, "configuration reloaded: clients");
    // It ends the cycle early, and has three quarters of the next one.
    assert_eq!(client.statuses("b", 4), [200, 200, 200, 429]);
}

#[test]
fn a_reload_changes_the_bound_of_connections() {
    let subject = Subject::start("max-connections = 1\n", &[]);
    let mut first = subject.sidecar.client();
    assert_eq!(first.get("/", "a").status, 200);
    let another = || subject.sidecar.client().try_send("GET", "/", &[], b"");
    assert!(another().is_err());
    subject.write("max-connections = 2\n");
    subject.sidecar.signal(Signal::HUP);
    wait_until("there is room", || another().is_ok());
}

#[test]
fn a_file_that_changes_as_a_config_map_does_is_reloaded() {
    // The file is a link into a folder, which is a link to the folder of a version.
    let write = |file: &File, text: &str| {
        let (folder, path) = (file.folder(), Path::new(file.path()));
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
    write(&subject.file, &text);
    let words = "configuration reloaded: anonymous from `refuse` to `pass`";
    subject.sidecar.wait_for_log(words);
    assert_eq!(subject.anonymous(), 200);
    assert_eq!(subject.reloads(), [1, 0]);
}

#[test]
fn a_bad_file_is_refused_and_the_old_configuration_stays_while_requests_go_on() {
    let subject = Subject::start("anonymous = \"pass\"\n", &[]);
    let load = Load::on(&subject.sidecar, |client| client.send("GET", "/", &[], b""));

    // Anonymous requests would be refused from here on, if the capacity were not wrong.
    subject.write("anonymous = \"refuse\"\nforget-after = 0\nlgo = \"info\"\n");
    let path = subject.file.path();
    let by_program = [("x-requested-with", "test")];
    let reload = || {
        let mut operator = subject.sidecar.operator();
        operator.send("POST", "/reload", &by_program, b"")
    };
    let answer = reload();
    assert_eq!(answer.status, 422);
    for line in [
        format!("{path}:8:1: unknown key `lgo`; did you mean `log`?"),
        format!(
            "{path}:7:16: forget-after: a client is forgotten after at least 1 idle cycle, got 0"
        ),
    ] {
        let as_json = line.replace('"', "\\\"");
        assert!(answer.text().contains(&as_json), "{}", answer.text());
        let words = format!("configuration refused, the old one stays: {line}");
        subject.sidecar.wait_for_log(&words);
    }
    // One refusal, or two if the sidecar had looked at the file before.
    let [done, refused] = subject.reloads();
    assert_eq!(done, 0);
    assert!((1..=2).contains(&refused), "{refused}");
    assert_eq!(subject.anonymous(), 200);

    subject.sidecar.signal(Signal::HUP);
    wait_until("a refusal", || subject.reloads() == [0, refused + 1]);
    assert_eq!(subject.anonymous(), 200);

    subject.write("anonymous = \"pass\"\nforget-after = 20\n");
    let answer = reload();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(subject.reloads()[0] >= 1);
    load.ends();
}

#[test]
fn a_hundred_changes_of_mode_and_reloads_under_load_lose_no_request() {
    let subject = Subject::start("", &["--cycle", "100ms"]);
    let write = |capacity: &str| {
        let text = subject.required.replace("capacity = 4", capacity);
        subject.file.write(&text);
    };
    let json = [("content-type", "application/json")];
    let post = |path: &str, body: &str| {
        let mut operator = subject.sidecar.operator();
        let answer = operator.send("POST", path, &json, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    write("capacity = 1000000");
    post("/reload", "{}");
    let load = Load::on(&subject.sidecar, |client| client.get("/", "a"));
    for change in 0..100 {
        write(&format!("capacity = {}", 1_000_000 + change));
        let mode = ["passthrough", "off", "enforce"][change % 3];
        post("/mode", &format!("{{\"mode\":\"{mode}\"}}"));
        post("/reload", "{}");
    }
    load.ends();
    let capacity = subject.sidecar.metric("paceline_capacity");
    assert_eq!(capacity, Some(1_000_099.0));
    let mut operator = subject.sidecar.operator();
    let view = operator.send("GET", "/clients", &[], b"").text();
    assert!(view.contains("\"capacity\":1000099,"), "{view}");
}

#[test]
fn what_cannot_change_is_named_and_nothing_else_changes_either() {
    let subject = Subject::start("", &[]);
    let before = subject.required.lines().nth(2).unwrap();
    let old = before.trim_start_matches("upstream = ").trim_matches('"');
    let new = format!("http://{}", hello());
    let changed = subject
        .required
        .replace("listen = \"127.0.0.1:0\"", "listen = \"127.0.0.1:1\"")
        .replace("admin = \"127.0.0.1:0\"", "admin = \"127.0.0.2:0\"")
        .replace(old, &new);
    let more = "cores = 2\nmax-head-bytes = 8192\nmax-fields = 1\nmax-streams = 1\nlog = \"warn\"\nlog-json = true\nanonymous = \"pass\"\n";
    subject.file.write(&format!("{changed}{more}"));
    subject.sidecar.signal(Signal::HUP);
    let path = subject.file.path();
    for (place, key, old, new) in [
        (":1:10", "listen", "127.0.0.1:0", "127.0.0.1:1"),
        (":2:9", "admin", "127.0.0.1:0", "127.0.0.2:0"),
        (":3:12", "upstream", old, &new),
        (":6:9", "cores", "1", "2"),
        (":7:18", "max-head-bytes", "32768", "8192"),
        (":8:14", "max-fields", "100", "1"),
        (":9:15", "max-streams", "250", "1"),
        (":10:7", "log", "info", "warn"),
        (":11:12", "log-json", "false", "true"),
    ] {
        let error = format!("cannot change from `{old}` to `{new}` while the sidecar runs");
        let words = format!("the old one stays: {path}{place}: {key}: {error}: restart it");
        subject.sidecar.wait_for_log(&words);
    }
    assert_eq!(subject.reloads()[0], 0);
    assert_eq!(subject.anonymous(), 429);
}

#[test]
fn a_line_that_is_gone_and_cannot_change_is_named_with_its_file() {
    let subject = Subject::start("cores = 2\n", &[]);
    let path = subject.file.path();
    let error = "cannot change from `2` to `1` while the sidecar runs: restart it";
    let words = format!("the old one stays: {path}: cores: {error}");
    subject.reload(&subject.required, &words);
}

#[test]
fn a_flag_holds_over_a_file_that_changes() {
    let subject = Subject::start("", &["--anonymous", "pass"]);
    let text = format!("{}anonymous = \"refuse\"\n", subject.required);
    subject.reload(&text, "configuration reloaded, nothing changed");
    assert_eq!(subject.anonymous(), 200);
}

#[test]
fn what_an_operator_changed_is_a_change_of_the_next_reload() {
    let subject = Subject::start("", &[]);
    let json = [("content-type", "application/json")];
    let change = b"{\"mode\":\"off\",\"share\":25}";
    let mut operator = subject.sidecar.operator();
    let answer = operator.send("POST", "/mode", &json, change);
    assert_eq!(answer.status, 200, "{}", answer.text());
    subject.reload(
        &subject.required,
        "configuration reloaded: mode from `off` to `enforce`, enforced from `25%` to `100%`",
    );
}

#[test]
fn a_file_that_is_gone_is_refused_once_and_read_when_it_is_back() {
    let subject = Subject::start("", &[]);
    subject.file.remove();
    let path = subject.file.path();
    let error = "cannot be read: No such file or directory (os error 2)";
    let words = format!("the old one stays: {path}: {error}");
    subject.sidecar.wait_for_log(&words);
    assert_eq!(subject.anonymous(), 429);

    subject.write("anonymous = \"pass\"\n");
    let words = "configuration reloaded: anonymous from `refuse` to `pass`";
    subject.sidecar.wait_for_log(words);
    assert_eq!(subject.anonymous(), 200);
    assert_eq!(subject.reloads(), [1, 1]);
}
