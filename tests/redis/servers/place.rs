use std::env;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Below the ports that systems give to outgoing connections, so that none of those takes the port of a server that is down
/// for a moment. The bus of a cluster is 10,000 further up, and below them too.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// A port that no other test uses, and a directory named after it.
///
/// Making the directory is what reserves the port, among all processes. Both are free again when this is dropped. If the tests
/// are killed, the keeper of a server frees its place; that of a relay stays reserved, an empty directory.
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
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever removed it before meant the same.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
