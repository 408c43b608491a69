-- What all policies share: reading and writing a state, its lifetime, and detecting that it was lost.
--
-- For one limit time never goes back, because a state says when it was written.
--
-- The client remembers for each limit when its state was last written ('written_at'), and when it settles ('settles_at'). A state
-- that is older, or missing before it settles, was lost: the server was restarted or flushed, or a replica with old data has
-- taken over. So was one that is missing soon after a new epoch. How much was spent besides is unknown, so everything counts as spent now.
--
-- A denial writes nothing, unless reading has changed the state ('has_changed') or its key would expire before it settles.

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
  local rest = fmod(a, b)
  local whole = (a - rest) / b
  if rest > 0 then return whole + 1 end
  return whole
end

local function floor_div(a, b)
  return (a - fmod(a, b)) / b
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

-- A state that is one string of this policy with this length, or a multiple of 'each' more; nil if there is none.
local function read_string(what, key, policy, length, each)
  local kept, fault = read(what, 'GET', key)
  if fault or not kept then return nil, fault end
  if #kept < length or fmod(#kept - length, each or math.huge) > 0 or string.byte(kept) ~= policy then
    return nil, wrong_type(key, what)
  end
  return kept
end

-- Until when a key lives at least that lives until 'dies' now, and whether its lifetime has to be set for that. It is never
-- shortened: other clients may not know what was given back since.
local function lifetime(dies, settles_at)
  if dies >= settles_at then return dies, false end
  return settles_at + 1000000, true
end

-- In milliseconds, for PX and PEXPIRE.
local function lives_for(dies)
  return floor_div(dies - server_now, 1000) + 1
end

-- Writes a state that is one string: what all of them begin with, and the rest.
local function keep(key, policy, at, dies, settles_at, rest)
  local has_to_live
  dies, has_to_live = lifetime(dies, settles_at)
  local state = to_bytes('<Bdd', policy, at, dies) .. rest
  if has_to_live then
    redis.call('SET', key, state, 'PX', lives_for(dies))
  else
    redis.call('SET', key, state, 'KEEPTTL')
  end
end

-- The time of a limit, whether its state was lost, and by how much the times of the state are ahead of all that its own life
-- allows. 'at': when it was written, nil if there is none. 'life': the longest time for which it can count.
--
-- If the server's clock was set back by less than that life, the time of the limit stands still until the clock has caught up. If
-- it was set back by more, or a server that is behind has taken over, the state counts as lost. Other clients then remember times
-- that are ahead just as far. They say nothing about a state that was written since.
local function time_of(at, life, settles_at, written_at)
  -- The epoch is read in any case, since other clients may not know of the loss.
  if not at then return server_now, may_be_lost(life) or server_now < settles_at, 0 end
  if at > server_now + life then return server_now, true, at - server_now end
  local is_from_before = written_at > server_now + life and at <= server_now
  return max(server_now, at), at < written_at and not is_from_before, 0
end

-- When a limit that fills continuously is full again, if an outage delays that; nil if not. Without the outage it is full at
-- 'full_at', and it fills from nothing in 'fills_in'. 'at' and 'full_at' are nil if there is no state.
--
-- During the outage, insurances of other clients may have passed permits at up to the rate, so the limit did not fill. After the
-- state has been written, the outage does not count again.
local function after_outage(at, full_at, fills_in, now, settles_at, written_at)
  if not at then
    -- The key may have expired meanwhile. If everything counted as spent at the end of the outage, the limit has filled since.
    at, full_at = written_at, settles_at
    if full_at == outage_to + fills_in then return nil end
  end
  local to = min(outage_to, now)
  if at > outage_from or to <= outage_from then return nil end
  return full_at + to - outage_from
end
