//! The script that decides: its text, its argument and its reply.

use core::cmp::Reverse;
use core::iter;
use core::time::Duration;
use std::sync::LazyLock;

use crate::remote::{Ask, Failure, LeaseCall, LeaseId, Replies, Reply, ServerHealth, Task};

use super::connector::Connector;
use super::script_params::{PER_REQUEST, SLIDING_LOG, ScriptParams};
use super::transport::Script;

/// Decides for every policy: a part for what is frequent and simple, the Lua twin of each policy, and the code that calls them.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("lua/fast.lua"),
        include_str!("lua/state.lua"),
        include_str!("lua/token_bucket.lua"),
        include_str!("lua/interval.lua"),
        include_str!("lua/fixed_window.lua"),
        include_str!("lua/sliding_log.lua"),
        include_str!("lua/sliding_counter.lua"),
        include_str!("lua/reserved.lua"),
        include_str!("lua/decide.lua"),
    ))
});

/// Grants, renews and releases leases.
pub(super) static LEASES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/leases.lua")));

/// What this process knows about the state under one key, in microseconds of the server's clock. The script compares it with
/// the state, to detect that the state was lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StateStamp {
    /// When the state was last written.
    written_at: u64,
    /// When the state settles. The key cannot have expired before.
    pub(super) settles_at: u64,
}

/// The arguments of [`LEASES`], in the order in which the script reads them.
pub(super) fn encode_leases(call: &LeaseCall) -> Vec<String> {
    // Rounded up: the server never forgets a lease before its holder does.
    let micros = |time: Duration| time.as_nanos().div_ceil(1_000).to_string();
    let mut args = vec![micros(call.lease), call.most.len().to_string()];
    args.extend(call.most.as_flattened().iter().map(u64::to_string));
    let waiting = call.waiting.map_or("-1".into(), |count| count.to_string());
    args.extend([call.queue.clone(), waiting, micros(call.mark_stands)]);
    let ids = |ids: &[LeaseId]| {
        let arg = |id: &LeaseId| {
            [
                (id.class + 1).to_string(),
                format!("{}:{}", call.queue, id.number),
            ]
        };
        ids.iter().flat_map(arg).collect::<Vec<_>>()
    };
    for released_or_renewed in [&call.releases, &call.renewals] {
        args.push(released_or_renewed.len().to_string());
        args.extend(ids(released_or_renewed));
    }
    args.extend([
        call.wanted.len().to_string(),
        call.wanted_by_waiters.to_string(),
    ]);
    args.extend(ids(&call.wanted));
    args
}

/// The argument of [`DECIDE`]. Its keys are those of the limits, in order. The format is described in `lua/fast.lua`.
pub(super) fn encode(asks: &[&Ask<Connector>], health: &ServerHealth, epoch: u64) -> Vec<u8> {
    let mut arg = Vec::with_capacity(32 + 80 * asks.len());
    // The server uses its own time.
    append_number(&mut arg, 0);
    append_number(&mut arg, health.last_outage.start);
    append_number(&mut arg, health.last_outage.end);
    let limits = || asks.iter().flat_map(|ask| ask.limit.params.iter());
    let has_log = limits().any(|params| params.policy % PER_REQUEST == SLIDING_LOG);
    arg.push(if has_log { 2 } else { 0 });
    append_number(&mut arg, epoch);
    arg.extend(short(asks.len()).to_le_bytes());
    for ask in asks {
        append_ask(&mut arg, ask, health);
    }
    arg
}

fn append_ask(arg: &mut Vec<u8>, ask: &Ask<Connector>, health: &ServerHealth) {
    let begins = arg.len();
    // The length, which is known at the end.
    arg.extend([0; size_of::<u32>()]);
    let params = &*ask.limit.params;
    let is_simple = ask.task == Task::Ask && ask.asked.len() <= 1 && ask.returns.is_empty();
    arg.push(match params {
        [params] if is_simple && params.is_simple() => params.policy,
        _ => 0,
    });
    arg.push(u8::try_from(params.len()).unwrap_or(u8::MAX));
    arg.extend(ask.extra.to_le_bytes());
    let (first_group, groups) = ask.asked.split_first().unwrap_or((&(1, 0), &[]));
    append_group(arg, *first_group);
    // Before the first reply nothing is known.
    let stamps = ask.memory.iter().copied();
    let stamps = stamps.chain(iter::repeat(StateStamp::default()));
    let mut limits = params.iter().zip(stamps);
    if let Some((params, stamp)) = limits.next() {
        append_limit(arg, params, stamp.given(health, params));
    }
    arg.push(match ask.task {
        Task::Ask => 0,
        Task::Peek => 1,
        Task::GiveBack => 2,
        Task::Charge => 3,
    });
    arg.extend(short(groups.len()).to_le_bytes());
    arg.extend(short(ask.returns.len()).to_le_bytes());
    for (params, stamp) in limits {
        append_limit(arg, params, stamp.given(health, params));
    }
    for group in groups {
        append_group(arg, *group);
    }
    for unused in &ask.returns {
        arg.extend(unused.cost.to_le_bytes());
        arg.extend(unused.requests.to_le_bytes());
        append_number(arg, unused.counted_at);
    }
    let length = u32::try_from(arg.len() - begins).unwrap_or(u32::MAX);
    arg[begins..][..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
}

fn append_group(arg: &mut Vec<u8>, (cost, count): (u32, u32)) {
    arg.extend(cost.to_le_bytes());
    arg.extend(count.to_le_bytes());
}

fn append_limit(arg: &mut Vec<u8>, params: &ScriptParams, stamp: StateStamp) {
    append_number(arg, stamp.settles_at);
    append_number(arg, stamp.written_at);
    for number in params.numbers {
        append_number(arg, number);
    }
    arg.push(params.policy);
}

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
    /// After a restart the state of the server may be old, and missing state may be lost. After a long outage, fallbacks may have
    /// passed a whole limit without recording it. (A debt is recorded, and must not be dropped.)
    fn given(mut self, health: &ServerHealth, params: &ScriptParams) -> Self {
        let (restart, outage) = (&health.restart, &health.last_outage);
        if restart.end > 0 {
            self.written_at = self.written_at.max(restart.start);
            let settles_at = restart.end.saturating_add(params.settles_in);
            self.settles_at = self.settles_at.max(settles_at);
        }
        if outage.end > 0 && outage.end.saturating_sub(outage.start) >= params.refills_in {
            let settles_at = outage.end.saturating_add(params.settles_in);
            self.settles_at = self.settles_at.max(settles_at);
            if !params.may_owe() {
                self.written_at = self.written_at.max(outage.end);
            }
        }
        self
    }
}

/// The epoch in the reply of [`DECIDE`], 0 if it was not read, and the replies to these questions. `None` if they do not fit.
pub(super) fn decode(
    reply: &[u8],
    asks: &[&Ask<Connector>],
) -> Option<(u64, Replies<Reply<Connector>>)> {
    let mut rest = reply;
    let server_time = u64::from_le_bytes(take(&mut rest)?);
    let epoch = u64::from_le_bytes(take(&mut rest)?);
    let replies = asks
        .iter()
        .map(|ask| take_reply(&mut rest, server_time, ask))
        .collect::<Option<_>>()?;
    rest.is_empty().then_some((epoch, (server_time, replies)))
}

fn take_reply(
    rest: &mut &[u8],
    server_time: u64,
    ask: &Ask<Connector>,
) -> Option<Result<Reply<Connector>, Failure>> {
    if take(rest)? == [1] {
        let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
        let (fault, left) = rest.split_at_checked(length)?;
        *rest = left;
        let fault = String::from_utf8_lossy(fault);
        return Some(Err(Failure::Fault(fault.into())));
    }
    let passed = u32::from_le_bytes(take(rest)?);
    let extra = u32::from_le_bytes(take(rest)?);
    let binding = usize::from(u8::from_le_bytes(take(rest)?)).checked_sub(1);
    let retry_in = Duration::from_micros(u64::from_le_bytes(take(rest)?));
    let limits = ask.limit.params.len();
    let (mut memory, mut lost, mut least) = (Vec::with_capacity(limits), 0, None);
    for limit in 0..limits {
        lost += u64::from(u8::from_le_bytes(take(rest)?));
        let stamp = StateStamp {
            written_at: u64::from_le_bytes(take(rest)?),
            settles_at: u64::from_le_bytes(take(rest)?),
        };
        let room = u32::from_le_bytes(take(rest)?);
        memory.push(stamp);
        // Of several with that room the one that settles last, as `Policy::status` has it.
        let rank = (room, Reverse(stamp.settles_at.max(server_time)), limit);
        least = Some(least.map_or(rank, |least| rank.min(least)));
    }
    let (remaining, _, scarcest) = least?;
    // The time of a limit may be ahead of the server's clock, until a clock that was set back has caught up. Of several limits the
    // earliest time is safe: nothing is given back to a state that began later.
    let counted_at = memory.iter().map(|stamp| stamp.written_at).min();
    Some(Ok(Reply {
        counted_at: counted_at.unwrap_or(0),
        passed,
        extra,
        spent: ask.spent(passed, extra),
        binding,
        retry_in,
        remaining,
        scarcest,
        memory: memory.into(),
        lost,
    }))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use crate::redis::policy::sealed::Scripted;
    use crate::redis::script_params::RedisLimit;
    use crate::remote::Return;
    use std::sync::Arc;

    use paceline::policy::{All, FixedWindow, PerRequest, SlidingLog};

    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    fn ask(policy: &impl Scripted, asked: &[(u32, u32)]) -> Ask<Connector> {
        Ask {
            task: Task::Ask,
            limit: RedisLimit {
                keys: Arc::new([]),
                params: policy.script_params().unwrap().into(),
            },
            memory: Box::default(),
            is_insured: false,
            asked: asked.to_vec(),
            extra: 0,
            returns: vec![],
        }
    }

    #[test]
    fn a_call_for_leases_has_the_order_in_which_the_script_reads_it() {
        let id = |number, class| LeaseId { number, class };
        let call = LeaseCall {
            keys: Arc::new([]),
            queue: "me".into(),
            lease: Duration::from_secs(10),
            most: vec![[2, 3], [4, 5]],
            waiting: Some(6),
            mark_stands: Duration::from_nanos(7_001),
            releases: vec![id(8, 0)],
            renewals: vec![id(9, 1)],
            wanted: vec![id(10, 0), id(11, 1)],
            wanted_by_waiters: 1,
        };
        let head = ["10000000", "2", "2", "3", "4", "5", "me", "6", "8"];
        let given = ["1", "1", "me:8", "1", "2", "me:9"];
        let wanted = ["2", "1", "1", "me:10", "2", "me:11"];
        let args = [&head[..], &given, &wanted].concat();
        assert_eq!(encode_leases(&call), args);
        let marks_left_alone = LeaseCall {
            waiting: None,
            ..call
        };
        assert_eq!(encode_leases(&marks_left_alone)[7], "-1");
    }

    #[test]
    fn only_simple_questions_are_marked_so_with_their_policy() {
        let fixed = FixedWindow::new(9, WINDOW);
        let mut returning = ask(&fixed, &[(1, 4)]);
        returning.returns.push(Return {
            cost: 1,
            requests: 1,
            counted_at: 7,
        });
        let mut peek = ask(&fixed, &[(1, 4)]);
        peek.task = Task::Peek;
        let asks = [
            ask(&fixed, &[(1, 4)]),
            ask(&fixed, &[]),
            ask(&fixed, &[(1, 4), (2, 1)]),
            returning,
            peek,
            ask(&SlidingLog::new(9, WINDOW), &[(1, 1)]),
            ask(&PerRequest::new(fixed), &[(1, 1)]),
        ];

        let asks: Vec<_> = asks.iter().collect();
        let arg = encode(&asks, &ServerHealth::default(), 7);
        let (head, mut rest) = arg.split_at(35);
        assert_eq!(head[25..33], 7_f64.to_le_bytes());
        assert_eq!(usize::from(head[33]), asks.len());
        let mut marks = vec![];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(*rest.first_chunk().unwrap());
            marks.push(rest[4]);
            rest = &rest[usize::try_from(length).unwrap()..];
        }
        assert_eq!(marks, [3, 3, 0, 0, 0, 4, 0]);
        // A log may be long.
        assert_eq!(head[24], 2);
        assert_eq!(encode(&asks[..5], &ServerHealth::default(), 7)[24], 0);
    }

    #[test]
    fn a_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let one = ask(&FixedWindow::new(9, WINDOW), &[(1, 1), (4, 2)]);
        let asks = [&one, &one];
        let mut reply = [9_u64, 3].map(u64::to_le_bytes).concat();
        reply.extend([0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        reply.extend(250_u64.to_le_bytes());
        reply.push(1);
        reply.extend([9_u64, 400].map(u64::to_le_bytes).as_flattened());
        reply.extend(6_u32.to_le_bytes());
        reply.extend(b"\x01\x03\0\0\0why");

        let (epoch, (time, replies)) = decode(&reply, &asks).unwrap();
        let first = replies[0].as_ref().unwrap();
        assert_eq!((time, epoch, first.counted_at), (9, 3, 9));
        assert_eq!((first.passed, first.extra, first.binding), (2, 0, Some(0)));
        assert_eq!(first.spent, 5);
        let retry_in = Duration::from_micros(250);
        assert_eq!((first.retry_in, first.lost), (retry_in, 1));
        assert_eq!((first.remaining, first.scarcest), (6, 0));
        let stamps = [StateStamp {
            written_at: 9,
            settles_at: 400,
        }];
        assert_eq!(*first.memory, stamps);
        let fault = Failure::Fault("why".into());
        assert_eq!(replies[1].as_ref().unwrap_err(), &fault);

        assert!(decode(&reply, &asks[..1]).is_none());
        for length in 0..reply.len() {
            assert!(decode(&reply[..length], &asks).is_none(), "{length}");
        }
    }

    #[test]
    fn of_several_limits_the_scarcest_has_the_least_room_and_of_these_settles_last() {
        let window = FixedWindow::new(9, WINDOW);
        let asked = ask(&All::new((window, window, window)), &[(1, 1)]);
        let now = 20_u64;
        for (rooms, settle_at, expected) in [
            ([7, 4, 5], [30, 21, 40], (4, 1)),
            ([9, 9, 8], [21, 30, 25], (8, 2)),
            ([0, 4, 0], [25, 30, 26], (0, 2)),
            ([0, 4, 0], [25, 30, 25], (0, 0)),
            // Those that have settled are equal.
            ([u32::MAX; 3], [18, 20, 19], (u32::MAX, 0)),
        ] {
            let mut reply = [now, 0].map(u64::to_le_bytes).concat();
            reply.extend([0; 18]);
            for (room, settles_at) in rooms.into_iter().zip(settle_at) {
                reply.extend([0; 9]);
                reply.extend(u64::to_le_bytes(settles_at));
                reply.extend(room.to_le_bytes());
            }
            let (_, (_, replies)) = decode(&reply, &[&asked]).unwrap();
            let reply = replies[0].as_ref().unwrap();
            assert_eq!((reply.remaining, reply.scarcest), expected, "{rooms:?}");
        }
    }
}
