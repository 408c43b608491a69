use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::time::{Clock, Tick, Timer};

use super::link::{Call, Failure, Hello, Link, NoAnswer, Store};
use super::sight::View;
use super::state::{Next, Phase, State};
use super::stats::Stats;

/// How long it may take to connect. Nobody waits for it that long: calls have their deadline.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Keeps the connection: makes it, notices that it is of no use any more, and makes it anew.
///
/// The client library's own ways to connect again do not do it after timeouts, and make callers wait. Here one deadline is
/// around everything, and a task of its own connects.
pub(super) struct Keeper {
    store: Arc<dyn Store>,
    deadline: Duration,
    clock: Clock,
    state: Mutex<State>,
    changed: Notify,
    nonce: String,
}

impl Keeper {
    pub(super) fn new(store: Arc<dyn Store>, deadline: Duration) -> Self {
        let mut clock = Clock::new();
        // From now on its clones agree on the time.
        let _ = clock.now();
        Self {
            store,
            deadline,
            clock,
            nonce: nonce(),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// The same store with a connection of its own.
    pub(super) fn with_deadline(&self, deadline: Duration) -> Self {
        Self::new(Arc::clone(&self.store), deadline)
    }

    /// Waits for a connection as a call would.
    pub(super) async fn connected_within(self: &Arc<Self>) -> Result<(), NoAnswer> {
        let link = within(self.deadline, self.link()).await;
        match link.unwrap_or(Err(NoAnswer::Failed(Failure::Timeout))) {
            Ok(_) => Ok(()),
            // Whoever only connects wants to know why not.
            Err(NoAnswer::Skipped) => Err(self
                .last_failure()
                .map_or(NoAnswer::Skipped, NoAnswer::Failed)),
            Err(failed) => Err(failed),
        }
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What time it is here.
    pub(super) fn now(&self) -> Tick {
        self.clock.clone().now()
    }

    /// What is known of the server's time, and of outages.
    pub(super) fn view(&self) -> View {
        self.locked().sight.view()
    }

    pub(super) fn stats(&self) -> Stats {
        self.locked().stats
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.locked().stats);
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.locked().phase, Phase::Up(_))
    }

    /// Whether calls fail at once.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.locked().phase, Phase::Down)
    }

    /// One that no other call has: 128 random bits of this process, and a number.
    pub(super) fn new_id(&self) -> String {
        let mut state = self.locked();
        state.calls += 1;
        format!("{}:{}", self.nonce, state.calls)
    }

    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.locked().last_failure.clone()
    }

    /// Ready when Redis is no longer known to be down.
    pub(super) async fn back(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = pin!(changed);
            changed.as_mut().enable();
            if !matches!(self.locked().phase, Phase::Down) {
                return;
            }
            changed.await;
        }
    }

    /// Ready when more connections have been made than that: whatever is at the other end may have forgotten everything.
    pub(super) async fn connected_more_often_than(&self, connects: u64) {
        loop {
            let changed = self.changed.notified();
            let mut changed = pin!(changed);
            changed.as_mut().enable();
            if self.stats().connects > connects {
                return;
            }
            changed.await;
        }
    }

    /// Runs a script, once. It takes no longer than the deadline, whatever happens.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &Call,
        deadline: Duration,
    ) -> Result<Vec<i64>, NoAnswer> {
        let mut used = None;
        let answer = within(deadline, async {
            let link = self.link().await?;
            used = Some(Arc::clone(&link));
            link.call(call).await.map_err(NoAnswer::Failed)
        });
        let Some(answer) = answer.await else {
            // One that had to wait for others before, and had much less than the deadline left, says nothing of the server.
            return self.timed_out(used.as_ref(), deadline >= self.deadline * 3 / 4);
        };
        self.record(used.as_ref(), &answer);
        answer
    }

    async fn link(self: &Arc<Self>) -> Result<Arc<dyn Link>, NoAnswer> {
        let mut has_started = false;
        loop {
            let changed = self.changed.notified();
            let mut changed = pin!(changed);
            changed.as_mut().enable();
            let starts = {
                let mut state = self.locked();
                match &state.phase {
                    Phase::Up(link) => return Ok(Arc::clone(link)),
                    Phase::Down => return Err(NoAnswer::Skipped),
                    Phase::Refused(why) => return Err(NoAnswer::Failed(why.clone())),
                    Phase::Connecting => false,
                    // A runtime that is about to end starts nothing any more.
                    Phase::Idle if has_started => return Err(NoAnswer::Skipped),
                    Phase::Idle => {
                        state.phase = Phase::Connecting;
                        true
                    }
                }
            };
            if starts {
                has_started = true;
                self.start_to_connect();
            }
            changed.await;
        }
    }

    fn timed_out(
        self: &Arc<Self>,
        used: Option<&Arc<dyn Link>>,
        says_something: bool,
    ) -> Result<Vec<i64>, NoAnswer> {
        let answer = Err(NoAnswer::Failed(Failure::Timeout));
        if says_something {
            self.record(used, &answer);
        } else {
            self.count(|stats| stats.timeouts += 1);
        }
        answer
    }

    fn record(self: &Arc<Self>, used: Option<&Arc<dyn Link>>, answer: &Result<Vec<i64>, NoAnswer>) {
        let now = self.now();
        let next = self.locked().record(now, used, answer);
        match next {
            Next::Nothing => {}
            Next::Connect => self.start_to_connect(),
            Next::Tell => self.changed.notify_waiters(),
        }
    }

    /// One task connects at a time: from when the phase becomes another than [`Phase::Up`] until it is that again.
    ///
    /// Not under the lock: where the runtime is about to end, the attempt is over at once.
    fn start_to_connect(self: &Arc<Self>) {
        let attempt = Attempt {
            keeper: Arc::downgrade(self),
        };
        tokio::spawn(keep_connecting(attempt));
    }

    async fn connect(&self) -> Result<(Arc<dyn Link>, Hello), Failure> {
        let link = within(CONNECT_WITHIN, self.store.connect()).await;
        let link = link.unwrap_or(Err(Failure::Timeout))?;
        // A server that is too slow for this is too slow for calls.
        let time = within(self.deadline, link.time()).await;
        let time = time.unwrap_or(Err(Failure::Timeout))?;
        // A server that does not tell is one that may have been started anew.
        let run = within(CONNECT_WITHIN, link.run()).await;
        let run = run.and_then(Result::ok).flatten();
        Ok((link, Hello { run, time }))
    }

    fn connected(&self, link: Arc<dyn Link>, hello: Hello) {
        let now = self.now();
        self.locked().connected(now, link, hello);
        self.changed.notify_waiters();
    }

    fn not_connected(&self, failure: Failure) {
        let now = self.now();
        self.locked().not_connected(now, failure);
        self.changed.notify_waiters();
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing under it leaves half a state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("store", &self.store)
            .field("is_up", &self.is_up())
            .finish_non_exhaustive()
    }
}

/// Tries until there is a connection, or nobody is left to use it.
async fn keep_connecting(mut attempt: Attempt) {
    loop {
        let Some(pause) = attempt.keeper.upgrade().map(|keeper| keeper.locked().pause) else {
            return;
        };
        if !pause.is_zero() {
            slept(pause).await;
        }
        let Some(keeper) = attempt.keeper.upgrade() else {
            return;
        };
        match keeper.connect().await {
            Ok((link, hello)) => {
                attempt.keeper = Weak::new();
                return keeper.connected(link, hello);
            }
            Err(failure) => keeper.not_connected(failure),
        }
    }
}

/// An attempt that ends with its runtime must not be the last one.
struct Attempt {
    keeper: Weak<Keeper>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.upgrade() {
            keeper.locked().phase = Phase::Idle;
            keeper.changed.notify_waiters();
        }
    }
}

/// 128 random bits, as text. The standard library seeds its hashers from the system's random source.
fn nonce() -> String {
    let random = || RandomState::new().hash_one(());
    // Two hashers of one thread differ by a count only: what they hash is as random all the same.
    format!("{:016x}{:016x}", random(), random())
}

pub(super) async fn slept(time: Duration) {
    let mut timer = Timer::new();
    timer.arm(time);
    poll_fn(|cx| timer.poll_elapsed(cx)).await;
}

/// What comes of it, unless that takes longer.
pub(super) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    // What is done at once needs no timer.
    let mut timer = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => {
            let timer = timer.get_or_insert_with(|| {
                let mut timer = Timer::new();
                timer.arm(time);
                timer
            });
            timer.poll_elapsed(cx).map(|()| None)
        }
    })
    .await
}
