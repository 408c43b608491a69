-- What all policies share: reading and writing a state, its lifetime, and detecting that it was lost.
--
-- Times are microseconds of the server's clock. For one limit it never goes back, because a state says when it was written.
-- Lua numbers are doubles, exact up to 2^53. The client refuses parameters that would exceed that.
--
-- The client remembers for each limit when its state was last written ('written_at'), and when it settles ('settles_at'). A state
-- that is older, or missing before it settles, was lost: the server was restarted or flushed, or a replica with old data has
-- taken over. How much was spent besides is unknown, so everything counts as spent now.
--
-- A denial writes nothing, unless reading has changed the state ('has_changed'): then the changed state is written.

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

local function wrong_type(key, what)
  return 'WRONGTYPE ' .. key .. ' holds something else than ' .. what
end

-- The value that a command reads, or nil and an error.
local function read(what, command, key, ...)
  local kept = redis.pcall(command, key, ...)
  if type(kept) ~= 'table' or not kept.err then return kept end
  if string.find(kept.err, 'WRONGTYPE', 1, true) then return nil, wrong_type(key, what) end
  return nil, kept.err
end

-- The lifetime of a key in milliseconds, so that it expires when its state has settled and not before; nil if it lives that long
-- already, because other clients may not know what was given back since. At least two: PEXPIRE with one may delete the key at
-- once.
local function lifetime(key, micros)
  local life = max(2, ceil_div(micros, 1000))
  if redis.call('PTTL', key) >= life then return nil end
  return text(life)
end

-- Writes a state that is one string.
local function keep(key, state, micros)
  local life = lifetime(key, micros)
  if life then
    redis.call('SET', key, state, 'PX', life)
  else
    redis.call('SET', key, state, 'KEEPTTL')
  end
end

-- Sets the lifetime of a state that has been written.
local function set_lifetime(key, micros)
  local life = lifetime(key, micros)
  if life then redis.call('PEXPIRE', key, life) end
end

-- Extends the lifetime: clients with shorter windows may have set a shorter one.
local function extend_lifetime(key, micros)
  local left = redis.call('PTTL', key)
  -- Not for less than ten milliseconds: the clock of a busy server advances while it decides.
  if left >= 0 and left + 10 < ceil_div(micros, 1000) then set_lifetime(key, micros) end
end

-- 'at': when the state was written; nil if there is none.
local function is_lost(memory, at, now)
  if at then return at < memory.written_at end
  return now < memory.settles_at
end

-- When a limit that fills continuously is full again, if an outage delays that; nil if not. Without the outage it is full at
-- 'full_at', and it fills from nothing in 'fills_in'. 'at' and 'full_at' are nil if there is no state.
--
-- During the outage, insurances of other clients may have passed permits at up to the rate, so the limit did not fill. After the
-- state has been written, the outage does not count again.
local function after_outage(memory, at, full_at, fills_in, now)
  if not at then
    -- The key may have expired meanwhile. If everything counted as spent at the end of the outage, the limit has filled since.
    at, full_at = memory.written_at, memory.settles_at
    if full_at == memory.outage_to + fills_in then return nil end
  end
  local from, to = memory.outage_from, min(memory.outage_to, now)
  if at > from or to <= from then return nil end
  return full_at + to - from
end
