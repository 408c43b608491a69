//! What operators have changed of limits while they are in use, in any process: pauses, modes and parameters.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use paceline::limiter::{Mode, Switch};
use paceline::time::Tick;

use super::Store;
use super::connection::Connection;
use super::error::Failure;

/// How old the knowledge of overrides may become while limits are in use.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The pause after the server refused a read. It would refuse the next one too.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// What holds for a limit in place of what it was made with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override<T> {
    pub(crate) paused_until: Tick,
    pub(crate) mode: Mode,
    /// The old parameters and the new ones. A limit with other parameters keeps its own.
    pub(crate) params: Option<[T; 2]>,
    /// Whether it was changed here, and the server has not yet returned it.
    pub(crate) is_local: bool,
}

/// A change of one override.
#[derive(Clone, Debug)]
pub(crate) enum Change<T> {
    /// Of two pauses the later end counts.
    Pause(Duration),
    Resume,
    Mode(Mode),
    Params(Option<[T; 2]>),
}

/// The server's reply to a read or a change.
#[derive(Debug)]
pub(crate) struct Changes<T> {
    /// The version since which they are.
    pub(crate) since: u64,
    /// The server's time.
    pub(crate) time: u64,
    /// Identifies the last change. Later changes have a larger version.
    pub(crate) version: u64,
    /// Whether these are all overrides, and not only the changes since a version.
    pub(crate) is_all: bool,
    /// Whether more have changed than one reply holds. They follow `version`.
    pub(crate) has_more: bool,
    /// Names, and for each how much of a pause is left, and the rest of the override.
    pub(crate) changed: Vec<(Box<str>, Option<Duration>, Override<T>)>,
}

/// The overrides of one namespace, as far as this process knows them.
#[derive(Debug)]
pub(crate) struct Overrides<S: Store> {
    pub(super) namespace: Arc<str>,
    /// Since when the server has the states of the namespace, as far as this process knows; 0 before it does. A server with another
    /// epoch has lost them.
    epoch: Mutex<u64>,
    /// A channel, because each queue has to know at little cost whether it has seen the present value.
    known: watch::Sender<Known<S::Params>>,
    /// The switches of this process, by name.
    switches: Mutex<HashMap<Box<str>, Switch>>,
}

/// The queue of a limit looks at this when it has changed.
#[derive(Debug)]
pub(crate) struct Known<T> {
    by_name: HashMap<Box<str>, Override<T>>,
    /// The server's last version that was read, and how many connections had been made then. Another server may have other
    /// overrides.
    version: u64,
    connects: u64,
    /// Whether the server has more, which the next read goes on with.
    has_more: bool,
    /// When the next read is due.
    pub(crate) read_at: Tick,
    /// Counts the changes for which waiters have to wake.
    changes: u64,
    /// When those that are over are forgotten next.
    forgets_at: Tick,
}

impl<T: Clone> Override<T> {
    pub(crate) const NONE: Self = Self {
        paused_until: Tick::ZERO,
        mode: Mode::Active,
        params: None,
        is_local: false,
    };

    fn apply(&mut self, now: Tick, change: &Change<T>) {
        self.is_local = true;
        match change {
            Change::Pause(time) => self.paused_until = self.paused_until.max(now.after(*time)),
            Change::Resume => self.paused_until = Tick::ZERO,
            Change::Mode(mode) => self.mode = *mode,
            Change::Params(params) => self.params.clone_from(params),
        }
    }

    fn is_over(&self, now: Tick) -> bool {
        self.paused_until <= now && self.mode == Mode::Active && self.params.is_none()
    }
}

impl<T: Clone + PartialEq> Known<T> {
    /// What holds for a limit that was made with these parameters.
    pub(crate) fn of(&self, name: impl FnOnce() -> String, made_with: &T) -> Override<T> {
        if self.by_name.is_empty() {
            return Override::NONE;
        }
        let found = self.by_name.get(&*name()).cloned();
        let mut found = found.unwrap_or(Override::NONE);
        found.params = found.params.filter(|params| params[0] == *made_with);
        found
    }

    fn accept(&mut self, now: Tick, reply: Changes<T>) {
        if reply.since != self.version && reply.version <= self.version {
            // A later reply has overtaken this one.
            return;
        }
        (self.version, self.has_more) = (reply.version, reply.has_more);
        let has_changed = !reply.changed.is_empty() || reply.is_all && !self.by_name.is_empty();
        self.changes += u64::from(has_changed);
        if reply.is_all {
            let of_server = self.by_name.values_mut().filter(|known| !known.is_local);
            of_server.for_each(|known| {
                // A server that has lost its data does not know of the pause. One that was taken back is in the reply.
                let paused_until = known.paused_until;
                *known = Override::NONE;
                known.paused_until = paused_until;
            });
        }
        for (name, pause, mut new) in reply.changed {
            new.paused_until = pause.map_or(Tick::ZERO, |pause| now.after(pause));
            self.by_name.insert(name, new);
        }
        self.forget_old(now);
    }

    /// Once a second, because each of many changes would look at all others.
    fn forget_old(&mut self, now: Tick) {
        if self.forgets_at <= now {
            self.forgets_at = now.after(READ_EVERY);
            self.by_name.retain(|_, known| !known.is_over(now));
        }
    }
}

impl<S: Store> Overrides<S> {
    pub(crate) fn new(namespace: Arc<str>) -> Self {
        let known = watch::Sender::new(Known {
            by_name: HashMap::new(),
            version: 0,
            connects: 0,
            has_more: false,
            read_at: Tick::ZERO,
            changes: 0,
            forgets_at: Tick::ZERO,
        });
        Self {
            namespace,
            epoch: Mutex::default(),
            known,
            switches: Mutex::default(),
        }
    }

    pub(super) fn epoch(&self) -> MutexGuard<'_, u64> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a queue. It has not seen the present value.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Known<S::Params>> {
        let mut known = self.known.subscribe();
        known.mark_changed();
        known
    }

    /// When the next read is due. `None` if this process has no limits and no switches.
    pub(crate) fn read_at(&self) -> Option<Tick> {
        let is_used = self.known.receiver_count() > 0 || !self.switches().is_empty();
        is_used.then(|| self.known.borrow().read_at)
    }

    /// The switch of that name, with the mode that the fleet has given it.
    pub(crate) fn switch(&self, name: &str, new: impl FnOnce() -> Switch) -> Switch {
        let switch = self.switches().get(name).cloned();
        switch.unwrap_or_else(|| {
            let new = new();
            let switch = self.switches().entry(name.into()).or_insert(new).clone();
            self.set_switches(|of| of == name);
            switch
        })
    }

    /// Gives these switches the mode that the fleet has given them. No lock is held: a change wakes tasks.
    fn set_switches(&self, are_these: impl Fn(&str) -> bool) {
        loop {
            let changes = self.changes();
            let switches = self.switches().clone();
            for (name, switch) in switches.iter().filter(|(name, _)| are_these(name)) {
                switch.set_mode(self.mode_of(name));
            }
            if self.changes() == changes {
                return;
            }
            // Another thread may have set them by what is known since, before this one did.
        }
    }

    fn switches(&self) -> MutexGuard<'_, HashMap<Box<str>, Switch>> {
        // No code under this lock can leave the map half changed.
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes(&self) -> u64 {
        self.known.borrow().changes
    }

    fn mode_of(&self, name: &str) -> Mode {
        let known = self.known.borrow();
        known.by_name.get(name).map_or(Mode::Active, |of| of.mode)
    }

    /// Changes an override in this process.
    pub(crate) fn apply(&self, now: Tick, name: &str, change: &Change<S::Params>) {
        self.known.send_modify(|known| {
            known.forget_old(now);
            let of_name = known.by_name.entry(name.into()).or_insert(Override::NONE);
            of_name.apply(now, change);
            known.changes += 1;
        });
        if matches!(change, Change::Mode(_)) {
            self.set_switches(|of| of == name);
        }
    }

    /// Reads the changes on the server since the last read, after making this change, if any.
    pub(crate) async fn exchange(
        &self,
        connection: &Connection<S>,
        opened: &S::Connection,
        change: Option<(&str, &Change<S::Params>)>,
    ) -> Result<Changes<S::Params>, Failure> {
        let connects = connection.stats().connects;
        self.known.send_if_modified(|known| {
            if known.connects != connects {
                (known.connects, known.version) = (connects, 0);
                known.has_more = false;
            }
            false
        });
        let since = {
            let known = self.known.borrow();
            (known.version, known.has_more)
        };
        S::overrides(opened, &self.namespace, since, change).await
    }

    /// Takes the reply to a read that was `sent` at that time. `None` if there was none in time.
    pub(crate) fn accept(
        &self,
        now: Tick,
        sent: Tick,
        reply: Option<Result<Changes<S::Params>, Failure>>,
    ) {
        let pause = match &reply {
            Some(Err(failure)) if failure.is_fault() => AFTER_REFUSAL,
            Some(Ok(reply)) if reply.has_more => Duration::ZERO,
            _ => READ_EVERY,
        };
        let is_read = matches!(reply, Some(Ok(_)));
        self.known.send_modify(|known| {
            known.read_at = known.read_at.max(sent.after(pause));
            if let Some(Ok(reply)) = reply {
                known.accept(now, reply);
            }
        });
        if is_read {
            self.set_switches(|_| true);
        }
    }
}
