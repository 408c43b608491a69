use core::time::Duration;
use std::sync::Arc;

use crate::redis::link::{Arg, Call};
use crate::redis::script::LEASES;

/// Which of the sets of one pool, from 0.
pub(super) type Class = usize;

/// A lease as Redis knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Token {
    pub(super) class: Class,
    pub(super) id: Arc<str>,
}

/// Until when one more of a class is granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Room {
    /// Below so many of its own class.
    pub(super) below: u64,
    /// Below so many of all.
    pub(super) below_in_all: u64,
}

/// What is asked of [`LEASES`]: all of it on one trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand<'a> {
    pub(super) lease: Duration,
    pub(super) rooms: &'a [Room],
    pub(super) given_back: &'a [Token],
    pub(super) renewed: &'a [Token],
    pub(super) wanted: &'a [Token],
}

impl Errand<'_> {
    pub(super) fn call(self, keys: &Arc<[String]>) -> Call {
        let mut args = vec![Arg::from(micros(self.lease))];
        for room in self.rooms {
            args.extend([Arg::from(room.below), Arg::from(room.below_in_all)]);
        }
        for tokens in [self.given_back, self.renewed, self.wanted] {
            args.push(Arg::from(tokens.len() as u64));
            for Token { class, id } in tokens {
                args.extend([Arg::from(*class as u64 + 1), Arg::Text(Arc::clone(id))]);
            }
        }
        Call {
            script: &LEASES,
            keys: Arc::clone(keys),
            args,
        }
    }

    /// `None` if it is no answer to this.
    pub(super) fn read(self, numbers: &[i64]) -> Option<Answer> {
        let (head, rest) = numbers.split_at_checked(2)?;
        let (in_use, rest) = rest.split_at_checked(self.rooms.len())?;
        let (renewed, granted) = rest.split_at_checked(self.renewed.len())?;
        if granted.len() != self.wanted.len() {
            return None;
        }
        let count = |count: &i64| u32::try_from(*count).ok();
        Some(Answer {
            first_end_in: Duration::from_micros(u64::try_from(*head.last()?).ok()?),
            in_use: in_use.iter().map(count).collect::<Option<_>>()?,
            renewed: flags(renewed)?,
            granted: flags(granted)?,
        })
    }
}

/// What [`LEASES`] answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    /// When the first of all leases ends unless it is renewed; zero if there are none.
    pub(super) first_end_in: Duration,
    /// Of each class.
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

/// Rounded up: a server never forgets a lease before its holder does.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(class: Class, id: &str) -> Token {
        Token {
            class,
            id: id.into(),
        }
    }

    #[test]
    fn an_errand_is_written_in_the_order_in_which_the_script_reads() {
        let errand = Errand {
            lease: Duration::from_nanos(2_001),
            rooms: &[Room {
                below: 2,
                below_in_all: 9,
            }],
            given_back: &[token(0, "a")],
            renewed: &[],
            wanted: &[token(1, "b"), token(0, "c")],
        };
        let number = |number: u64| Arg::from(number);
        let args = errand.call(&Arc::from(["key".to_owned()])).args;
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
    fn an_answer_is_read_and_anything_else_is_not() {
        let room = Room {
            below: 2,
            below_in_all: 9,
        };
        let errand = Errand {
            lease: Duration::from_secs(1),
            rooms: &[room, room],
            given_back: &[],
            renewed: &[token(0, "a")],
            wanted: &[token(1, "b"), token(0, "c")],
        };
        let answer = Answer {
            first_end_in: Duration::from_micros(250),
            in_use: vec![1, 2],
            renewed: vec![true],
            granted: vec![true, false],
        };
        assert_eq!(errand.read(&[7, 250, 1, 2, 1, 1, 0]), Some(answer));
        for strange in [
            &[][..],
            &[7, 250, 1, 2, 1, 1],
            &[7, 250, 1, 2, 1, 1, 0, 0],
            &[7, 250, 1, -2, 1, 1, 0],
            &[7, -250, 1, 2, 1, 1, 0],
            &[7, 250, 1, 2, 1, 2, 0],
        ] {
            assert_eq!(errand.read(strange), None);
        }
    }
}
