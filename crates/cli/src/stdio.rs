//! The standard streams.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::fcntl_getfd;
use rustix::stdio::{stdin, stdout};

static STDIN_IS_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

// Before `main` the standard library opens `/dev/null` in place of a closed stream, which nothing tells from a `/dev/null` that the
// caller has opened.
ctor_lite::ctor! {
    unsafe fn look() {
        STDIN_IS_CLOSED.store(fcntl_getfd(stdin()).is_err(), Ordering::Relaxed);
        STDOUT_IS_CLOSED.store(fcntl_getfd(stdout()).is_err(), Ordering::Relaxed);
    }
}

/// Fails if the caller has closed the input or the output, as with `>&-` in a shell.
pub(crate) fn check() -> io::Result<()> {
    for (is_closed, name) in [(&STDIN_IS_CLOSED, "input"), (&STDOUT_IS_CLOSED, "output")] {
        if is_closed.load(Ordering::Relaxed) {
            return Err(io::Error::other(format!("standard {name} is closed")));
        }
    }
    Ok(())
}

/// The status if the reader has closed the pipe: a shell shows it for programs that SIGPIPE ends.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// Writes to standard output.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()
}

/// Writes a line to standard error. It may be a pipe whose reader is gone, or a full disk: then there is no place to say so.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
