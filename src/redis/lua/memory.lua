-- What all limits have in common: how time is read, and how a state is known to be lost.
--
-- Times are microseconds of the server's clock; for one limit it never goes back, since a state says when it was written.
-- Lua numbers are doubles, exact up to 2^53: whoever builds a limit refuses what would pass that.
--
-- Whoever asks remembers of each limit when it was last written as far as they know ('known_at'), and until when it cannot have
-- settled ('until'). A state that is older, or gone before its time, was lost: the server was started anew or flushed, or a
-- replica with old data has taken over. What else was spent nobody knows, and so all counts as spent now.

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

-- How long a key is to live, in milliseconds, so that it is gone when its state has settled and not before. Never shorter than
-- it was to live already: what was given back since, others may not know of.
local function lifetime(key, micros)
  return text(max(max(1, ceil_div(micros, 1000)), redis.call('PTTL', key)))
end

-- 'at': when the state was written; nil if there is none.
local function is_lost(memory, at, now)
  if at then return at < memory.known_at end
  return now < memory.until_then
end

local function foreign(key, what)
  return nil, 'WRONGTYPE ' .. key .. ' holds something else than a ' .. what
end
