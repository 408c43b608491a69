-- What all limits have in common: how time is read, how a state is read and kept, and how it is known to be lost.
--
-- Times are microseconds of the server's clock; for one limit it never goes back, since a state says when it was written.
-- Lua numbers are doubles, exact up to 2^53: whoever builds a limit refuses what would pass that.
--
-- Whoever asks remembers of each limit when it was last written as far as they know ('known_at'), and until when it cannot have
-- settled ('until_then'). A state that is older, or gone before its time, was lost: the server was started anew or flushed, or a
-- replica with old data has taken over. What else was spent nobody knows, and so all counts as spent now.
--
-- A refusal writes nothing, but where what was read is not what was kept: then it has changed ('has_changed'), and is kept so.

local policies = {}

local function max(a, b)
  if a > b then return a end
  return b
end

local function min(a, b)
  if a < b then return a end
  return b
end

-- Rounded up, and exact for whole numbers below 2^53.
local function ceil_div(a, b)
  local rest = math.fmod(a, b)
  local whole = (a - rest) / b
  if rest > 0 then return whole + 1 end
  return whole
end

local function floor_div(a, b)
  return (a - math.fmod(a, b)) / b
end

-- Redis reads numbers as text, and tostring() rounds.
local function text(number)
  return string.format('%d', number)
end

local function foreign(key, what)
  return 'WRONGTYPE ' .. key .. ' holds something else than ' .. what
end

-- What a command reads of a key, or nil and why it cannot.
local function read(what, command, key, ...)
  local kept = redis.pcall(command, key, ...)
  if type(kept) ~= 'table' or not kept.err then return kept end
  if string.find(kept.err, 'WRONGTYPE', 1, true) then return nil, foreign(key, what) end
  return nil, kept.err
end

-- How long a key is to live, in milliseconds, so that it is gone when its state has settled and not before; nil if it lives that
-- long already: what was given back since, others may not know of. Not less than two: PEXPIRE with one may find it over already,
-- and end the key at once.
local function lifetime(key, micros)
  local life = max(2, ceil_div(micros, 1000))
  if redis.call('PTTL', key) >= life then return nil end
  return text(life)
end

-- Keeps a state that is one text.
local function keep(key, state, micros)
  local life = lifetime(key, micros)
  if life then
    redis.call('SET', key, state, 'PX', life)
  else
    redis.call('SET', key, state, 'KEEPTTL')
  end
end

-- Keeps a state that has been written already.
local function live_on(key, micros)
  local life = lifetime(key, micros)
  if life then redis.call('PEXPIRE', key, life) end
end

-- Others with shorter windows may have kept it for less long than it counts for this one.
local function outlive(key, micros)
  local left = redis.call('PTTL', key)
  -- Ten milliseconds are not worth it: while a busy server decides, its clock goes on.
  if left >= 0 and left + 10 < ceil_div(micros, 1000) then live_on(key, micros) end
end

-- 'at': when the state was written; nil if there is none.
local function is_lost(memory, at, now)
  if at then return at < memory.known_at end
  return now < memory.until_then
end

-- From when on a limit that fills all the time, and from nothing in 'fills_in', is full, if it would have been at 'full_at'; nil if
-- nothing has changed that. 'at' and 'full_at' are nil if nothing is kept.
--
-- While the server could not be seen others went on without asking, at no more than the rate: for that long it did not fill. Once
-- that is written down, it is not counted again.
local function after_blindness(memory, at, full_at, fills_in, now)
  if not at then
    -- What was kept may have been gone before it was asked for again. If all was taken for spent then, it has filled since.
    at, full_at = memory.known_at, memory.until_then
    if full_at == memory.blind_to + fills_in then return nil end
  end
  local from, to = memory.blind_from, min(memory.blind_to, now)
  if at > from or to <= from then return nil end
  return full_at + to - from
end
