//! A Redis for a test.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use super::serving::Process;

/// A Redis on a socket in a directory of its own.
pub(crate) struct Redis {
    process: Process,
    dir: PathBuf,
}

impl Redis {
    pub(crate) fn start(test: &str) -> Self {
        let dir = env::temp_dir().join(format!("services-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let process = Self::run(&dir);
        Self { process, dir }
    }

    fn run(dir: &Path) -> Process {
        let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(program);
        command
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", ""])
            .current_dir(dir)
            .stdout(Stdio::null());
        let process = Process::spawn(&mut command);
        until(|| UnixStream::connect(dir.join("redis.sock")).is_ok());
        process
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/redis.sock", self.dir.display())
    }

    /// Returns when the process is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Without its data.
    pub(crate) fn start_again(&mut self) {
        self.process = Self::run(&self.dir);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// # Panics
///
/// If it takes two minutes: then it does not come.
pub(crate) fn until(condition: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the service does not come to what the test waits for");
}
