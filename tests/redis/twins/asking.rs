use redis::{Cmd, Connection, FromRedisValue, RedisResult, ToRedisArgs, cmd};
use tokio::runtime::{Builder, Runtime};

use super::numbers::Numbers;
use crate::servers::Server;

/// The whole deciding script.
const SCRIPT: &str = concat!(
    include_str!("../../../src/redis/lua/state.lua"),
    include_str!("../../../src/redis/lua/token_bucket.lua"),
    include_str!("../../../src/redis/lua/interval.lua"),
    include_str!("../../../src/redis/lua/sliding_log.lua"),
    include_str!("../../../src/redis/lua/sliding_counter.lua"),
    include_str!("../../../src/redis/lua/fixed_window.lua"),
    include_str!("../../../src/redis/lua/decide.lua"),
);

/// Put before the script, it makes keys last, so that a slow server does not expire them. The answer then says what lifetimes
/// the script would have set.
const LASTING: &str = "
local server, lives = redis, {}
local redis = { pcall = server.pcall, error_reply = server.error_reply }
function redis.call(...)
  local command, key, value, option, life = ...
  if command == 'SET' and option == 'PX' then
    lives[key] = tonumber(life)
    return server.call('SET', key, value)
  elseif command == 'PEXPIRE' then
    lives[key] = tonumber(value)
    return 1
  end
  return server.call(...)
end
local function with_lives(reply)
  for _, key in ipairs(KEYS) do
    if not reply.err then reply[#reply + 1] = lives[key] or 0 end
  end
  return reply
end
";

/// A server, with a blocking connection.
pub(super) struct Store {
    connection: Connection,
    script: redis::Script,
    /// The script after [`LASTING`].
    lasting: redis::Script,
    calls: u64,
    server: Server,
    runtime: Runtime,
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(super) struct Question {
    task: &'static str,
    /// 0 for the server's clock.
    now: u64,
    ahead: u32,
    blind: (u64, u64),
    groups: Vec<(u32, u32)>,
}

/// A limit as the script takes it: the key, the policy, and what the client remembers.
#[derive(Clone, Debug)]
pub(super) struct LimitArgs {
    pub(super) key: String,
    pub(super) numbers: Numbers,
    pub(super) known: Known,
}

/// What the client remembers of the state of a limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Known {
    pub(super) at: u64,
    pub(super) until: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(super) now: u64,
    pub(super) passed: u32,
    pub(super) ahead: u32,
    pub(super) binding: usize,
    pub(super) retry_in: u64,
    pub(super) known: Vec<Known>,
    pub(super) lost: Vec<bool>,
    /// The lifetime in milliseconds that this call set for each key, 0 if it wrote nothing. Empty without [`LASTING`].
    pub(super) lives: Vec<u64>,
}

impl Question {
    /// One request of this cost.
    pub(super) fn ask(now: u64, cost: u32) -> Self {
        Self::groups(now, vec![(cost, 1)])
    }

    /// Groups of requests: a cost, and how many in a row.
    pub(super) fn groups(now: u64, groups: Vec<(u32, u32)>) -> Self {
        Self {
            task: "ask",
            now,
            ahead: 0,
            blind: (0, 0),
            groups,
        }
    }

    pub(super) fn ahead(now: u64, most: u32) -> Self {
        Self::groups(now, vec![]).and_ahead(most)
    }

    pub(super) fn peek(now: u64, cost: u32) -> Self {
        Self {
            task: "peek",
            ..Self::ask(now, cost)
        }
    }

    pub(super) fn give_back(now: u64, cost: u32) -> Self {
        Self {
            task: "give_back",
            ..Self::ahead(now, cost)
        }
    }

    pub(super) fn and_ahead(self, most: u32) -> Self {
        Self {
            ahead: most,
            ..self
        }
    }

    pub(super) fn blind(self, from: u64, to: u64) -> Self {
        Self {
            blind: (from, to),
            ..self
        }
    }
}

impl LimitArgs {
    pub(super) fn new(key: &str, numbers: &Numbers) -> Self {
        Self {
            key: key.into(),
            numbers: numbers.clone(),
            known: Known::default(),
        }
    }

    /// The client remembers this.
    pub(super) fn knowing(&self, known: Known) -> Self {
        Self {
            known,
            ..self.clone()
        }
    }
}

impl Answer {
    /// A call to one limit.
    pub(super) fn known(&self) -> Known {
        self.known[0]
    }

    /// The wait of a single request; `None` if it passed.
    pub(super) fn wait(&self) -> Option<u64> {
        (self.passed == 0).then_some(self.retry_in)
    }
}

impl Store {
    pub(super) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Server::start());
        let client = redis::Client::open(server.url()).unwrap();
        let lasting =
            format!("{LASTING}\nlocal function decide() {SCRIPT} end\nreturn with_lives(decide())");
        Self {
            connection: client.get_connection().unwrap(),
            script: redis::Script::new(SCRIPT),
            lasting: redis::Script::new(&lasting),
            calls: 0,
            server,
            runtime,
        }
    }

    /// A server on which keys expire as the scripts set it.
    pub(super) fn try_ask(
        &mut self,
        question: &Question,
        limits: &[LimitArgs],
    ) -> RedisResult<Answer> {
        let script = self.script.clone();
        self.run(&script, question, limits)
    }

    #[track_caller]
    pub(super) fn ask(&mut self, question: &Question, limits: &[LimitArgs]) -> Answer {
        let answer = self.try_ask(question, limits);
        answer.unwrap_or_else(|error| panic!("{question:?} of {limits:?}: {error}"))
    }

    /// A server on which no key expires.
    #[track_caller]
    pub(super) fn ask_lasting(&mut self, question: &Question, limits: &[LimitArgs]) -> Answer {
        let script = self.lasting.clone();
        let answer = self.run(&script, question, limits);
        answer.unwrap_or_else(|error| panic!("{question:?} of {limits:?}: {error}"))
    }

    fn run(
        &mut self,
        script: &redis::Script,
        question: &Question,
        limits: &[LimitArgs],
    ) -> RedisResult<Answer> {
        self.calls += 1;
        let mut call = script.prepare_invoke();
        call.arg(question.task).arg(format!("id{}", self.calls));
        call.arg(question.now).arg(question.ahead);
        call.arg(question.blind.0).arg(question.blind.1);
        call.arg(question.groups.len());
        for (cost, count) in &question.groups {
            call.arg(cost).arg(count);
        }
        for limit in limits {
            call.key(&limit.key).arg(limit.numbers.policy);
            call.arg(limit.known.until).arg(limit.known.at);
            for number in &limit.numbers.params {
                call.arg(number);
            }
        }
        let words: Vec<i64> = call.invoke(&mut self.connection)?;
        Ok(Answer::read(&words, limits.len()))
    }

    /// The reply to a command.
    #[track_caller]
    pub(super) fn cli<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        let answer = command.query(&mut self.connection);
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The value of a key of any type.
    pub(super) fn dump(&mut self, key: impl ToRedisArgs) -> Option<Vec<u8>> {
        cmd("DUMP").arg(key).query(&mut self.connection).unwrap()
    }

    pub(super) fn pttl(&mut self, key: &str) -> i64 {
        self.cli(&["PTTL", key])
    }

    /// Deletes all keys; the scripts stay.
    pub(super) fn flush(&mut self) {
        self.cli::<()>(&["FLUSHALL"]);
    }

    pub(super) fn time_us(&self) -> u64 {
        self.runtime.block_on(self.server.time_us())
    }

    /// Waits until the server's clock shows at least that time.
    pub(super) fn sleep_until(&self, micros: u64) {
        while let Some(left @ 1..) = micros.checked_sub(self.time_us()) {
            std::thread::sleep(std::time::Duration::from_micros(left));
        }
    }

    pub(super) fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connection)
    }
}

impl Answer {
    fn read(words: &[i64], limits: usize) -> Self {
        let number = |word: i64| u64::try_from(word).unwrap();
        let small = |word: i64| u32::try_from(word).unwrap();
        let (head, rest) = words.split_at(5);
        let (states, lives) = rest.split_at(3 * limits);
        Self {
            now: number(head[0]),
            passed: small(head[1]),
            ahead: small(head[2]),
            binding: usize::try_from(head[3]).unwrap(),
            retry_in: number(head[4]),
            known: states
                .chunks(3)
                .map(|state| Known {
                    at: number(state[0]),
                    until: number(state[1]),
                })
                .collect(),
            lost: states.chunks(3).map(|state| state[2] == 1).collect(),
            lives: lives.iter().copied().map(number).collect(),
        }
    }
}
