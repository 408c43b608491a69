//! What was not written, for `--rest`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;
use rustix::stdio::{stdin, stdout};

use crate::Failure;
use crate::parts::Part;

/// The file, and what was read and not written.
#[derive(Debug)]
pub(crate) struct Rest {
    path: PathBuf,
    file: File,
    /// By its place in the input.
    unwritten: BTreeMap<u64, Bytes>,
}

impl Rest {
    /// Empties the file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let named = |what: &dyn fmt::Display| format!("--rest {}: {what}", path.display());
        let known = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let known = known.map(|file| (file.dev(), file.ino()));
        for (fd, name) in [(stdin(), "input"), (stdout(), "output")] {
            let other = fstat(fd).map(|other| (other.st_dev, other.st_ino)).ok();
            if known.is_some() && known == other {
                let message = named(&format_args!("it is the {name} too: name another file"));
                return Err(Failure::Argument(message));
            }
        }
        let file = File::create(path);
        let file = file.map_err(|error| io::Error::new(error.kind(), named(&error)))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            unwritten: BTreeMap::new(),
        })
    }

    pub(crate) fn was_read(&mut self, part: &Part) {
        self.unwritten.insert(part.place, part.bytes.clone());
    }

    /// So many bytes from this place on were written.
    pub(crate) fn was_written(&mut self, mut place: u64, mut length: usize) {
        while length > 0 {
            let Some(mut bytes) = self.unwritten.remove(&place) else {
                return;
            };
            let written = length.min(bytes.len());
            bytes.advance(written);
            place += written as u64;
            length -= written;
            if !bytes.is_empty() {
                self.unwritten.insert(place, bytes);
            }
        }
    }

    /// Writes what was not written, then the beginning of a line, and then the input that was not read. Nothing is read or
    /// written meanwhile.
    pub(crate) fn save(&mut self, line: &[u8]) -> io::Result<()> {
        let read = self.unwritten.values().flatten().chain(line);
        let read: Vec<u8> = read.copied().collect();
        self.file.write_all(&read)?;
        io::copy(&mut io::stdin().lock().take(unread()), &mut self.file)?;
        Ok(())
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// How many bytes of the input are there without waiting. Those of a file are all there, whereas who writes to a pipe may go on for
/// ever.
fn unread() -> u64 {
    let kind = fstat(stdin()).map(|it| FileType::from_raw_mode(it.st_mode));
    match kind {
        Ok(FileType::RegularFile | FileType::BlockDevice) => u64::MAX,
        _ => ioctl_fionread(stdin()).unwrap_or(0),
    }
}
