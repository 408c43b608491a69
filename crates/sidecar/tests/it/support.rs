//! Starts the binary, and upstreams for it.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for what has to happen. A machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running sidecar. It is killed when it is dropped.
pub(crate) struct Sidecar {
    child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<String>>,
    /// Copies the log until the end.
    copying: Option<JoinHandle<()>>,
}

impl Sidecar {
    /// On free ports, in front of `upstream`, with more flags.
    pub(crate) fn start(upstream: SocketAddr, flags: &[&str]) -> Self {
        let upstream = format!("http://{upstream}");
        let mut all = vec![
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--upstream",
            &upstream,
        ];
        all.extend(flags);
        Self::run(&all)
    }

    /// With these flags. It has to start.
    pub(crate) fn run(flags: &[&str]) -> Self {
        let mut child = command(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let copy = Arc::clone(&log);
        let copying = thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
                copy.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let Some(Ok(first)) = lines.next() else {
            let _ = copying.join();
            panic!("it did not start: {}", log.lock().unwrap());
        };
        thread::spawn(move || lines.for_each(drop));
        let address = |after: &str| {
            let rest = first
                .split_once(after)
                .unwrap_or_else(|| panic!("{first}"))
                .1;
            let end = rest.find(',').unwrap_or(rest.len());
            rest[..end].parse().unwrap_or_else(|_| panic!("{first}"))
        };
        Self {
            listen: address("listening on "),
            admin: address("admin on "),
            child,
            log,
            copying: Some(copying),
        }
    }

    /// What it has logged by now.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The log is complete then.
                if let Some(copying) = self.copying.take() {
                    copying.join().unwrap();
                }
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it did not end: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the log of the sidecar:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary with these flags and no environment of the sidecar.
pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline-sidecar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PACELINE_")) {
        command.env_remove(name);
    }
    command.args(flags).stdin(Stdio::null());
    command
}

/// Runs it to its end: exit code, standard output, standard error. For flags that are refused, and for `--check`.
pub(crate) fn output(flags: &[&str]) -> (i32, String, String) {
    let mut child = command(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    (child.wait().unwrap().code().unwrap(), out, err)
}

/// An upstream that serves each connection with `serve`, on a thread of its own.
pub(crate) fn upstream(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    at
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

/// Waits until it holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never held: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
