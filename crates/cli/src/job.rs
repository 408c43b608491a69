//! What was read and written, and how the command ends.

use std::io::{self, IsTerminal};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use paceline::time::{Clock, Tick};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::stdio::{stdin, stdout};

use crate::Failure;
use crate::args::Pace;
use crate::parts::{Part, Parts, Unit};
use crate::rest::Rest;
use crate::stdio::{BROKEN_PIPE, say};

/// The counts of a run. The end of a run holds the locks, so that the counts are final. They are locked in the order of the fields.
#[derive(Debug)]
pub(crate) struct Job {
    output: Mutex<Output>,
    input: Mutex<Input>,
    rest: Option<Mutex<Rest>>,
    /// From here on nothing more is written.
    is_ending: AtomicBool,
    unit: Unit,
    bar: ProgressBar,
    json: bool,
    clock: Clock,
}

#[derive(Debug)]
struct Input {
    is_stopped: bool,
    is_over: bool,
    parts: Parts,
}

#[derive(Debug, Default)]
struct Output {
    lines: u64,
    bytes: u64,
    waited: Duration,
}

/// What passes together.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) bytes: Bytes,
    /// Written behind it.
    pub(crate) separator: Option<u8>,
    pub(crate) lines: u64,
    /// Of its first part.
    pub(crate) number: u64,
    pub(crate) place: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) cost: u32,
    /// When it began to wait.
    pub(crate) since: Tick,
}

impl Item {
    /// Of cost 1, that has not begun to wait.
    pub(crate) fn of(part: Part) -> Self {
        Self {
            bytes: part.bytes,
            separator: None,
            lines: 1,
            number: part.number,
            place: part.place,
            key: Vec::new(),
            cost: 1,
            since: Tick::ZERO,
        }
    }

    /// How many bytes are written.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() + usize::from(self.separator.is_some())
    }

    /// Takes so many bytes from the beginning of a slice.
    pub(crate) fn split_to(&mut self, length: usize) -> Self {
        let cost = u32::try_from(length).unwrap_or(u32::MAX);
        let piece = Self {
            bytes: self.bytes.split_to(length),
            key: Vec::new(),
            cost,
            ..*self
        };
        self.place += u64::from(cost);
        self.cost -= cost;
        piece
    }
}

/// Why the command ends.
#[derive(Debug)]
pub(crate) enum End {
    /// Everything is written.
    Done,
    /// The reader has closed the pipe.
    Closed,
    /// A signal, by its name and its number.
    Signal(&'static str, i32),
    Failed(String),
}

impl Job {
    pub(crate) fn new(args: &Pace, unit: Unit) -> Result<Self, Failure> {
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
        let rest = args.rest.as_deref().map(Rest::open).transpose()?;
        Ok(Self {
            output: Mutex::default(),
            input: Mutex::new(Input {
                is_stopped: false,
                is_over: false,
                parts: Parts::new(unit),
            }),
            rest: rest.map(Mutex::new),
            is_ending: AtomicBool::new(false),
            unit,
            bar,
            json: args.json,
            clock,
        })
    }

    /// A clock that began with the job.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    pub(crate) const fn unit(&self) -> Unit {
        self.unit
    }

    /// Waits for input and reads some. Returns the parts that are complete, and whether they are the last ones.
    pub(crate) fn read(&self, chunk: &mut [u8]) -> io::Result<(Vec<Part>, bool)> {
        loop {
            wait(&PollFd::from_borrowed_fd(stdin(), PollFlags::IN))?;
            let mut input = lock(&self.input);
            if input.is_stopped {
                drop(input);
                for_ever();
            }
            let length = match rustix::io::read(stdin(), &mut *chunk) {
                Ok(length) => length,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            input.is_over = length == 0;
            let parts = if input.is_over {
                input.parts.last().into_iter().collect()
            } else {
                input.parts.of(&chunk[..length])
            };
            if let Some(rest) = &self.rest {
                let mut rest = lock(rest);
                for part in &parts {
                    rest.was_read(part);
                }
            }
            return Ok((parts, input.is_over));
        }
    }

    /// Writes items that have passed, all in one write if the output takes them, and counts them.
    pub(crate) fn write(&self, items: &[Item]) -> io::Result<()> {
        let bytes = match items {
            [item] if item.separator.is_none() => item.bytes.clone(),
            _ => {
                let parts = items.iter();
                let parts = parts.flat_map(|item| [&item.bytes[..], item.separator.as_slice()]);
                parts.collect::<Vec<_>>().concat().into()
            }
        };
        let mut output = lock(&self.output);
        if self.is_ending.load(Ordering::SeqCst) {
            drop(output);
            for_ever();
        }
        let mut written = 0;
        let mut result = Ok(());
        while result.is_ok() && written < bytes.len() {
            match rustix::io::write(stdout(), &bytes[written..]) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    result = wait(&PollFd::from_borrowed_fd(stdout(), PollFlags::OUT));
                }
                Err(error) => result = Err(error.into()),
            }
        }
        output.bytes += written as u64;
        let now = self.clock().now();
        for item in items {
            if written >= item.length() {
                output.lines += item.lines;
                output.waited += now.since(item.since);
            }
            if let Some(rest) = &self.rest {
                lock(rest).was_written(item.place, written.min(item.bytes.len()));
            }
            written = written.saturating_sub(item.length());
        }
        result
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
                let written = lock(&self.output).count(self.unit);
                let read = lock(&self.input).parts.count();
                let now = clock.now();
                let rate = per_second(written - before, now.since(then));
                let waiting = read.saturating_sub(written);
                let unit = self.unit.name();
                self.bar
                    .set_message(format!("{rate:.1}/s, {written} {unit}s, {waiting} waiting"));
                (before, then) = (written, now);
            }
        });
    }

    /// Reports what was not written, and ends the process. A line under way is written whole.
    pub(crate) fn end(&self, end: &End) -> ! {
        self.is_ending.store(true, Ordering::SeqCst);
        let output = lock(&self.output);
        let mut input = lock(&self.input);
        input.is_stopped = true;
        self.bar.finish_and_clear();

        let unwritten = input.parts.count().saturating_sub(output.count(self.unit));
        let is_complete = unwritten == 0 && input.is_at_its_end();
        let (why, mut status) = match end {
            End::Done => (None, 0),
            End::Closed if is_complete => (None, 0),
            End::Closed => (Some("the reader closed the pipe"), BROKEN_PIPE.into()),
            End::Signal(name, number) => (Some(*name), 128 + number),
            End::Failed(why) => (Some(&**why), 1),
        };
        let mut in_rest = String::new();
        if let Some(rest) = &self.rest {
            let mut rest = lock(rest);
            in_rest = format!("; the rest of the input is in {rest}");
            if let Err(error) = rest.save(&input.parts.line) {
                say(format_args!(
                    "paceline: cannot save the rest of the input in {rest}: {error}"
                ));
                (in_rest, status) = (String::new(), 1);
            }
        }
        if let Some(why) = why.filter(|_| unwritten > 0 || !matches!(end, End::Closed)) {
            let unit = self.unit.name();
            let not_written = match unwritten {
                1 => format!("1 {unit} that was read was not written"),
                _ => format!("{unwritten} {unit}s that were read were not written"),
            };
            say(format_args!("paceline: {why}: {not_written}{in_rest}"));
        }
        if self.json {
            let seconds = self.clock().now().since(Tick::ZERO);
            say(output.json(self.unit, seconds, unwritten));
        }
        process::exit(status)
    }
}

impl Input {
    /// Whether there is no more input. If nothing can be said of it, it has to be read first.
    fn is_at_its_end(&self) -> bool {
        let mut end = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
        self.is_over
            || ioctl_fionread(stdin()) == Ok(0)
                && poll(&mut end, Some(&Timespec::default())) == Ok(1)
    }
}

impl Output {
    const fn count(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Line(_) => self.lines,
            Unit::Byte(_) => self.bytes,
        }
    }

    fn json(&self, unit: Unit, time: Duration, unwritten: u64) -> String {
        let lines = match unit {
            Unit::Line(_) => format!(r#""lines":{},"#, self.lines),
            Unit::Byte(_) => String::new(),
        };
        let (bytes, rate) = (self.bytes, per_second(self.count(unit), time));
        let (seconds, waited) = (time.as_secs_f64(), self.waited.as_secs_f64());
        format!(
            r#"{{{lines}"bytes":{bytes},"seconds":{seconds:.6},"waited":{waited:.6},"rate":{rate:.3},"unwritten":{unwritten}}}"#
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

/// A pipe that takes anything takes a page, and takes it whole if others write to it too.
pub(crate) const PAGE: usize = 4096;

/// Waits until output is possible without waiting for the reader. Returns how many bytes.
pub(crate) async fn until_writable(unit: Unit) -> usize {
    const PIPE: usize = 16 * PAGE;
    /// A reader is mostly that quick, and another thread is not.
    const SOON: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };

    let mut fds = [PollFd::from_borrowed_fd(stdout(), PollFlags::OUT)];
    // A signal interrupts it.
    if matches!(poll(&mut fds, Some(&SOON)), Ok(0) | Err(Errno::INTR)) {
        let waiting = tokio::task::spawn_blocking(|| {
            let _ = wait(&PollFd::from_borrowed_fd(stdout(), PollFlags::OUT));
        });
        let _ = waiting.await;
    }
    let held = ioctl_fionread(stdout()).unwrap_or(0);
    match (unit, usize::try_from(held).unwrap_or(PIPE)) {
        (Unit::Line(_), _) => PAGE,
        (Unit::Byte(_), 0) => PIPE,
        // Its pages are more than half full, but for the first and the last one.
        (Unit::Byte(_), held) => (PIPE - 2 * PAGE).saturating_sub(2 * held).max(PAGE),
    }
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
