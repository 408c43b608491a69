//! A capacity that clients share, cycle by cycle: one that needs more borrows what others leave, until they need it back.
//!
//! A service can bear a certain number of requests in a certain time. If each client has a fixed part of it, then what an idle
//! client leaves is lost. If there is one limit for all, then one busy client takes everything. Here each client has a *default
//! share*, and at the beginning of each cycle the capacity is divided anew: a client that asked for less than its default share
//! lends the rest to those that asked for more.
//!
//! This module is the rule: pure, and exact to the permit. It has no clock and holds no requests; a limiter does.
//!
//! # An example
//!
//! Four clients share 40 permits in a cycle, so that each has a default share of 10. A reservation of 10 % keeps 1 permit for a
//! client that asks for nothing. In the first cycle each has its default share.
//!
//! | asked for in one cycle | sizes in the next one | |
//! |---|---|---|
//! | 2, 15, 10, 10 | 5, 15, 10, 10 | 5 of 8 permits are borrowed, the lender keeps the others |
//! | 3, 15, 50, 10 | 3, 11, 16, 10 | 7 permits for a lack of 5 and of 40, in proportion |
//! | 0, 15, 50, 5 | 1, 12, 22, 5 | one is reserved |
//! | 0, 0, 0, 0 | 10, 10, 10, 10 | no client borrows |
//! | 99, 99, 99, 99 | 10, 10, 10, 10 | no client lends |
//!
//! ```
//! use paceline::fair::{Claim, FairShare};
//! use std::time::Duration;
//!
//! let share = FairShare::new(40, Duration::from_secs(10)).try_with_reservation(1_000).unwrap();
//! let sizes = |asked: [u32; 4]| share.divide(&asked.map(Claim::new));
//!
//! assert_eq!(sizes([2, 15, 10, 10]), [5, 15, 10, 10]);
//! assert_eq!(sizes([3, 15, 50, 10]), [3, 11, 16, 10]);
//! assert_eq!(sizes([0, 15, 50, 5]), [1, 12, 22, 5]);
//! ```
//!
//! # The rule
//!
//! The *demand* of a client is what it asked for in the last cycle: what passed, what was refused, and what waits. Let C be the
//! capacity, and w the weight of a client, usually 1:
//!
//! ```text
//! default = C · w / sum of all w
//! want    = the larger of demand and default · reservation
//! gap     = default − want
//! S       = the sum of all gaps above 0: what is lent
//! D       = the sum of all gaps below 0, without the sign: what is lacking
//!
//! a borrower, gap below 0:   size = default + the smaller of |gap| and |gap| / D · S
//! a lender, gap 0 or more:   size = want + gap / S · the larger of 0 and S − D
//! ```
//!
//! The sum of all sizes is C. To make whole numbers of them, all are rounded down, and what that leaves goes, one permit each, to the
//! largest fractions; of equal ones to the oldest client. With [`with_carry`](FairShare::with_carry) a fraction that a client lost
//! counts in the next cycle, and the order within a cycle does not matter: a permit above the default share is a later turn and no
//! debt.
//!
//! [`ClientTerms`] bound what a client lends and borrows: a gap is at most [`most_lent`](ClientTerms::with_most_lent) or
//! [`most_borrowed`](ClientTerms::with_most_borrowed). What none may borrow stays with the lenders.
//!
//! # Which division
//!
//! [`Division::Proportional`] is the formula above. It divides what is lent in proportion to what is lacking, so it **pays to ask for
//! more** than one needs: 120 permits among demands of 1000, 50 and 10 are 70, 40 and 10. If the second client asks for 1000 too, it
//! has 55, although it cannot use more than 50. Choose it for clients that have no reason to do so, such as your own services.
//!
//! [`Division::MaxMin`] divides what is lent evenly by weight, but gives none more than it lacks, and the rest to the others:
//! max-min fairness. The same demands get 60, 50 and 10. A client that has less than it asked for **changes no size by asking for
//! more**. Choose it for clients that compete.
//!
//! # Within a cycle
//!
//! * A cycle begins with the first request after an idle one. While requests come, the next one follows at once.
//! * A client whose size is below its default share takes back what it lent and others have not spent, the largest unspent loan first.
//! * A new client gets its default share at once, as far as it is unspent: see [`Newcomers`]. In its first cycle it neither lends nor
//!   borrows.
//! * A cost above the size and the default share of a client passes if it is the client's first one in the cycle and if that much is
//!   unspent. What is above its default share is owed: it reduces the sizes of the client in the following cycles, and others share it. Until
//!   then it has no other such request. A cost above the capacity never passes.
//! * Permits that are charged, since they were used without having been asked for, are spent at once, and owed as far as they are above
//!   the default share. What the cycle does not have is spent in later cycles, and nothing else of the client passes before.
//! * A debtor takes back only what it does not repay.
//! * A client without a request in [10 cycles](FairShare::try_forgetting_after) is forgotten. Those beyond
//!   [1,000 clients](FairShare::try_with_max_clients) share one size, as one more client, but for clients
//!   [with their own share](ClientTerms::with_own_share).
//!
//! # Window bound
//!
//! At most C permits pass in a cycle. A half-open window of the length of a cycle can hold the end of one and the beginning of the next:
//! at most 2 C. With [`EndCycle { at_most }`](Newcomers::EndCycle), at most (1 + `at_most`) · C pass in a cycle's length from where
//! one begins that no newcomer began, and (2 + `at_most`) · C in any window of that length. If there are clients with their own share,
//! `at_most` counts twice here. With [`with_pacing`](FairShare::with_pacing) it is C in every window of that length, wherever it
//! begins. A refund cannot undo time: permits that are given back can be spent on top, and so are permits that are charged.
//!
//! # A guaranteed share
//!
//! This rule sizes a cycle by the demand of the one before, so a client whose demand varies lends what it needs a moment later.
//! [`GuaranteedShare`] is the rule for clients that must not pay for their neighbours. It has no cycles to divide, but buckets:
//!
//! ```text
//! C = the rate, S = what all buckets hold, W = the sum of all weights w, v = C · time / W
//! D = the larger of S / W and least / the smallest weight
//!
//! a client:   a token bucket of the rate C · w / W that holds w · D
//! the pool:   what full buckets have no room for, at most B
//! ```
//!
//! A request takes what the bucket of its client has, and the rest from the pool. If that does not cover it, it takes nothing. Clients
//! that borrow share the pool by weight, however often they ask: one that has borrowed more than its part waits for the others while the
//! pool is less than half full. To ask for more than it needs gains a client nothing but this: requests too large to pass keep it among the
//! borrowers, and save at most two cycles of its part of the pool for a burst. Three laws hold, whatever the clients ask:
//!
//! * **No client pays for a neighbour.** A request passes if its client uses, with it, at most w · D + w · (v(t) − v(s)) in each time from s
//!   to t. A client that is new starts with what the pool has and is due that, and its rate. Neighbours change W, and nothing else.
//! * **The window bound.** All clients together pass at most C · T + max(S, W · D) + B in any half-open window of T, wherever it begins,
//!   and the part of a permit. Clients that join add nothing to it.
//! * **No capacity is lost.** A request is refused only if its bucket and the pool together hold less than its cost, or its client is ahead
//!   of others that borrow. A decision settles at most 64 buckets that have filled; the law is about those.
//!
//! A larger burst may pass at once than in a cycle of [`FairShare`], which bounds each cycle by C.
//!
//! # Where they come from
//!
//! The first rule is that of a published sidecar design, "capacity-borrowing fixed window". Its text leaves signs open; with gaps as absolute
//! values the formula gives each of its published sizes. Max-min fairness is the usual rule for network links. The second rule is that of
//! hierarchical token buckets, as in the `htb` queue of Linux, with one pool; the clock that all buckets share is that of fair queueing.

mod accounts;
mod borrowers;
mod buckets;
mod claim;
mod client;
mod clients;
mod divide;
mod fair_share;
mod guaranteed_share;
mod heap;
mod levels;
pub(crate) mod report;
mod rule;
mod wide;

pub use claim::{Claim, ClientTerms, Division};
pub(crate) use clients::OVERFLOW;
pub use divide::divide;
pub use fair_share::{FairShare, Newcomers};
pub use guaranteed_share::GuaranteedShare;
pub use rule::Rule;
pub(crate) use rule::{HasState, RuleState};
