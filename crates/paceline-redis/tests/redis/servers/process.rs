use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::place::Place;

/// Reads until its input ends: when the process at the other end is gone, for whatever reason.
const KEEPER: &str = r#"read -r _; kill -KILL "$1"; rm -rf "$2""#;

/// A running server, and a shell (the keeper) that ends it if the tests are killed and drop nothing.
///
/// Both have their own process groups, so that a Ctrl-C for the tests does not reach the keeper.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    keeper: Child,
    is_frozen: bool,
}

impl Process {
    pub(super) fn spawn(place: &Place, options: &[String]) -> Self {
        let program = program();
        // A sentinel does not start without a file, to which it writes what it knows.
        let config = place.dir().join("server.conf");
        fs::write(&config, "").expect("the directory is ours");
        let mut server = quiet(&program);
        let clock = place.clock();
        if clock.exists() {
            // The allocator of the C library comes first: `libfaketime` does not start beside jemalloc.
            server
                .env("LD_PRELOAD", format!("{} libc.so.6", libfaketime()))
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let server = server
            .arg(config)
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(place.address().port().to_string())
            .arg("--dir")
            .arg(place.dir())
            .arg("--logfile")
            .arg(place.log())
            .args(["--save", "", "--appendonly", "no"])
            // A replica gets its copy at once, not five seconds later.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| match error.kind() {
                ErrorKind::NotFound => {
                    panic!(
                        "there is no program {}: scripts/test installs redis-server",
                        program.display()
                    )
                }
                _ => panic!("cannot start {}: {error}", program.display()),
            });
        let keeper = quiet("sh")
            .args(["-c", KEEPER, "keeper", &server.id().to_string()])
            .arg(place.dir())
            .stdin(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        Self {
            server,
            keeper,
            is_frozen: false,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// Whether the server ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.server.try_wait().expect("it is our child").is_some()
    }

    /// Returns when the server has stopped.
    pub(super) fn freeze(&mut self) {
        if self.is_frozen {
            return;
        }
        self.signal(Signal::STOP);
        let waited = waitpid(Some(Pid::from_child(&self.server)), WaitOptions::UNTRACED);
        let (_, status) = waited.unwrap().expect("waited for it");
        assert!(status.stopped(), "the server ended by itself: {status:?}");
        self.is_frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.is_frozen = false;
    }

    fn signal(&mut self, signal: Signal) {
        assert!(!self.has_ended(), "the server ended by itself");
        kill_process(Pid::from_child(&self.server), signal).expect("it is our child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The keeper is ended before the server is waited for: until then no other process can have the id that the keeper would kill.
        let _ = self.server.kill();
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        let _ = self.server.wait();
        // What `libfaketime` leaves behind in a process that is killed. Another server has none.
        for left in ["faketime_shm", "sem.faketime_sem"] {
            let _ = fs::remove_file(format!("/dev/shm/{left}_{}", self.server.id()));
        }
    }
}

/// The server program: `redis-server`, or the value of the variable `REDIS_SERVER`.
pub(crate) fn program() -> OsString {
    env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The path of the library that the program `faketime` loads.
fn libfaketime() -> String {
    let mut asked = Command::new("faketime");
    asked.args(["-f", "+0s", "printenv", "LD_PRELOAD"]);
    let output = asked
        .output()
        .expect("faketime is there: scripts/test installs it");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn quiet(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}
