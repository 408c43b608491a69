//! Starts the binary, and asks it.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Answer, Client, metric};

/// How long a test waits for what has to happen. A machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A request of client `a`.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n";

/// The same as the last one of its connection.
pub(crate) const LAST_GET: &str =
    "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n";

/// A running program. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    log: Arc<Mutex<String>>,
    /// Copies the log until the end.
    copying: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("scripts/test installs it");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (print, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // A test that reads no more lets the program print.
                let _ = print.send(line);
            }
        });
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let copy = Arc::clone(&log);
        let copying = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                copy.lock().unwrap().extend([&line, "\n"]);
            }
        });
        Self {
            child,
            lines,
            log,
            copying: Some(copying),
        }
    }

    /// The next line that it prints.
    pub(crate) fn line(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.expect("it prints nothing more")
    }

    /// What it prints until its end.
    pub(crate) fn rest(&self) -> String {
        self.lines.iter().map(|line| line + "\n").collect()
    }

    /// What it has logged by now.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log has these words.
    pub(crate) fn wait_for_log(&self, words: &str) {
        wait_until(words, || self.log().contains(words));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // The log is complete then.
        if let Some(copying) = self.copying.take() {
            copying.join().unwrap();
        }
        status.unwrap()
    }

    /// Waits for its end, which is a success.
    pub(crate) fn succeeds(&mut self) {
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            self.copying.take().map(JoinHandle::join);
            eprintln!("its log:\n{}", self.log());
        }
    }
}

/// A running sidecar.
pub(crate) struct Sidecar {
    process: Process,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Deref for Sidecar {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Sidecar {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Sidecar {
    /// On free ports, in front of `upstream`. It refuses nothing, unless the flags say so.
    pub(crate) fn start(upstream: SocketAddr, flags: &[&str]) -> Self {
        Self::run(&on_free_ports(&format!("http://{upstream}"), flags))
    }

    /// The same in front of a service of HTTP/2.
    pub(crate) fn h2c(upstream: SocketAddr, flags: &[&str]) -> Self {
        Self::run(&on_free_ports(&format!("h2c://{upstream}"), flags))
    }

    /// With these flags. It has to start.
    pub(crate) fn run(flags: &[&str]) -> Self {
        Self::of(command(flags))
    }

    /// Of a command that starts the binary.
    pub(crate) fn of(command: Command) -> Self {
        let process = Process::start(command);
        let first = process.line();
        let address = |after: &str| {
            let rest = first.split_once(after).map(|(_, rest)| rest);
            let address = rest.and_then(|rest| rest.split(',').next()?.parse().ok());
            address.unwrap_or_else(|| panic!("{first}"))
        };
        Self {
            listen: address("listening on "),
            admin: address("admin on "),
            process,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.listen)
    }

    pub(crate) fn operator(&self) -> Client {
        Client::connect(self.admin)
    }

    /// The answer to this client id, on a new connection.
    pub(crate) fn get(&self, id: &str) -> Answer {
        self.client().get("/", id)
    }

    /// The answer to a request without a client id, on a new connection.
    pub(crate) fn anonymous(&self) -> Answer {
        self.client().send("GET", "/", &[], b"")
    }

    /// A new connection with these bytes on it.
    pub(crate) fn open(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = connect(self.listen);
        stream.write_all(bytes.as_ref()).unwrap();
        stream
    }

    /// What comes on a new connection with these bytes until it is closed.
    pub(crate) fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        rest(&mut self.open(bytes))
    }

    /// The text of `/metrics`.
    pub(crate) fn scrape(&self) -> String {
        let answer = self.operator().send("GET", "/metrics", &[], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    }

    /// The value of one series, such as `paceline_client_size{client="a"}`.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        metric(&self.scrape(), series)
    }

    /// Waits until so many connections are open.
    pub(crate) fn wait_for_connections(&self, count: u32) {
        let count = Some(f64::from(count));
        wait_until("connections", || {
            self.metric("paceline_connections") == count
        });
    }
}

/// The flags of a sidecar on free ports that refuses nothing, with others in place of those of the same name.
pub(crate) fn on_free_ports<'f>(upstream: &'f str, flags: &[&'f str]) -> Vec<&'f str> {
    let defaults = [
        ["--listen", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0"],
        ["--upstream", upstream],
        ["--capacity", "1000000"],
        ["--cycle", "10m"],
    ];
    with_defaults(&defaults, flags)
}

/// These flags, after the defaults that they do not give.
pub(crate) fn with_defaults<'f>(defaults: &[[&'f str; 2]], flags: &[&'f str]) -> Vec<&'f str> {
    let missing = defaults.iter().filter(|[name, _]| !flags.contains(name));
    missing.flatten().chain(flags).copied().collect()
}

/// The binary with these flags and no environment of the sidecar.
pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline-sidecar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PACELINE_")) {
        command.env_remove(name);
    }
    command.args(flags);
    command
}

/// Runs the binary to its end, for flags that are refused, and for `--check`.
pub(crate) fn output(flags: &[&str]) -> (i32, String, String) {
    run(&mut command(flags), b"")
}

/// Runs a program with this input to its end: exit code, standard output, standard error.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> (i32, String, String) {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child =
        child.unwrap_or_else(|error| panic!("{error}; scripts/test installs {command:?}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The program may stop to read before the end.
    thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// What curl prints of a request of client `a`, with the head of the response.
pub(crate) fn curl(at: SocketAddr, path: &str, flags: &[&str], input: &[u8]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--include", "--max-time", "60"])
        .args(["--header", "x-client-id: a"])
        .args(flags)
        .arg(format!("http://{at}{path}"));
    let (_, out, err) = run(&mut curl, input);
    out + &err
}

/// What nghttp, a client of HTTP/2, prints of a request of client `a`, with the frames.
pub(crate) fn nghttp(sidecar: &Sidecar, flags: &[&str]) -> String {
    let mut nghttp = Command::new("nghttp");
    nghttp
        .args(["--verbose", "--no-dep", "--timeout", "30"])
        .args(["--header", "x-client-id: a"])
        .args(flags)
        .arg(format!("http://{}/", sidecar.listen));
    run(&mut nghttp, b"").1
}

/// What promtool says of this input. It has to be content.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> String {
    let (code, out, err) = run(Command::new("promtool").args(arguments), input.as_bytes());
    assert_eq!(code, 0, "promtool {arguments:?}: {out}{err}\n{input}");
    out + &err
}

/// A file of a test, in a folder of its own. Both go when it is dropped.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let file = Self::missing(name);
        file.write(text);
        file
    }

    /// Only its folder is there.
    pub(crate) fn missing(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("paceline-sidecar-{}-{number}", id()));
        fs::create_dir(&folder).unwrap();
        Self(folder.join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.parent().unwrap()
    }

    /// It is replaced as a whole, so that no half is read.
    pub(crate) fn write(&self, text: &str) {
        let new = self.folder().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    pub(crate) fn remove(&self) {
        fs::remove_file(&self.0).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.folder());
    }
}

/// A connection that does not wait for ever.
pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads a head from a stream, byte by byte, so that what follows stays in it.
pub(crate) fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            ended => panic!("{ended:?} after {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8(head).unwrap()
}

/// What comes until the connection is closed or reset.
pub(crate) fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => bytes.extend(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("neither closed nor reset: {error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until it holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never held: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
