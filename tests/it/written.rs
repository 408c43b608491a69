//! Writes down what is logged.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Id, Level, Metadata, Subscriber};

/// The events of this crate up to a level, each as its fields.
#[derive(Clone)]
pub(crate) struct Written {
    most: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Written {
    /// Hears this thread until the guard is dropped.
    pub(crate) fn up_to(most: Level) -> (Self, DefaultGuard) {
        // While no more than one subscriber exists, `tracing` asks that of the thread which comes to an event first whether any
        // thread wants it. Other tests have none there.
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Undecided).unwrap());
        let written = Self {
            most,
            lines: Arc::default(),
        };
        let guard = tracing::subscriber::set_default(written.clone());
        (written, guard)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Subscriber for Written {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "paceline" && *metadata.level() <= self.most
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines
            .lock()
            .unwrap()
            .push(line.0.trim_end().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Wants nothing, and keeps `tracing` from deciding that for other threads.
struct Undecided;

impl Subscriber for Undecided {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
