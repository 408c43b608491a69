//! What was read and written, and how the command ends.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use paceline::time::{Clock, Tick};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

use crate::args::Pace;

/// The counts of a run. The end of a run holds both locks, so that the counts are final.
#[derive(Debug)]
pub(crate) struct Job {
    input: Mutex<Input>,
    output: Mutex<Output>,
    /// From here on nothing more is written.
    is_ending: AtomicBool,
    bar: ProgressBar,
    json: bool,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Input {
    is_stopped: bool,
    newlines: u64,
    /// Whether there are bytes after the last newline.
    has_rest: bool,
}

#[derive(Debug, Default)]
struct Output {
    lines: u64,
    bytes: u64,
    waited: Duration,
}

/// Why the command ends.
#[derive(Debug)]
pub(crate) enum End {
    /// All lines are written.
    Done,
    /// The reader has closed the pipe.
    Closed,
    /// A signal, by its name and its number.
    Signal(&'static str, i32),
    Failed(String),
}

impl Job {
    pub(crate) fn new(args: &Pace) -> Self {
        let mut clock = Clock::new();
        clock.now();
        let shows = io::stderr().is_terminal() && !io::stdout().is_terminal() && !args.quiet;
        let target = if shows {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self {
            input: Mutex::default(),
            output: Mutex::default(),
            is_ending: AtomicBool::new(false),
            bar,
            json: args.json,
            clock,
        }
    }

    /// A clock that began with the job.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Waits for input and reads some; nothing at its end.
    pub(crate) fn read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        loop {
            wait(&PollFd::from_borrowed_fd(stdin(), PollFlags::IN))?;
            let mut input = lock(&self.input);
            if input.is_stopped {
                drop(input);
                for_ever();
            }
            match rustix::io::read(stdin(), &mut *chunk) {
                Ok(length) => {
                    input.count(&chunk[..length]);
                    return Ok(length);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes lines that have passed, and counts them.
    pub(crate) fn write(&self, bytes: &[u8], lines: u64, waited: Duration) -> io::Result<()> {
        let mut output = lock(&self.output);
        if self.is_ending.load(Ordering::SeqCst) {
            drop(output);
            for_ever();
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(stdout(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    wait(&PollFd::from_borrowed_fd(stdout(), PollFlags::OUT))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        output.lines += lines;
        output.bytes += bytes.len() as u64;
        output.waited += waited;
        Ok(())
    }

    /// Ends when the reader closes the pipe, also while nothing is written.
    pub(crate) fn watch_reader(self: Arc<Self>) {
        thread::spawn(move || {
            // Without events to wait for, only a closed pipe is reported.
            if wait(&PollFd::from_borrowed_fd(stdout(), PollFlags::empty())).is_ok() {
                self.end(&End::Closed);
            }
        });
    }

    /// Shows the progress if there is a terminal for it.
    pub(crate) fn show_progress(self: Arc<Self>) {
        const EVERY: Duration = Duration::from_millis(200);
        if self.bar.is_hidden() {
            return;
        }
        thread::spawn(move || {
            let mut clock = self.clock();
            let (mut before, mut then) = (0, clock.now());
            loop {
                thread::sleep(EVERY);
                let (read, written) = (lock(&self.input).lines(), lock(&self.output).lines);
                let now = clock.now();
                let rate = per_second(written - before, now.since(then));
                let waiting = read.saturating_sub(written);
                self.bar
                    .set_message(format!("{rate:.1}/s, {written} lines, {waiting} waiting"));
                (before, then) = (written, now);
            }
        });
    }

    /// Reports the lines not written, and ends the process. A line under way is written whole.
    pub(crate) fn end(&self, end: &End) -> ! {
        self.is_ending.store(true, Ordering::SeqCst);
        let output = lock(&self.output);
        let mut input = lock(&self.input);
        input.is_stopped = true;
        self.bar.finish_and_clear();

        let unwritten = input.lines().saturating_sub(output.lines);
        let not_written = match unwritten {
            1 => "1 line that was read was not written".to_owned(),
            _ => format!("{unwritten} lines that were read were not written"),
        };
        let status = match end {
            End::Done => 0,
            End::Closed => {
                if unwritten > 0 {
                    eprintln!("paceline: the reader closed the pipe: {not_written}");
                }
                0
            }
            End::Signal(name, number) => {
                eprintln!("paceline: {name}: {not_written}");
                128 + number
            }
            End::Failed(why) => {
                eprintln!("paceline: {why}: {not_written}");
                1
            }
        };
        if self.json {
            let seconds = self.clock().now().since(Tick::ZERO);
            eprintln!("{}", output.json(seconds, unwritten));
        }
        process::exit(status)
    }
}

impl Input {
    fn count(&mut self, bytes: &[u8]) {
        self.newlines += bytes.split(|&byte| byte == b'\n').skip(1).count() as u64;
        if let Some(last) = bytes.last() {
            self.has_rest = *last != b'\n';
        }
    }

    fn lines(&self) -> u64 {
        self.newlines + u64::from(self.has_rest)
    }
}

impl Output {
    fn json(&self, time: Duration, unwritten: u64) -> String {
        let (lines, bytes) = (self.lines, self.bytes);
        let (seconds, waited) = (time.as_secs_f64(), self.waited.as_secs_f64());
        let rate = per_second(lines, time);
        format!(
            r#"{{"lines":{lines},"bytes":{bytes},"seconds":{seconds:.6},"waited":{waited:.6},"rate":{rate:.3},"unwritten":{unwritten}}}"#
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown")]
pub(crate) fn per_second(lines: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    lines as f64 / time.as_secs_f64()
}

/// Waits until output is possible without waiting for the reader.
pub(crate) async fn until_writable() {
    use rustix::event::Timespec;

    const NOW: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::from_borrowed_fd(stdout(), PollFlags::OUT)];
    if poll(&mut fds, Some(&NOW)) != Ok(0) {
        return;
    }
    let waiting = tokio::task::spawn_blocking(|| {
        let _ = wait(&PollFd::from_borrowed_fd(stdout(), PollFlags::OUT));
    });
    let _ = waiting.await;
}

fn wait(fd: &PollFd<'_>) -> io::Result<()> {
    loop {
        match poll(&mut [fd.clone()], None) {
            Err(Errno::INTR) => {}
            polled => return polled.map(drop).map_err(io::Error::from),
        }
    }
}

/// Another thread ends the process.
fn for_ever() -> ! {
    loop {
        thread::park();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
