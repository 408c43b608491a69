//! The script that decides: its text, its argument and its reply.

use core::time::Duration;

use super::health::ServerHealth;
use super::policy::ScriptParams;
use super::transport::Script;

/// Identifies a request in the queue. Earlier requests have smaller ids.
pub(super) type RequestId = u64;

/// Decides for every policy: a part for what is frequent and simple, the Lua twin of each policy, and the code that calls them.
pub(super) static DECIDE: Script = Script::new(concat!(
    include_str!("lua/fast.lua"),
    include_str!("lua/state.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/interval.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/decide.lua"),
));

/// One decision of a call: about one limit, or about several of which a request passes all or none. A call has many decisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecideCall<'a> {
    pub(super) task: Task,
    /// One for each limit. No other decision of the call may have them.
    pub(super) keys: &'a [String],
    pub(super) params: &'a [ScriptParams],
    pub(super) stamps: &'a [StateStamp],
    /// Groups of requests in their order: the cost of each, and how many follow each other.
    pub(super) asked: &'a [(u32, u32)],
    /// How many permits to take on top; for [`Task::GiveBack`], how many to return, the latest first.
    pub(super) extra: u32,
    /// Applied before the requests are decided. A peek ignores them.
    pub(super) returns: &'a [Return],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Task {
    /// Counts the permits that pass.
    Ask,
    /// Counts nothing.
    Peek,
    GiveBack,
}

/// Permits that passed and were not used. They are given back only as far as no request has passed since that would have passed
/// later without them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Return {
    pub(super) cost: u32,
    /// The [`counted_at`](DecideReply::counted_at) of the reply with which they passed.
    pub(super) counted_at: u64,
}

/// What this process knows about the state under one key, in microseconds of the server's clock. The script compares it with
/// the state, to detect that the state was lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StateStamp {
    /// When the state was last written.
    written_at: u64,
    /// When the state settles. The key cannot have expired before.
    settles_at: u64,
}

/// The argument of [`DECIDE`]. Its keys are those of the calls, in order. The format is described in `lua/fast.lua`.
pub(super) fn encode(calls: &[DecideCall<'_>], _id: &str, health: &ServerHealth) -> Vec<u8> {
    let mut arg = Vec::with_capacity(32 + 80 * calls.len());
    // The server uses its own time.
    append_number(&mut arg, 0);
    append_number(&mut arg, health.last_outage.start);
    append_number(&mut arg, health.last_outage.end);
    let decides_in_full = 0;
    arg.push(decides_in_full);
    arg.extend(short(calls.len()).to_le_bytes());
    for call in calls {
        call.append_to(&mut arg, health);
    }
    arg
}

/// The keys of a call of [`DECIDE`].
pub(super) fn keys<'a>(calls: &'a [DecideCall<'a>]) -> impl Iterator<Item = &'a str> + Clone {
    let keys = calls.iter().flat_map(|call| call.keys);
    keys.map(String::as_str)
}

impl DecideCall<'_> {
    fn append_to(&self, arg: &mut Vec<u8>, health: &ServerHealth) {
        let begins = arg.len();
        // The length, which is known at the end.
        arg.extend([0; size_of::<u32>()]);
        arg.push(match self.params {
            [params] if self.is_simple() && params.is_simple() => params.policy(),
            _ => 0,
        });
        arg.push(u8::try_from(self.params.len()).unwrap_or(u8::MAX));
        arg.extend(self.extra.to_le_bytes());
        let (first_group, groups) = self.asked.split_first().unwrap_or((&(1, 0), &[]));
        append_group(arg, *first_group);
        let mut limits = self.params.iter().zip(self.stamps);
        if let Some((params, stamp)) = limits.next() {
            append_limit(arg, params, stamp.given(health, params));
        }
        arg.push(self.task as u8);
        arg.extend(short(groups.len()).to_le_bytes());
        arg.extend(short(self.returns.len()).to_le_bytes());
        for (params, stamp) in limits {
            append_limit(arg, params, stamp.given(health, params));
        }
        for group in groups {
            append_group(arg, *group);
        }
        for unused in self.returns {
            arg.extend(unused.cost.to_le_bytes());
            append_number(arg, unused.counted_at);
        }
        let length = u32::try_from(arg.len() - begins).unwrap_or(u32::MAX);
        arg[begins..][..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    }

    /// Whether the first part of the script can decide it, depending on the policy.
    const fn is_simple(&self) -> bool {
        matches!(self.task, Task::Ask) && self.asked.len() <= 1 && self.returns.is_empty()
    }
}

fn append_group(arg: &mut Vec<u8>, (cost, count): (u32, u32)) {
    arg.extend(cost.to_le_bytes());
    arg.extend(count.to_le_bytes());
}

fn append_limit(arg: &mut Vec<u8>, params: &ScriptParams, stamp: StateStamp) {
    append_number(arg, stamp.settles_at);
    append_number(arg, stamp.written_at);
    for number in params.numbers() {
        append_number(arg, *number);
    }
    for _ in params.numbers().len()..MOST_NUMBERS {
        append_number(arg, 0);
    }
    arg.push(params.policy());
}

/// No policy has more parameters.
const MOST_NUMBERS: usize = 4;

/// Lua numbers are doubles.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53; a later time is never reached"
)]
fn append_number(arg: &mut Vec<u8>, number: u64) {
    arg.extend((number as f64).to_le_bytes());
}

/// Never saturates: a round trip has far fewer decisions, groups and returns.
fn short(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

impl StateStamp {
    /// Raises the stamp so that the script treats state as lost that may be out of date.
    ///
    /// That is so after a restart: what the server has may be old, and what it lacks may be forgotten. It is also so after an
    /// outage in which fallbacks may have passed a whole limit without recording it. (A debt is recorded, and must not be
    /// dropped.)
    fn given(mut self, health: &ServerHealth, params: &ScriptParams) -> Self {
        let (restart, outage) = (&health.restart, &health.last_outage);
        if restart.end > 0 {
            self.written_at = self.written_at.max(restart.start);
            let settles_at = restart.end.saturating_add(params.settles_in());
            self.settles_at = self.settles_at.max(settles_at);
        }
        if outage.end > 0 && outage.end.saturating_sub(outage.start) >= params.refills_in() {
            let settles_at = outage.end.saturating_add(params.settles_in());
            self.settles_at = self.settles_at.max(settles_at);
            if !params.may_owe() {
                self.written_at = self.written_at.max(outage.end);
            }
        }
        self
    }
}

/// The answer to a [`DecideCall`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DecideReply {
    /// How many requests passed, from the first on.
    pub(super) passed: u32,
    /// How many permits were taken on top.
    pub(super) extra: u32,
    /// Which limit the first denied request waits for, from 1; 0 if all passed.
    pub(super) binding: u32,
    /// How long the first denied request has to wait.
    pub(super) retry_in: Duration,
    /// When the permits that passed were counted, by the server's clock. It identifies them in a [`Return`].
    pub(super) counted_at: u64,
    pub(super) stamps: Vec<StateStamp>,
    /// How many states the script found to be lost.
    pub(super) lost: u64,
}

/// The reply of [`DECIDE`]: the server's time, and the answer to each call or the server's error. `None` if it does not fit the
/// calls.
pub(super) fn decode(
    reply: &[u8],
    calls: &[DecideCall<'_>],
) -> Option<(u64, Vec<Result<DecideReply, String>>)> {
    let mut rest = reply;
    let server_time = take_u64(&mut rest)?;
    let answers = calls
        .iter()
        .map(|call| DecideReply::take(&mut rest, call.params.len()))
        .collect::<Option<_>>()?;
    rest.is_empty().then_some((server_time, answers))
}

impl DecideReply {
    fn take(rest: &mut &[u8], limits: usize) -> Option<Result<Self, String>> {
        if take_u8(rest)? == 1 {
            let length = usize::try_from(take_u32(rest)?).ok()?;
            let (text, left) = rest.split_at_checked(length)?;
            *rest = left;
            return Some(Err(String::from_utf8_lossy(text).into_owned()));
        }
        let (passed, extra) = (take_u32(rest)?, take_u32(rest)?);
        let binding = take_u8(rest)?.into();
        let retry_in = Duration::from_micros(take_u64(rest)?);
        let (mut stamps, mut lost) = (Vec::with_capacity(limits), 0);
        for _ in 0..limits {
            lost += u64::from(take_u8(rest)?);
            let (written_at, settles_at) = (take_u64(rest)?, take_u64(rest)?);
            stamps.push(StateStamp {
                written_at,
                settles_at,
            });
        }
        // The time of a limit stands still while the server's clock catches up. The earliest of several identifies nothing newer.
        let counted_at = stamps.iter().map(|stamp| stamp.written_at).min();
        Some(Ok(Self {
            passed,
            extra,
            binding,
            retry_in,
            counted_at: counted_at.unwrap_or(0),
            stamps,
            lost,
        }))
    }
}

fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    take(rest).map(u8::from_le_bytes)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{FixedWindow, SlidingLog};
    use crate::redis::policy::sealed::Scripted;

    const WINDOW: Duration = Duration::from_secs(1);

    fn call<'a>(params: &'a [ScriptParams], asked: &'a [(u32, u32)]) -> DecideCall<'a> {
        DecideCall {
            task: Task::Ask,
            keys: &[],
            params,
            stamps: &[StateStamp {
                written_at: 0,
                settles_at: 0,
            }],
            asked,
            extra: 0,
            returns: &[],
        }
    }

    /// The mark of each call, behind its length.
    fn simple(calls: &[DecideCall<'_>]) -> Vec<u8> {
        let arg = encode(calls, "", &ServerHealth::default());
        let (head, mut rest) = arg.split_at(27);
        assert_eq!(usize::from(head[25]), calls.len());
        let mut marks = vec![];
        while !rest.is_empty() {
            let length = take_u32(&mut { rest }).unwrap();
            marks.push(rest[4]);
            rest = &rest[usize::try_from(length).unwrap()..];
        }
        marks
    }

    #[test]
    fn only_simple_calls_are_marked_so_with_their_policy() {
        let fixed = FixedWindow::new(9, WINDOW).script_params().unwrap();
        let log = SlidingLog::new(9, WINDOW).script_params().unwrap();
        let unused = Return {
            cost: 1,
            counted_at: 7,
        };
        let one = call(&fixed, &[(1, 4)]);
        let returning = DecideCall {
            returns: &[unused],
            ..one
        };
        let peek = DecideCall {
            task: Task::Peek,
            ..one
        };
        let several = call(&fixed, &[(1, 4), (2, 1)]);
        let calls = [
            one,
            call(&fixed, &[]),
            several,
            returning,
            peek,
            call(&log, &[(1, 1)]),
        ];
        assert_eq!(simple(&calls), [3, 3, 0, 0, 0, 0]);
    }

    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn a_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let params = FixedWindow::new(9, WINDOW).script_params().unwrap();
        let calls = [call(&params, &[(1, 3)]); 2];
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let (now, times): (Vec<u8>, Vec<u8>) = (numbers(&[9]), numbers(&[9, 400]));
        let retry_in: Vec<u8> = numbers(&[250]);
        let passed: &[u8] = &[0, 2, 0, 0, 0, 0, 0, 0, 0, 1];
        let reply = packed(&[
            &now,
            passed,
            &retry_in,
            &[1],
            &times,
            &[1, 3, 0, 0, 0],
            b"why",
        ]);

        let (time, answers) = decode(&reply, &calls).unwrap();
        let answer = answers[0].as_ref().unwrap();
        assert_eq!((time, answer.counted_at), (9, 9));
        assert_eq!((answer.passed, answer.extra, answer.binding), (2, 0, 1));
        assert_eq!(
            (answer.retry_in, answer.lost),
            (Duration::from_micros(250), 1)
        );
        let stamps = [StateStamp {
            written_at: 9,
            settles_at: 400,
        }];
        assert_eq!(answer.stamps, stamps);
        assert_eq!(answers[1], Err("why".to_owned()));

        assert_eq!(decode(&reply, &calls[..1]), None);
        for length in 0..reply.len() {
            assert_eq!(decode(&reply[..length], &calls), None, "{length}");
        }
    }
}
