use core::fmt;

use crate::policy::{Decision, Status};
use crate::time::Tick;

use super::report::ClientShare;
use super::{ClientTerms, FairShare, GuaranteedShare};

/// A rule by which clients share a capacity: a [`FairShare`] or a [`GuaranteedShare`]. The trait is sealed.
///
/// [`Fair`](crate::limiter::Fair) is the limiter: `Fair<K>` has the first rule, `Fair<K, GuaranteedShare>` the second.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no rule by which clients share a capacity",
    label = "expected a `FairShare` or a `GuaranteedShare`"
)]
#[expect(
    private_bounds,
    reason = "a trait that cannot be named cannot be implemented elsewhere"
)]
pub trait Rule: fmt::Debug + Copy + PartialEq + Send + Sync + 'static + HasState {}

impl Rule for FairShare {}

impl Rule for GuaranteedShare {}

/// The sealed part of a [`Rule`].
pub(crate) trait HasState: Sized {
    type State: RuleState<Rule = Self>;
}

/// What each client may use and has used: the pure part of the limiter.
///
/// A client is a slot, a small number. The owner calls [`advance`](Self::advance) with the time first, removes the keys of the
/// [`forgotten`](Self::forgotten) slots, looks its key up, and only then calls the other methods with the same time.
/// It answers a request for nothing itself: a cost is 1 or more.
pub(crate) trait RuleState: Send + 'static {
    type Rule;

    fn new(share: Self::Rule, now: Tick) -> Self;

    fn share(&self) -> &Self::Rule;

    /// Goes to `now`, and says whether clients may have been forgotten. Call it before all other methods.
    fn advance(&mut self, now: Tick) -> bool;

    /// The slots of the clients that were forgotten since the last call. They are used again from now on.
    fn forgotten(&mut self) -> Vec<u32>;

    /// The slot of a client that has none: a new one, or [`OVERFLOW`](super::OVERFLOW) if there are too many clients.
    fn join(&mut self, terms: ClientTerms) -> u32;

    /// What a new client depends on, to look at one that is not known.
    fn excerpt(&self) -> Self;

    /// Whether a client without a share of its own would be counted into the overflow client, which is there already.
    fn is_full(&self) -> bool;

    /// Goes on with other terms of a client.
    fn set_terms(&mut self, slot: u32, terms: ClientTerms);

    /// Asks for `cost` permits, and counts them if they pass. A refusal is counted by [`refuse`](Self::refuse) or as
    /// [waiting](Self::set_waiting).
    fn decide(&mut self, slot: u32, cost: u32, now: Tick) -> Decision;

    /// The decision that [`decide`](Self::decide) would make.
    fn peek(&self, slot: u32, cost: u32, now: Tick) -> Decision;

    /// When a request behind others of its client that cost `queued` may pass, at the earliest.
    fn open_behind(&self, slot: u32, queued: u64, cost: u32, now: Tick) -> Tick;

    /// Counts permits that were used without having been asked for.
    fn charge(&mut self, slot: u32, cost: u32, now: Tick);

    /// Counts a request that gave up or did not want to wait.
    fn refuse(&mut self, slot: u32, cost: u32);

    /// Sets the cost of all requests that now wait in the queue of a client.
    fn set_waiting(&mut self, slot: u32, cost: u64);

    /// Takes permits back that passed and were not used, now or at the instant `spent_at`.
    fn refund(&mut self, slot: u32, permits: u32, spent_at: Option<Tick>, now: Tick);

    /// Lets nothing pass until then.
    fn pause_until(&mut self, until: Tick);

    /// Changes the parameters. What was spent stays spent.
    fn retune(&mut self, share: Self::Rule, now: Tick);

    /// Whether since the last call something let clients pass earlier than they were told. A change by the owner is not meant.
    fn lets_earlier(&mut self) -> bool;

    /// What a client may use and has used. The owner knows its key.
    fn client<K>(&self, slot: u32) -> ClientShare<K>;

    /// What a client has left, if there is no pause.
    fn status(&self, slot: u32, now: Tick) -> Status;

    /// The slots of all clients.
    fn slots(&self) -> impl ExactSizeIterator<Item = u32>;
}
