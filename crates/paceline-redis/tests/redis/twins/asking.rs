use redis::{Cmd, Connection, FromRedisValue, RedisResult, ToRedisArgs, cmd};
use tokio::runtime::{Builder, Runtime};

use super::numbers::Numbers;
use super::subject::of_every_kind;
use super::{MINUTE, REAL};
use crate::servers::Server;

/// The whole deciding script.
const SCRIPT: &str = concat!(
    include_str!("../../../src/redis/lua/fast.lua"),
    include_str!("../../../src/redis/lua/state.lua"),
    include_str!("../../../src/redis/lua/token_bucket.lua"),
    include_str!("../../../src/redis/lua/interval.lua"),
    include_str!("../../../src/redis/lua/fixed_window.lua"),
    include_str!("../../../src/redis/lua/sliding_log.lua"),
    include_str!("../../../src/redis/lua/sliding_counter.lua"),
    include_str!("../../../src/redis/lua/reserved.lua"),
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
  if type(reply) ~= 'string' then return reply end
  for _, key in ipairs(KEYS) do reply = reply .. struct.pack('<I8', lives[key] or 0) end
  return reply
end
";

/// A server, with a blocking connection.
///
/// With a time of its own, each question is asked twice: as it is, and of copies of the keys with the part of the script that decides
/// everything. Both have to give the same answers, and to write the same strings.
pub(super) struct Store {
    connection: Connection,
    script: redis::Script,
    /// The script after [`LASTING`].
    lasting: redis::Script,
    server: Server,
    runtime: Runtime,
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(super) struct Question {
    task: Task,
    /// [`REAL`] for the server's clock.
    now: u64,
    ahead: u32,
    outage: (u64, u64),
    /// The epoch that the client knows, or 0. `None` if it has nothing to do with epochs.
    epoch: Option<u64>,
    groups: Vec<(u32, u32)>,
    /// Permits that were counted and not used: their cost, how many requests they were, and when they were counted.
    returns: Vec<(u32, u32, u64)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Task {
    Ask,
    Peek,
    GiveBack,
    Charge,
}

/// A question, and the limits that it is about.
type Asked<'a> = (&'a Question, &'a [LimitArgs]);

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
    pub(super) epoch: u64,
    pub(super) passed: u32,
    pub(super) ahead: u32,
    pub(super) binding: usize,
    pub(super) retry_in: u64,
    pub(super) known: Vec<Known>,
    pub(super) lost: Vec<bool>,
    /// How many requests of cost 1 would pass next, for each limit.
    pub(super) rooms: Vec<u32>,
    /// The lifetime in milliseconds that this call set for each key, 0 if it wrote nothing. Empty without [`LASTING`].
    pub(super) lives: Vec<u64>,
}

impl Question {
    fn new(task: Task, now: u64, ahead: u32) -> Self {
        Self {
            task,
            now,
            ahead,
            outage: (0, 0),
            epoch: None,
            groups: vec![],
            returns: vec![],
        }
    }

    /// One request of this cost.
    pub(super) fn ask(now: u64, cost: u32) -> Self {
        Self::groups(now, vec![(cost, 1)])
    }

    /// Groups of requests: a cost, and how many in a row.
    pub(super) fn groups(now: u64, groups: Vec<(u32, u32)>) -> Self {
        Self {
            groups,
            ..Self::ahead(now, 0)
        }
    }

    pub(super) fn ahead(now: u64, most: u32) -> Self {
        Self::new(Task::Ask, now, most)
    }

    pub(super) fn peek(now: u64, cost: u32) -> Self {
        Self {
            task: Task::Peek,
            ..Self::ask(now, cost)
        }
    }

    /// Without a request: what is left.
    pub(super) fn look(now: u64) -> Self {
        Self::new(Task::Peek, now, 0)
    }

    pub(super) fn charge(now: u64, cost: u32) -> Self {
        Self::new(Task::Charge, now, cost)
    }

    pub(super) fn give_back(now: u64, cost: u32) -> Self {
        Self::new(Task::GiveBack, now, cost)
    }

    pub(super) fn and_ahead(mut self, most: u32) -> Self {
        self.ahead = most;
        self
    }

    /// With permits of one request that were counted then and not used.
    pub(super) fn returning(mut self, cost: u32, counted_at: u64) -> Self {
        self.returns.push((cost, 1, counted_at));
        self
    }

    /// With permits that were counted then, of a request that has cost less.
    pub(super) fn settling(mut self, unused: u32, counted_at: u64) -> Self {
        self.returns.push((unused, 0, counted_at));
        self
    }

    pub(super) fn at(mut self, now: u64) -> Self {
        self.now = now;
        self
    }

    pub(super) fn epoch(mut self, known: u64) -> Self {
        self.epoch = Some(known);
        self
    }

    pub(super) fn outage(mut self, from: u64, to: u64) -> Self {
        self.outage = (from, to);
        self
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
}

/// A key of each kind, under names that begin so.
pub(super) fn one_of_each(prefix: &str) -> Vec<LimitArgs> {
    let subjects = of_every_kind(4, MINUTE).into_iter().enumerate();
    subjects
        .map(|(number, subject)| LimitArgs::new(&format!("{prefix}{number}"), &subject.numbers()))
        .collect()
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
            server,
            runtime,
        }
    }

    /// On a server on which keys expire as the scripts set it.
    pub(super) fn try_ask(
        &mut self,
        question: &Question,
        limits: &[LimitArgs],
    ) -> RedisResult<Result<Answer, String>> {
        let script = self.script.clone();
        Ok(self.run(&script, &[(question, limits)])?.remove(0))
    }

    /// With a time of its own, on a server on which no key expires.
    #[track_caller]
    pub(super) fn ask(&mut self, question: &Question, limits: &[LimitArgs]) -> Answer {
        let script = match question.now {
            REAL => self.script.clone(),
            _ => self.lasting.clone(),
        };
        let answers = self.run(&script, &[(question, limits)]);
        let answers = answers.unwrap_or_else(|error| panic!("{question:?} of {limits:?}: {error}"));
        answers.into_iter().next().unwrap().unwrap()
    }

    /// Several decisions in one call, with the time and the outage of the first, on a server on which keys expire.
    #[track_caller]
    pub(super) fn ask_many(&mut self, asked: &[Asked<'_>]) -> Vec<Result<Answer, String>> {
        let script = self.script.clone();
        let answers = self.run(&script, asked);
        answers.unwrap_or_else(|error| panic!("{asked:?}: {error}"))
    }

    fn run(
        &mut self,
        script: &redis::Script,
        asked: &[Asked<'_>],
    ) -> RedisResult<Vec<Result<Answer, String>>> {
        if asked[0].0.now == REAL {
            return self.run_once(script, asked, false);
        }
        let copies: Vec<_> = asked
            .iter()
            .map(|(_, limits)| self.copies(limits))
            .collect();
        let same = asked.iter().zip(&copies);
        let same: Vec<Asked<'_>> = same
            .map(|((question, _), copies)| (*question, &copies[..]))
            .collect();
        let answers = self.run_once(script, asked, false)?;
        let in_full = self.run_once(script, &same, true)?;
        for (answer, full) in answers.iter().zip(&in_full) {
            match (answer, full) {
                (Err(_), Err(_)) => {}
                _ => assert_eq!(answer, full, "in full, {asked:?}"),
            }
        }
        let limits = asked.iter().flat_map(|(_, limits)| limits.iter());
        for limit in limits.clone() {
            if self.cli::<String>(&["TYPE", &limit.key]) == "string" {
                let (here, there) = (self.dump(&limit.key), self.dump(copy_of(limit)));
                assert_eq!(here, there, "in full, {asked:?}");
            }
        }
        for limit in limits {
            self.cli::<()>(&["DEL", &copy_of(limit)]);
        }
        Ok(answers)
    }

    /// Copies the keys, and names the limits after the copies.
    fn copies(&mut self, limits: &[LimitArgs]) -> Vec<LimitArgs> {
        let mut copies = limits.to_vec();
        for (limit, copy) in limits.iter().zip(&mut copies) {
            copy.key = copy_of(limit);
            // Some tests deny it.
            if let Ok(Some(state)) = self.query::<Option<Vec<u8>>>(cmd("DUMP").arg(&limit.key)) {
                let mut restore = cmd("RESTORE");
                restore.arg(&copy.key).arg(0).arg(state).arg("REPLACE");
                self.query::<()>(&restore).unwrap();
            }
        }
        copies
    }

    fn run_once(
        &mut self,
        script: &redis::Script,
        asked: &[Asked<'_>],
        in_full: bool,
    ) -> RedisResult<Vec<Result<Answer, String>>> {
        let mut call = script.prepare_invoke();
        for limit in asked.iter().flat_map(|(_, limits)| limits.iter()) {
            call.key(&limit.key);
        }
        call.arg(packed(asked, in_full));
        if asked[0].0.epoch.is_some() {
            call.arg("ours");
        }
        let reply: Vec<u8> = call.invoke(&mut self.connection)?;
        let mut reply = Words(&reply);
        let (now, epoch) = (reply.u64(), reply.u64());
        let mut answers: Vec<_> = asked
            .iter()
            .map(|(_, limits)| Answer::read((now, epoch), &mut reply, limits.len()))
            .collect();
        while !reply.0.is_empty() {
            for (answer, (_, limits)) in answers.iter_mut().zip(asked) {
                for _ in *limits {
                    let life = reply.u64();
                    if let Ok(answer) = answer {
                        answer.lives.push(life);
                    }
                }
            }
        }
        Ok(answers)
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

    /// The names of all keys.
    pub(super) fn keys(&mut self) -> Vec<String> {
        self.cli(&["KEYS", "*"])
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
    fn read(
        (now, epoch): (u64, u64),
        reply: &mut Words<'_>,
        limits: usize,
    ) -> Result<Self, String> {
        if reply.u8() == 1 {
            let length = reply.u32() as usize;
            return Err(String::from_utf8(reply.take(length).to_vec()).unwrap());
        }
        let mut answer = Self {
            now,
            epoch,
            passed: reply.u32(),
            ahead: reply.u32(),
            binding: reply.u8().into(),
            retry_in: reply.u64(),
            known: vec![],
            lost: vec![],
            rooms: vec![],
            lives: vec![],
        };
        for _ in 0..limits {
            answer.lost.push(reply.u8() == 1);
            let (at, until) = (reply.u64(), reply.u64());
            answer.known.push(Known { at, until });
            answer.rooms.push(reply.u32());
        }
        Ok(answer)
    }
}

/// A packed reply.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (first, left) = self.0.split_at(length);
        self.0 = left;
        first
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }
}

fn copy_of(limit: &LimitArgs) -> String {
    format!("{}:copy", limit.key)
}

/// The packed argument.
fn packed(asked: &[Asked<'_>], in_full: bool) -> Vec<u8> {
    let first = asked[0].0;
    let mut arg = Vec::new();
    for time in [first.now, first.outage.0, first.outage.1] {
        arg.extend(double(time));
    }
    let mut limits = asked.iter().flat_map(|(_, limits)| limits.iter());
    let has_log = limits.any(|limit| limit.numbers.policy % 128 == 4);
    arg.push(match (in_full, has_log) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    });
    arg.extend(double(first.epoch.unwrap_or(0)));
    arg.extend(u16::try_from(asked.len()).unwrap().to_le_bytes());
    for (question, limits) in asked {
        let one = packed_question(question, limits);
        arg.extend((4 + u32::try_from(one.len()).unwrap()).to_le_bytes());
        arg.extend(one);
    }
    arg
}

fn packed_question(question: &Question, limits: &[LimitArgs]) -> Vec<u8> {
    let short = |count: usize| u16::try_from(count).unwrap().to_le_bytes();
    let mut groups = question.groups.clone();
    if groups.is_empty() {
        groups.push((1, 0));
    }
    let policies = limits.iter().map(|limit| limit.numbers.policy);
    let is_simple = question.task == Task::Ask && groups.len() == 1 && question.returns.is_empty();
    let simple = match &*policies.collect::<Vec<_>>() {
        [policy @ ..=5] if is_simple => *policy,
        _ => 0,
    };
    let task = match question.task {
        Task::Ask => 0,
        Task::Peek => 1,
        Task::GiveBack => 2,
        Task::Charge => 3,
    };
    let group = |(cost, count): (u32, u32)| [cost.to_le_bytes(), count.to_le_bytes()].concat();
    let mut arg = vec![simple, u8::try_from(limits.len()).unwrap()];
    arg.extend(question.ahead.to_le_bytes());
    arg.extend(group(groups[0]));
    arg.extend(packed_limit(&limits[0]));
    arg.push(task);
    arg.extend(short(groups.len() - 1));
    arg.extend(short(question.returns.len()));
    arg.extend(limits[1..].iter().flat_map(packed_limit));
    arg.extend(groups.into_iter().skip(1).flat_map(group));
    for (cost, requests, counted_at) in &question.returns {
        arg.extend(cost.to_le_bytes());
        arg.extend(requests.to_le_bytes());
        arg.extend(double(*counted_at));
    }
    arg
}

fn packed_limit(limit: &LimitArgs) -> Vec<u8> {
    let mut numbers = vec![limit.known.until, limit.known.at];
    numbers.extend(&limit.numbers.params);
    numbers.resize(6, 0);
    let mut arg: Vec<u8> = numbers.into_iter().flat_map(double).collect();
    arg.push(limit.numbers.policy);
    arg
}

#[expect(clippy::cast_precision_loss, reason = "Lua numbers are doubles")]
fn double(number: u64) -> [u8; 8] {
    assert!(number <= 1 << 53);
    (number as f64).to_le_bytes()
}
