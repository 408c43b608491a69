use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::numbers::Numbers;
use super::subject::Subject;

/// The only key.
pub(super) const KEY: &str = "key";

/// One limit on a server, with what its client knows.
pub(super) struct Alone<'a> {
    pub(super) store: &'a mut Store,
    pub(super) numbers: Numbers,
    pub(super) known: Known,
}

impl<'a> Alone<'a> {
    /// On an empty server, with a client that knows nothing.
    pub(super) fn new(store: &'a mut Store, subject: &Subject) -> Self {
        store.flush();
        Self {
            store,
            numbers: subject.numbers(),
            known: Known::default(),
        }
    }

    /// The same key with other parameters.
    pub(super) fn retune(&mut self, subject: &Subject) {
        self.numbers = subject.numbers();
    }

    pub(super) fn args(&self) -> LimitArgs {
        LimitArgs {
            key: KEY.into(),
            numbers: self.numbers.clone(),
            known: self.known,
        }
    }

    #[track_caller]
    pub(super) fn call(&mut self, question: &Question) -> Answer {
        let limit = [self.args()];
        self.store.ask(question, &limit)
    }

    #[track_caller]
    pub(super) fn ask(&mut self, now: u64, cost: u32) -> Answer {
        self.call(&Question::ask(now, cost))
    }

    #[track_caller]
    pub(super) fn ahead(&mut self, now: u64, most: u32) -> Answer {
        self.call(&Question::ahead(now, most))
    }

    #[track_caller]
    pub(super) fn peek(&mut self, now: u64, cost: u32) -> Answer {
        self.call(&Question::peek(now, cost))
    }

    #[track_caller]
    pub(super) fn give_back(&mut self, now: u64, cost: u32) -> Answer {
        self.call(&Question::give_back(now, cost))
    }

    /// The entries that count of a counter or of a log.
    pub(super) fn entries(&mut self) -> u64 {
        let state: Vec<u8> = self.store.cli(&["GET", KEY]);
        let count = |at: usize| u32::from_le_bytes(state[at..at + 4].try_into().unwrap());
        match state[0] {
            4 => (count(37) - count(33)).into(),
            _ => u64::try_from(state.len() - 33).unwrap() / 24,
        }
    }

    /// The value of the key.
    pub(super) fn dump(&mut self) -> Option<Vec<u8>> {
        self.store.dump(KEY)
    }
}
