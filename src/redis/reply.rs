use core::time::Duration;
use std::sync::Arc;

use super::link::{Arg, Call};
use super::script::DECIDE;
use super::sight::{Anew, Blind, View};
use super::twin::Twin;
use super::waiting::Ticket;

/// What is known of one limit's state in Redis, in the server's microseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Memory {
    /// When it was written.
    known_at: u64,
    /// Until when it cannot be gone.
    until: u64,
}

/// Counts what passes.
pub(super) const ASK: &str = "ask";

/// Counts nothing.
pub(super) const PEEK: &str = "peek";

pub(super) const GIVE_BACK: &str = "give_back";

/// What is asked of [`DECIDE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) task: &'static str,
    pub(super) asked: &'a [(Ticket, u32)],
    /// Permits beyond that; of `give_back`, how many.
    pub(super) ahead: u32,
}

impl Question<'_> {
    pub(super) fn call(
        self,
        keys: &Arc<[String]>,
        twins: &[Twin],
        memory: &[Memory],
        view: View,
        id: &str,
    ) -> Call {
        let mut args = vec![
            Arg::from(self.task),
            Arg::Text(id.into()),
            Arg::from(0_u64),
            Arg::from(self.ahead),
            Arg::from(view.blind.from),
            Arg::from(view.blind.to),
        ];
        self.write_groups(&mut args);
        for (twin, memory) in twins.iter().zip(memory) {
            let Memory { known_at, until } = memory.in_view_of(view, twin);
            args.extend([
                Arg::from(twin.policy()),
                Arg::from(until),
                Arg::from(known_at),
            ]);
            args.extend(twin.numbers());
        }
        Call {
            script: &DECIDE,
            keys: Arc::clone(keys),
            args,
        }
    }

    /// Requests of the same cost that follow each other are one group.
    fn write_groups(self, args: &mut Vec<Arg>) {
        let groups = self.asked.chunk_by(|(_, one), (_, other)| one == other);
        let count = args.len();
        args.push(Arg::from(0_u64));
        let mut written = 0_u64;
        for group in groups {
            let many = group.len() as u64;
            args.extend(
                group
                    .first()
                    .map(|(_, cost)| [Arg::from(*cost), Arg::from(many)])
                    .into_iter()
                    .flatten(),
            );
            written += 1;
        }
        args[count] = Arg::from(written);
    }
}

impl Memory {
    /// After the server was started anew all that it had is old, and what it has not may be forgotten.
    ///
    /// So it is after an outage that was so long that insurances may have passed all of a limit: they wrote it down nowhere. (A
    /// debt is written down, and must not be forgotten.)
    fn in_view_of(mut self, View { anew, blind, .. }: View, twin: &Twin) -> Self {
        if anew != Anew::default() {
            self.known_at = self.known_at.max(anew.started);
            self.until = self.until.max(anew.back.saturating_add(twin.settles_in()));
        }
        if blind != Blind::default() && blind.to.saturating_sub(blind.from) >= twin.regains_in() {
            self.until = self.until.max(blind.to.saturating_add(twin.settles_in()));
            if !twin.may_owe() {
                self.known_at = self.known_at.max(blind.to);
            }
        }
        self
    }
}

/// What [`DECIDE`] answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reply {
    /// How many of those who asked, in order.
    pub(super) passed: u32,
    pub(super) ahead: u32,
    /// Which limit the first that did not pass has to wait for, from 1; 0 if all passed.
    pub(super) binding: u32,
    /// How long.
    pub(super) retry_in: Duration,
    pub(super) memory: Vec<Memory>,
    /// How many states were found to be lost.
    pub(super) lost: u64,
}

impl Reply {
    /// `None` if it is no answer to such a question.
    pub(super) fn read(numbers: &[i64], limits: usize) -> Option<Self> {
        let numbers: Vec<u64> = numbers
            .iter()
            .map(|number| u64::try_from(*number))
            .collect::<Result<_, _>>()
            .ok()?;
        let (head, states) = numbers.split_at_checked(5)?;
        let &[_now, passed, ahead, binding, retry_in] = head else {
            return None;
        };
        let states: Vec<&[u64]> = states.chunks(3).collect();
        let memory = states.iter().map(|state| match state {
            [known_at, until, _lost] => Some(Memory {
                known_at: *known_at,
                until: *until,
            }),
            _ => None,
        });
        Some(Self {
            passed: u32::try_from(passed).ok()?,
            ahead: u32::try_from(ahead).ok()?,
            binding: u32::try_from(binding).ok()?,
            retry_in: Duration::from_micros(retry_in),
            memory: memory
                .collect::<Option<Vec<_>>>()
                .filter(|memory| memory.len() == limits)?,
            lost: states
                .iter()
                .filter(|state| state.last() == Some(&1))
                .count() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_cost_in_a_row_are_one_group() {
        let question = Question {
            task: ASK,
            asked: &[(1, 1), (2, 1), (5, 3), (6, 1)],
            ahead: 0,
        };
        let mut args = Vec::new();
        question.write_groups(&mut args);
        assert_eq!(args, [3_u64, 1, 2, 3, 1, 1, 1].map(Arg::from));
    }

    #[test]
    fn an_answer_is_read_and_anything_else_is_not() {
        let reply = Reply::read(&[9, 2, 0, 1, 250, 9, 400, 0], 1).unwrap();
        let memory = vec![Memory {
            known_at: 9,
            until: 400,
        }];
        assert_eq!(
            (reply.passed, reply.retry_in, reply.lost),
            (2, Duration::from_micros(250), 0)
        );
        assert_eq!(reply.memory, memory);
        for strange in [
            &[][..],
            &[9, 2, 0, 1],
            &[9, 2, 0, 1, 250, 9, 400],
            &[9, -2, 0, 1, 250, 9, 400, 0],
        ] {
            assert_eq!(Reply::read(strange, 1), None);
        }
        assert_eq!(Reply::read(&[9, 2, 0, 1, 250, 9, 400, 0], 2), None);
    }
}
