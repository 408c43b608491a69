//! The Lua scripts: their texts, and their arguments and replies as numbers.

use core::time::Duration;
use std::sync::{Arc, OnceLock};

use super::health::{HealthSnapshot, LastOutage, Restart};
use super::policy::ScriptParams;
use super::queue::RequestId;
use super::transport::{Arg, ScriptCall};

/// The text of a script, and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: OnceLock::new(),
        }
    }

    pub(super) const fn text(&self) -> &'static str {
        self.text
    }

    /// The hash under which a server caches the script; `hash` computes it from the text on the first call.
    pub(super) fn hash(&self, hash: impl FnOnce(&str) -> String) -> &str {
        self.hash.get_or_init(|| hash(self.text))
    }
}

/// Grants, renews and releases leases.
static LEASES: Script = Script::new(include_str!("lua/leases.lua"));

/// Decides for every policy: the Lua twin of each policy, and the code that calls them.
static DECIDE: Script = Script::new(concat!(
    include_str!("lua/state.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/interval.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/decide.lua"),
));

/// What this process knows about the state under one key, in microseconds of the server's clock. The script compares it with
/// the state, to detect that the state was lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StateStamp {
    /// When the state was last written.
    written_at: u64,
    /// When the state settles. The key cannot have expired before.
    settles_at: u64,
}

/// Counts the permits that pass.
pub(super) const ASK: &str = "ask";

/// Counts nothing.
pub(super) const PEEK: &str = "peek";

pub(super) const GIVE_BACK: &str = "give_back";

/// A request to [`DECIDE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct DecideRequest<'a> {
    pub(super) task: &'static str,
    /// The cost of each request, in order.
    pub(super) asked: &'a [(RequestId, u32)],
    /// For `ask`, the number of permits to take on top; for `give_back`, the number of permits to return.
    pub(super) extra: u32,
}

impl DecideRequest<'_> {
    pub(super) fn call(
        self,
        keys: &Arc<[String]>,
        params: &[ScriptParams],
        stamps: &[StateStamp],
        health: HealthSnapshot,
        id: &str,
    ) -> ScriptCall {
        let mut args = vec![
            Arg::Word(self.task),
            Arg::Text(id.into()),
            Arg::number(0_u64),
            Arg::number(self.extra),
            Arg::number(health.last_outage.from),
            Arg::number(health.last_outage.to),
        ];
        self.write_groups(&mut args);
        for (params, stamp) in params.iter().zip(stamps) {
            let stamp = stamp.given(health, params);
            args.extend([
                Arg::Word(params.policy()),
                Arg::number(stamp.settles_at),
                Arg::number(stamp.written_at),
            ]);
            args.extend(params.numbers());
        }
        ScriptCall {
            script: &DECIDE,
            keys: Arc::clone(keys),
            args,
        }
    }

    /// Consecutive requests of equal cost form one group: a cost and a count.
    fn write_groups(self, args: &mut Vec<Arg>) {
        let groups = self.asked.chunk_by(|(_, one), (_, other)| one == other);
        let groups: Vec<_> = groups.collect();
        args.push(Arg::number(groups.len() as u64));
        for group in groups {
            args.extend(group.first().map(|(_, cost)| Arg::number(*cost)));
            args.push(Arg::number(group.len() as u64));
        }
    }
}

impl StateStamp {
    /// Raises the stamp so that the script treats state as lost that may be out of date.
    ///
    /// That is so after a restart: what the server has may be old, and what it lacks may be forgotten. It is also so after an
    /// outage in which fallbacks may have passed a whole limit without recording it. (A debt is recorded, and must not be
    /// dropped.)
    fn given(mut self, health: HealthSnapshot, params: &ScriptParams) -> Self {
        let HealthSnapshot {
            restart,
            last_outage,
            ..
        } = health;
        if restart != Restart::default() {
            self.written_at = self.written_at.max(restart.started);
            let settles_at = restart.usable_from.saturating_add(params.settles_in());
            self.settles_at = self.settles_at.max(settles_at);
        }
        let length = last_outage.to.saturating_sub(last_outage.from);
        if last_outage != LastOutage::default() && length >= params.refills_in() {
            let settles_at = last_outage.to.saturating_add(params.settles_in());
            self.settles_at = self.settles_at.max(settles_at);
            if !params.may_owe() {
                self.written_at = self.written_at.max(last_outage.to);
            }
        }
        self
    }
}

/// The reply of [`DECIDE`].
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
    pub(super) stamps: Vec<StateStamp>,
    /// How many states the script found to be lost.
    pub(super) lost: u64,
}

impl DecideReply {
    /// `None` if the numbers do not fit a request with that many limits.
    pub(super) fn read(numbers: &[i64], limits: usize) -> Option<Self> {
        let numbers: Vec<u64> = numbers
            .iter()
            .map(|number| u64::try_from(*number))
            .collect::<Result<_, _>>()
            .ok()?;
        let (head, states) = numbers.split_at_checked(5)?;
        let &[_now, passed, extra, binding, retry_in] = head else {
            return None;
        };
        if states.len() != limits * 3 {
            return None;
        }
        let states = states.chunks_exact(3);
        let stamp = |state: &[u64]| StateStamp {
            written_at: state[0],
            settles_at: state[1],
        };
        Some(Self {
            passed: u32::try_from(passed).ok()?,
            extra: u32::try_from(extra).ok()?,
            binding: u32::try_from(binding).ok()?,
            retry_in: Duration::from_micros(retry_in),
            stamps: states.clone().map(stamp).collect(),
            lost: states.filter(|state| state[2] == 1).count() as u64,
        })
    }
}

/// Names a lease in Redis: the class, from 0, and the member of that class's set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LeaseId {
    pub(super) class: usize,
    pub(super) member: Arc<str>,
}

/// A lease of a class is granted while both counts are below these numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ClassLimit {
    /// The leases of the same class.
    pub(super) own: u64,
    /// The leases of all classes.
    pub(super) total: u64,
}

/// A request to [`LEASES`]: everything one round trip carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRequest<'a> {
    pub(super) lasts: Duration,
    pub(super) limits: &'a [ClassLimit],
    pub(super) released: &'a [LeaseId],
    pub(super) renewed: &'a [LeaseId],
    pub(super) wanted: &'a [LeaseId],
}

impl LeaseRequest<'_> {
    pub(super) fn call(self, keys: &Arc<[String]>) -> ScriptCall {
        // Rounded up: the server never forgets a lease before its holder does.
        let lasts = self.lasts.as_nanos().div_ceil(1_000);
        let mut args = vec![Arg::number(u64::try_from(lasts).unwrap_or(u64::MAX))];
        for limit in self.limits {
            args.extend([Arg::number(limit.own), Arg::number(limit.total)]);
        }
        for ids in [self.released, self.renewed, self.wanted] {
            args.push(Arg::number(ids.len() as u64));
            for LeaseId { class, member } in ids {
                args.extend([
                    Arg::number(*class as u64 + 1),
                    Arg::Text(Arc::clone(member)),
                ]);
            }
        }
        ScriptCall {
            script: &LEASES,
            keys: Arc::clone(keys),
            args,
        }
    }

    /// `None` if the numbers do not fit this request.
    pub(super) fn read(self, numbers: &[i64]) -> Option<LeaseReply> {
        let (head, rest) = numbers.split_at_checked(2)?;
        let (in_use, rest) = rest.split_at_checked(self.limits.len())?;
        let (renewed, granted) = rest.split_at_checked(self.renewed.len())?;
        if granted.len() != self.wanted.len() {
            return None;
        }
        let count = |count: &i64| u32::try_from(*count).ok();
        Some(LeaseReply {
            first_end_in: Duration::from_micros(u64::try_from(*head.last()?).ok()?),
            in_use: in_use.iter().map(count).collect::<Option<_>>()?,
            renewed: flags(renewed)?,
            granted: flags(granted)?,
        })
    }
}

/// The reply of [`LEASES`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LeaseReply {
    /// When the first lease ends if it is not renewed; zero if there are no leases.
    pub(super) first_end_in: Duration,
    /// The number of leases of each class.
    pub(super) in_use: Vec<u32>,
    pub(super) renewed: Vec<bool>,
    pub(super) granted: Vec<bool>,
}

fn flags(numbers: &[i64]) -> Option<Vec<bool>> {
    let flag = |number: &i64| match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    numbers.iter().map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_requests_of_equal_cost_form_one_group() {
        let request = DecideRequest {
            task: ASK,
            asked: &[(1, 1), (2, 1), (5, 3), (6, 1)],
            extra: 0,
        };
        let mut args = Vec::new();
        request.write_groups(&mut args);
        assert_eq!(args, [3_u64, 1, 2, 3, 1, 1, 1].map(Arg::number));
    }

    #[test]
    fn a_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let reply = DecideReply::read(&[9, 2, 0, 1, 250, 9, 400, 0], 1).unwrap();
        let stamps = vec![StateStamp {
            written_at: 9,
            settles_at: 400,
        }];
        assert_eq!(
            (reply.passed, reply.retry_in, reply.lost),
            (2, Duration::from_micros(250), 0)
        );
        assert_eq!(reply.stamps, stamps);
        for malformed in [
            &[][..],
            &[9, 2, 0, 1],
            &[9, 2, 0, 1, 250, 9, 400],
            &[9, -2, 0, 1, 250, 9, 400, 0],
        ] {
            assert_eq!(DecideReply::read(malformed, 1), None);
        }
        assert_eq!(DecideReply::read(&[9, 2, 0, 1, 250, 9, 400, 0], 2), None);
    }

    fn id(class: usize, member: &str) -> LeaseId {
        LeaseId {
            class,
            member: member.into(),
        }
    }

    #[test]
    fn a_lease_request_has_the_order_in_which_the_script_reads_it() {
        let request = LeaseRequest {
            lasts: Duration::from_nanos(2_001),
            limits: &[ClassLimit { own: 2, total: 9 }],
            released: &[id(0, "a")],
            renewed: &[],
            wanted: &[id(1, "b"), id(0, "c")],
        };
        let number = |number: u64| Arg::number(number);
        let args = request.call(&Arc::from(["key".to_owned()])).args;
        let written = [
            number(3),
            number(2),
            number(9),
            number(1),
            number(1),
            Arg::Text("a".into()),
            number(0),
            number(2),
            number(2),
            Arg::Text("b".into()),
            number(1),
            Arg::Text("c".into()),
        ];
        assert_eq!(args, written);
    }

    #[test]
    fn a_lease_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let limit = ClassLimit { own: 2, total: 9 };
        let request = LeaseRequest {
            lasts: Duration::from_secs(1),
            limits: &[limit, limit],
            released: &[],
            renewed: &[id(0, "a")],
            wanted: &[id(1, "b"), id(0, "c")],
        };
        let reply = LeaseReply {
            first_end_in: Duration::from_micros(250),
            in_use: vec![1, 2],
            renewed: vec![true],
            granted: vec![true, false],
        };
        assert_eq!(request.read(&[7, 250, 1, 2, 1, 1, 0]), Some(reply));
        for malformed in [
            &[][..],
            &[7, 250, 1, 2, 1, 1],
            &[7, 250, 1, 2, 1, 1, 0, 0],
            &[7, 250, 1, -2, 1, 1, 0],
            &[7, -250, 1, 2, 1, 1, 0],
            &[7, 250, 1, 2, 1, 2, 0],
        ] {
            assert_eq!(request.read(malformed), None);
        }
    }
}
