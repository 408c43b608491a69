use std::env;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Below the ephemeral ports, so that no outgoing connection takes the port of a server that is down for a moment. The cluster bus
/// is 10,000 ports above, and below the ephemeral ports too.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// A port that no other test uses, and a directory named after it.
///
/// Creating the directory reserves the port, among all processes. Dropping this frees both. If the tests are killed, the keeper of
/// a server frees its place; that of a relay stays reserved as an empty directory.
#[derive(Debug)]
pub(super) struct Place {
    port: u16,
    dir: PathBuf,
}

impl Place {
    pub(super) fn reserve() -> Self {
        for _ in PORTS {
            let port = fastrand::u16(PORTS);
            let dir = env::temp_dir().join(format!("paceline-redis-{port}"));
            match fs::create_dir(&dir) {
                Ok(()) => return Self { port, dir },
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make {}: {error}", dir.display()),
            }
        }
        let dirs = env::temp_dir().join("paceline-redis-*");
        panic!("no port of {PORTS:?} is free: see {}", dirs.display());
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The offset of the server's clock, for `libfaketime`. Without this file the server has the clock of the system.
    pub(super) fn clock(&self) -> PathBuf {
        self.dir.join("clock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
