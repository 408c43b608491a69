//! The script that decides: its text, its arguments and its reply.

use core::time::Duration;

use crate::remote::ServerHealth;

use super::policy::ScriptParams;
use super::transport::Script;

/// Decides for every policy: the Lua twin of each policy, and the code that calls them.
pub(super) static DECIDE: Script = Script::new(concat!(
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
    pub(super) settles_at: u64,
}

/// Counts the permits that pass.
pub(super) const ASK: &str = "ask";

/// Counts nothing.
pub(super) const PEEK: &str = "peek";

pub(super) const GIVE_BACK: &str = "give_back";

/// The arguments of [`DECIDE`].
///
/// * `asked` has the cost of each request, in order.
/// * `extra` is the number of permits to take on top; for [`GIVE_BACK`], the number of permits to return.
/// * `limits` has the parameters of each limit, and what is known about its state.
pub(super) fn decide_args<'a>(
    task: &str,
    id: String,
    asked: &[(u32, u32)],
    extra: u32,
    limits: impl Iterator<Item = (&'a ScriptParams, &'a StateStamp)>,
    health: &ServerHealth,
) -> Vec<String> {
    let mut args = vec![
        task.to_owned(),
        id,
        // The server uses its own time.
        0.to_string(),
        extra.to_string(),
        health.last_outage.start.to_string(),
        health.last_outage.end.to_string(),
    ];
    args.extend(groups(asked));
    for (params, stamp) in limits {
        let stamp = stamp.given(health, params);
        args.extend([
            params.policy().to_owned(),
            stamp.settles_at.to_string(),
            stamp.written_at.to_string(),
        ]);
        args.extend(params.numbers().iter().map(u64::to_string));
    }
    args
}

/// The number of groups, then each group: consecutive requests of equal cost, as a cost and a count.
fn groups(asked: &[(u32, u32)]) -> Vec<String> {
    let mut args = vec![asked.len().to_string()];
    for (cost, count) in asked {
        args.extend([cost.to_string(), count.to_string()]);
    }
    args
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
