use core::time::Duration;

use crate::time::Tick;

use super::link::Hello;

/// What is known of the server's time and of times when it could not be seen: given the time, and pure.
///
/// The server's times are microseconds since 1970.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Sight {
    /// When it was seen last, here and there.
    seen: Option<(Tick, u64)>,
    run: Option<String>,
    dark: Option<Dark>,
    episodes: u64,
    blind: Blind,
    anew: Anew,
}

/// It cannot be seen now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Dark {
    /// Which time of all that it could not be seen.
    pub(super) episode: u64,
    pub(super) since: Tick,
}

/// When it could not be seen last, by its own clock; both 0 if never. Others may have gone on without it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Blind {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// That it has been started anew, maybe without what it knew; both 0 if not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Anew {
    /// What was written before may be old.
    pub(super) started: u64,
    /// Since when it can be used again: until then others may have gone on without it.
    pub(super) back: u64,
}

/// What those who ask have to know of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct View {
    pub(super) dark: Option<Dark>,
    pub(super) blind: Blind,
    pub(super) anew: Anew,
}

impl Sight {
    pub(super) const fn view(&self) -> View {
        View {
            dark: self.dark,
            blind: self.blind,
            anew: self.anew,
        }
    }

    /// It answered.
    pub(super) fn seen(&mut self, now: Tick, time: u64) {
        if let Some(dark) = self.dark.take() {
            self.blind = Blind {
                from: self.server_time_at(dark.since).unwrap_or(time),
                to: time,
            };
        }
        self.seen = Some((now, time));
    }

    /// It did not answer.
    pub(super) fn lost(&mut self, now: Tick) {
        if self.dark.is_none() {
            self.episodes += 1;
            self.dark = Some(Dark {
                episode: self.episodes,
                since: now,
            });
        }
    }

    /// There is a new connection.
    pub(super) fn regained(&mut self, now: Tick, hello: Hello) {
        let is_first = self.seen.is_none() && self.dark.is_none();
        let is_same =
            hello.run.is_some() && hello.run.as_ref().map(|run| &run.id) == self.run.as_ref();
        if !is_first && !is_same {
            let uptime = hello.run.as_ref().map_or(0, |run| run.uptime);
            self.anew = Anew {
                started: hello.time.saturating_sub(uptime.saturating_mul(1_000_000)),
                back: hello.time,
            };
        }
        self.run = hello.run.map(|run| run.id);
        self.seen(now, hello.time);
    }

    /// What time it was there, then; a little earlier rather than later.
    fn server_time_at(&self, then: Tick) -> Option<u64> {
        let (here, there) = self.seen?;
        Some(there.saturating_add(micros(then.since(here))))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::link::Run;

    const SECOND: u64 = 1_000_000;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn hello(id: &str, uptime: u64, time: u64) -> Hello {
        let run = Some(Run {
            id: id.to_owned(),
            uptime,
        });
        Hello { run, time }
    }

    fn seen_once() -> Sight {
        let mut sight = Sight::default();
        sight.regained(at(0), hello("a", 50, 100 * SECOND));
        sight
    }

    #[test]
    fn the_first_connection_is_trusted() {
        let sight = seen_once();
        assert_eq!(
            (sight.view().dark, sight.view().blind, sight.view().anew),
            (None, Blind::default(), Anew::default())
        );
    }

    #[test]
    fn a_first_connection_after_failures_is_not() {
        let mut sight = Sight::default();
        sight.lost(at(0));
        sight.regained(at(9), hello("a", 50, 100 * SECOND));
        assert_eq!(
            sight.view().anew,
            Anew {
                started: 50 * SECOND,
                back: 100 * SECOND
            }
        );
    }

    #[test]
    fn an_outage_is_told_in_the_servers_time() {
        let mut sight = seen_once();
        sight.lost(at(2_000));
        sight.lost(at(3_000));
        assert_eq!(
            sight.view().dark,
            Some(Dark {
                episode: 1,
                since: at(2_000)
            })
        );
        sight.seen(at(5_000), 105 * SECOND);
        assert_eq!(
            sight.view().blind,
            Blind {
                from: 102 * SECOND,
                to: 105 * SECOND
            }
        );
        assert_eq!(
            (sight.view().dark, sight.view().anew),
            (None, Anew::default())
        );
        sight.lost(at(6_000));
        assert_eq!(sight.view().dark.unwrap().episode, 2);
    }

    #[test]
    fn another_run_has_been_started_anew_and_the_same_has_not() {
        let mut sight = seen_once();
        sight.regained(at(1_000), hello("a", 51, 101 * SECOND));
        assert_eq!(sight.view().anew, Anew::default());
        sight.regained(at(2_000), hello("b", 1, 102 * SECOND));
        assert_eq!(
            sight.view().anew,
            Anew {
                started: 101 * SECOND,
                back: 102 * SECOND
            }
        );
    }

    #[test]
    fn who_does_not_tell_may_have_been_started_anew() {
        let mut sight = seen_once();
        sight.regained(
            at(1_000),
            Hello {
                run: None,
                time: 101 * SECOND,
            },
        );
        assert_eq!(
            sight.view().anew,
            Anew {
                started: 101 * SECOND,
                back: 101 * SECOND
            }
        );
    }
}
