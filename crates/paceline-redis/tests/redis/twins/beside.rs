use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};

use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::subject::{Here, Subject};
use super::trace::{Cost, Scale, Step, Task};
use super::{MILLI, NOW, SECOND, Tried};

/// A policy in memory and its scripts in Redis. Both get the same requests, and their answers are compared.
///
/// Keys expire only when a step says so, because time is that of the trace.
pub(super) struct Beside<'a> {
    store: &'a mut Store,
    now: u64,
    last_wait: u64,
    most_asked: u32,
    scale: Scale,
    subjects: &'a [Subject],
    whole: Here,
    parts: Vec<Here>,
    limits: Vec<LimitArgs>,
    /// Until when each key lives at least.
    dies: Vec<u64>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(store: &'a mut Store, subjects: &'a [Subject]) -> Self {
        store.flush();
        let limits: Vec<_> = subjects
            .iter()
            .enumerate()
            .map(|(number, part)| LimitArgs::new(&number.to_string(), &part.numbers()))
            .collect();
        let numbers = || limits.iter().map(|limit| &limit.numbers);
        let scale = Scale {
            grain: subjects.iter().map(Subject::grain).min().unwrap(),
            burst: subjects.iter().map(Subject::burst).min().unwrap(),
            settles_in: numbers().map(|numbers| numbers.settles_in).max().unwrap(),
            capacity: numbers().map(|numbers| numbers.capacity).min().unwrap(),
        };
        Self {
            store,
            now: NOW,
            last_wait: 0,
            most_asked: 0,
            scale,
            subjects,
            whole: Here::all(subjects, NOW),
            parts: subjects.iter().map(|one| Here::new(one, NOW)).collect(),
            dies: vec![0; limits.len()],
            limits,
        }
    }

    /// Advances the time, but not beyond `end`.
    pub(super) fn step(&mut self, step: &Step, end: u64) -> Tried {
        let gap = step.gap.of(self.scale, self.last_wait);
        self.now = end.min(self.now + gap);
        for (limit, dies) in self.limits.iter().zip(&mut self.dies) {
            if step.forgets && limit.known.until <= self.now {
                self.store.cli::<()>(&["DEL", &limit.key]);
                *dies = 0;
            }
        }
        match &step.task {
            Task::Ask { groups, ahead } => self.ask(groups, *ahead),
            Task::Peek(cost) => self.peek(cost.of(self.scale)),
            Task::GiveBack(cost) => self.give_back(cost.of(self.scale)),
            Task::Charge(cost) => self.charge(*cost),
        }
    }

    fn ask(&mut self, groups: &[(Cost, u32)], ahead: u32) -> Tried {
        let now = self.now;
        let groups: Vec<_> = groups
            .iter()
            .map(|(cost, count)| (cost.of(self.scale), *count))
            .collect();
        // What is taken ahead is one request, which the policies in memory cannot ask for.
        let costs = groups.iter().map(|(cost, _)| *cost);
        self.most_asked = costs.fold(self.most_asked, u32::max);
        let counts_requests = self.subjects.iter().any(Subject::counts_requests);
        let ahead = if counts_requests { 0 } else { ahead };
        let question = Question::groups(now, groups.clone()).and_ahead(ahead);
        let there = self.ask_there(&question)?;

        let (mut passed, mut granted, mut binding, mut wait) = (0, 0, 0, None);
        for cost in groups
            .iter()
            .flat_map(|(cost, count)| vec![*cost; *count as usize])
        {
            binding = self.binding(cost);
            wait = self.ask_here(cost)?;
            if wait.is_some() {
                break;
            }
            passed += 1;
        }
        if wait.is_none() && ahead > 0 {
            while granted < ahead && self.whole.peek(now, 1).is_none() {
                prop_assert_eq!(self.ask_here(1)?, None);
                granted += 1;
            }
            if passed + granted == 0 {
                binding = self.binding(1);
                wait = self.whole.peek(now, 1);
            }
        }
        let said = (there.passed, there.ahead, there.retry_in, there.binding);
        let expected = (passed, granted, wait.unwrap_or(0), binding);
        prop_assert_eq!(said, expected, "at {}", now);
        self.has_the_same_room(&there)?;
        self.last_wait = there.retry_in;
        self.remember(&there, |_| passed + granted > 0)
    }

    /// A written state says when it was written and when it settles. Any other says nothing that was not known before.
    fn remember(&mut self, there: &Answer, is_written: impl Fn(&Subject) -> bool) -> Tried {
        let now = self.now;
        for (number, part) in self.parts.iter().enumerate() {
            let (known, life) = (there.known[number], there.lives[number]);
            let until = part.until();
            if is_written(&self.subjects[number]) {
                prop_assert_eq!(known, Known { at: now, until }, "at {}", now);
                // A key lives a second longer than its state, unless it lives long enough already.
                if self.dies[number] < until {
                    self.dies[number] = until + SECOND;
                    prop_assert_eq!(life, (until + SECOND - now) / MILLI + 1, "at {}", now);
                } else {
                    prop_assert_eq!(life, 0, "at {}", now);
                }
            } else {
                let before = self.limits[number].known.until;
                prop_assert!(known.until <= until.max(now).max(before), "at {}", now);
                // The key lives as long as the client expects it.
                prop_assert!(known.until <= self.dies[number].max(now), "at {}", now);
                prop_assert_eq!(life, 0, "at {}", now);
            }
            self.limits[number].known = known;
        }
        Ok(())
    }

    fn peek(&mut self, cost: u32) -> Tried {
        let there = self.ask_there(&Question::peek(self.now, cost))?;
        prop_assert_eq!(
            there.wait(),
            self.whole.peek(self.now, cost),
            "at {}",
            self.now
        );
        let there = self.ask_there(&Question::look(self.now))?;
        self.has_the_same_room(&there)
    }

    fn give_back(&mut self, cost: u32) -> Tried {
        let there = self.ask_there(&Question::give_back(self.now, cost))?;
        for (number, life) in there.lives.iter().enumerate() {
            if *life > 0 {
                prop_assert!(self.dies[number] < self.now, "at {}", self.now);
                self.dies[number] = there.known[number].until + SECOND;
            }
        }
        self.whole.give_back(self.now, cost);
        for part in &mut self.parts {
            part.give_back(self.now, cost);
        }
        self.has_the_same_room(&there)
    }

    fn charge(&mut self, cost: u32) -> Tried {
        // Beyond that, a debt is cut to what the numbers hold, and those of the two differ.
        let units = self.limits.iter().map(|limit| limit.numbers.params[0]);
        let debt = u64::from(cost) + u64::from(self.most_asked);
        if debt > 1 << 31 || units.max().unwrap_or(0) > (1 << 47) / debt {
            return Ok(());
        }
        let there = self.ask_there(&Question::charge(self.now, cost))?;
        self.whole.charge(self.now, cost);
        for part in &mut self.parts {
            part.charge(self.now, cost);
        }
        self.has_the_same_room(&there)?;
        self.remember(&there, |part| !part.counts_requests())
    }

    /// Of every limit, after what was counted.
    fn has_the_same_room(&self, there: &Answer) -> Tried {
        let parts = self.parts.iter().zip(self.subjects);
        let rooms = parts.map(|(part, subject)| match subject {
            // A request of any cost takes 1 of it.
            Subject::PerRequest(_) => part.peek_room(self.now),
            _ => part.room(self.now, subject.burst()),
        });
        prop_assert_eq!(&there.rooms, &rooms.collect::<Vec<_>>(), "at {}", self.now);
        Ok(())
    }

    fn ask_there(&mut self, question: &Question) -> Result<Answer, TestCaseError> {
        let there = self.store.ask(question, &self.limits);
        prop_assert!(
            !there.lost.contains(&true),
            "nothing was lost at {}",
            self.now
        );
        Ok(there)
    }

    fn ask_here(&mut self, cost: u32) -> Result<Option<u64>, TestCaseError> {
        let wait = self.whole.ask(self.now, cost);
        if wait.is_none() {
            for part in &mut self.parts {
                prop_assert_eq!(part.ask(self.now, cost), None);
            }
        }
        Ok(wait)
    }

    /// The limit with the longest wait, from 1; 0 if there is none.
    fn binding(&self, cost: u32) -> usize {
        let waits = self
            .parts
            .iter()
            .map(|part| part.peek(self.now, cost).unwrap_or(0));
        let longest = waits.clone().max().filter(|longest| *longest > 0);
        longest.map_or(0, |longest| {
            1 + waits.clone().position(|wait| wait == longest).unwrap()
        })
    }
}
