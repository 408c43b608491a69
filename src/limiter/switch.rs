use core::fmt;
use core::sync::atomic::Ordering;
use core::task::Waker;
use std::collections::BTreeMap;
use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64},
};
#[cfg(not(loom))]
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64},
};

use super::mode::Mode;
use super::share::Share;

/// Makes limits active, shadow or off while the program runs, for all requests or for a [`Share`] of them.
///
/// Each [`Switched`](super::Switched) limiter has one. Clones are the same switch: keep one where the configuration is read or an
/// operator's command arrives. A change takes effect at once, for queued requests too.
///
/// | [`Mode`] | a request in the [`Share`] | any other request |
/// |---|---|---|
/// | `Active` | what the limiter says | as in `Shadow` |
/// | `Shadow` | passes; the limiter is asked, and what would have waited or been refused is counted | the same |
/// | `Off` | passes; the limiter is not asked | the same |
///
/// ```
/// use paceline::limiter::{Mode, PolicyExt, Share, Switch, Switched};
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let switch = Switch::new().with_mode(Mode::Shadow);
/// let limit = Switched::new(Interval::every(Duration::from_millis(100)).shared(), switch.clone());
///
/// for _ in 0..3 {
///     limit.acquire_one().await;
/// }
/// assert_eq!(start.elapsed(), Duration::ZERO);
/// assert_eq!(switch.stats().held_back, 2);
///
/// switch.set_mode(Mode::Active);
/// limit.acquire_one().await;
/// assert_eq!(start.elapsed(), Duration::from_millis(100));
/// # }
/// ```
#[derive(Clone)]
#[doc(alias("kill switch", "feature flag", "dark launch", "dry run", "canary"))]
pub struct Switch {
    state: Arc<State>,
}

struct State {
    /// The mode and the share in one word, so that a reader never sees a mixture. It is written
    /// under the lock of `wakers`, and read without. Every order is `Relaxed`: the word guards nothing, and what must not be missed
    /// is checked under the lock.
    setting: AtomicU32,
    refresh: Option<Box<dyn Fn() + Send + Sync>>,
    /// How many requests without a key have drawn a number. `Relaxed`, as the counts below: they are only ever added to.
    drawn: AtomicU64,
    shadowed: AtomicU64,
    held_back: AtomicU64,
    unreachable: AtomicU64,
    wakers: Mutex<Wakers>,
}

/// The wakers of the requests that wait.
struct Wakers {
    next_ticket: u64,
    by_ticket: BTreeMap<u64, Waker>,
}

/// What a switch is set to.
pub(super) type Setting = (Mode, Share);

impl Switch {
    /// A switch in [`Mode::Active`] with [`Share::FULL`]: every request is limited.
    #[must_use]
    pub fn new() -> Self {
        Self::of(None)
    }

    /// A switch whose mode is kept elsewhere, for all processes of a fleet or in a service. `refresh` is called before each
    /// request, in its task and under no lock. It must not wait: it starts what reads the mode, if a read is due, and that calls
    /// [`set_mode`](Self::set_mode) later.
    #[must_use]
    pub fn with_refresh(refresh: impl Fn() + Send + Sync + 'static) -> Self {
        Self::of(Some(Box::new(refresh)))
    }

    fn of(refresh: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        let state = State {
            setting: AtomicU32::new(packed((Mode::Active, Share::FULL))),
            refresh,
            drawn: AtomicU64::new(0),
            shadowed: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            wakers: Mutex::new(Wakers {
                next_ticket: 0,
                by_ticket: BTreeMap::new(),
            }),
        };
        Self {
            state: Arc::new(state),
        }
    }

    /// Starts in this mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        self.set_mode(mode);
        self
    }

    /// Starts with this share.
    #[must_use]
    pub fn with_share(self, share: Share) -> Self {
        self.set_share(share);
        self
    }

    /// Changes the mode. The share stays.
    pub fn set_mode(&self, mode: Mode) {
        self.change(|(_, share)| (mode, share));
    }

    /// Changes the share that is limited while the mode is [`Mode::Active`]. The mode stays.
    pub fn set_share(&self, share: Share) {
        self.change(|(mode, _)| (mode, share));
    }

    /// Changes both at once: no request sees one without the other.
    pub fn set(&self, mode: Mode, share: Share) {
        self.change(|_| (mode, share));
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.setting().0
    }

    /// The share that is limited while the mode is [`Mode::Active`].
    #[must_use]
    pub fn share(&self) -> Share {
        self.setting().1
    }

    /// What has passed so far without being limited, over all limiters of this switch.
    #[must_use]
    pub fn stats(&self) -> SwitchStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SwitchStats {
            shadowed: count(&self.state.shadowed),
            held_back: count(&self.state.held_back),
            unreachable: count(&self.state.unreachable),
        }
    }

    #[inline]
    pub(super) fn setting(&self) -> Setting {
        unpacked(self.state.setting.load(Ordering::Relaxed))
    }

    /// The setting for a request.
    #[inline]
    pub(super) fn setting_for_request(&self) -> Setting {
        self.state.refresh.iter().for_each(|refresh| refresh());
        self.setting()
    }

    /// How many requests without a key have come before this one.
    pub(super) fn draw(&self) -> u64 {
        self.state.drawn.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a request that was not limited; `would_pass` is what the limiter said, `None` if it could not be reached.
    pub(super) fn count_shadowed(&self, would_pass: Option<bool>) {
        self.state.shadowed.fetch_add(1, Ordering::Relaxed);
        let counter = match would_pass {
            Some(true) => return,
            Some(false) => &self.state.held_back,
            None => &self.state.unreachable,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps `waker` under this ticket until the setting changes. `false` if it has changed since it was `seen`: the caller has to
    /// look again.
    pub(super) fn register(&self, ticket: &mut Option<u64>, seen: Setting, waker: &Waker) -> bool {
        let mut wakers = self.wakers();
        if self.setting() != seen {
            return false;
        }
        let number = *ticket.get_or_insert_with(|| {
            wakers.next_ticket += 1;
            wakers.next_ticket
        });
        let known = wakers.by_ticket.get(&number);
        if known.is_some_and(|known| known.will_wake(waker)) {
            return true;
        }
        let replaced = wakers.by_ticket.insert(number, waker.clone());
        drop(wakers);
        drop(replaced);
        true
    }

    /// Forgets the waker of this ticket.
    #[inline]
    pub(super) fn deregister(&self, ticket: &mut Option<u64>) {
        if let Some(number) = ticket.take() {
            let waker = self.wakers().by_ticket.remove(&number);
            drop(waker);
        }
    }

    fn change(&self, change: impl FnOnce(Setting) -> Setting) {
        let mut wakers = self.wakers();
        let old = self.setting();
        let new = change(old);
        if new == old {
            return;
        }
        self.state.setting.store(packed(new), Ordering::Relaxed);
        let woken = core::mem::take(&mut wakers.by_ticket);
        drop(wakers);
        woken.into_values().for_each(Waker::wake);
    }

    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        let wakers = self.state.wakers.lock();
        // No code under this lock can leave the map half changed.
        wakers.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, share) = self.setting();
        f.debug_struct("Switch")
            .field("mode", &mode)
            .field("share", &format_args!("{share}"))
            .field("stats", &self.stats())
            .finish()
    }
}

/// What has passed without being limited, in requests, whatever they cost. Not counted: requests of cost 0, and all in [`Mode::Off`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SwitchStats {
    /// Requests that passed in [`Mode::Shadow`] or outside the share, whatever the limiter said.
    pub shadowed: u64,
    /// Of those, the requests that would have waited or been refused.
    pub held_back: u64,
    /// Of those, the requests without an answer: the limiter returned an error, or the key has no limit.
    pub unreachable: u64,
}

const fn packed((mode, share): Setting) -> u32 {
    let mode = match mode {
        Mode::Active => 0,
        Mode::Shadow => 1,
        Mode::Off => 2,
    };
    (mode << 16) | share.ten_thousandths()
}

#[inline]
fn unpacked(word: u32) -> Setting {
    let mode = match word >> 16 {
        0 => Mode::Active,
        1 => Mode::Shadow,
        _ => Mode::Off,
    };
    let share = Share::try_of_ten_thousand(word & 0xffff);
    (mode, share.unwrap_or(Share::FULL))
}

// A package of its own runs them: see `crates/models/`.
#[cfg(all(test, loom))]
mod tests {
    use std::task::Wake;

    use loom::model;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn in_every_order_a_waiter_sees_the_change_or_is_woken() {
        model(|| {
            let switch = Switch::new();
            let woken = std::sync::Arc::new(Woken(AtomicBool::new(false)));
            let other = switch.clone();
            let setter = thread::spawn(move || other.set_mode(Mode::Off));

            let seen = switch.setting();
            let mut ticket = None;
            let waits = seen.0 == Mode::Active
                && switch.register(
                    &mut ticket,
                    seen,
                    &Waker::from(std::sync::Arc::clone(&woken)),
                );
            setter.join().unwrap();
            assert_eq!(waits, woken.0.load(Ordering::Relaxed));
            assert_eq!(switch.mode(), Mode::Off);
        });
    }

    #[test]
    fn in_every_order_of_two_changes_both_stay_and_no_reader_sees_a_mixture() {
        model(|| {
            let switch = Switch::new();
            let setters = [
                |switch: Switch| switch.set(Mode::Shadow, Share::NONE),
                |switch: Switch| switch.set_mode(Mode::Off),
            ];
            let setters = setters.map(|set| {
                let switch = switch.clone();
                thread::spawn(move || set(switch))
            });
            let settings = [
                (Mode::Active, Share::FULL),
                (Mode::Off, Share::FULL),
                (Mode::Shadow, Share::NONE),
                (Mode::Off, Share::NONE),
            ];
            assert!(settings.contains(&switch.setting()));
            for setter in setters {
                setter.join().unwrap();
            }
            assert!(settings[2..].contains(&switch.setting()));
        });
    }
}
