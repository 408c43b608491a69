-- Leases: a limited number at once, each for a limited time.
--
-- KEYS     a sorted set for each class of leases, in one slot of a cluster
-- ARGV     how long a lease lasts, in microseconds
--          for each class: the number of its leases, and of all leases, below which one more is granted
--          how many are released, and for each its class, from 1, and its member
--          how many are renewed, and for each the same
--          how many are wanted, and for each the same
-- returns  the time
--          in how many microseconds the first lease ends if it is not renewed; 0 if there are none
--          for each class: its number of leases
--          for each to be renewed: 1 if it was, 0 if it had expired
--          for each wanted: 1 if it was granted, 0 if not
--
-- The score of a member is the end of its lease. A lease that ends now has ended. One member is no lease: the score of 'at' is
-- the time of the last write, negative, so that it never counts as ended. The script's time never goes back behind it.
-- Times are microseconds of the server's clock. They are exact: doubles are, up to 2^53.

local index = 0
local function next_text()
  index = index + 1
  return ARGV[index]
end
local function next_number()
  return tonumber(next_text())
end

-- Redis reads numbers as text, and tostring() rounds.
local function text(number)
  return string.format('%d', number)
end

local lease = next_number()
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local classes = {}
for number, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  local at = kind == 'zset' and redis.call('ZSCORE', key, 'at')
  if kind ~= 'none' and not at then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds something else than leases')
  end
  if at then now = math.max(now, -tonumber(at)) end
  classes[number] = { key = key, below = next_number(), below_in_all = next_number(), exists = at and true, count = 0 }
end

local in_all = 0
local function change(class, by)
  class.count = class.count + by
  in_all = in_all + by
  class.changed = true
end

for _, class in ipairs(classes) do
  if class.exists then
    local ended = redis.call('ZREMRANGEBYSCORE', class.key, '(0', text(now))
    class.count = redis.call('ZCARD', class.key) - 1
    class.changed = ended > 0
    in_all = in_all + class.count
  end
end

for _ = 1, next_number() do
  local class, id = classes[next_number()], next_text()
  if redis.call('ZREM', class.key, id) == 1 then change(class, -1) end
end

local renewed = {}
for number = 1, next_number() do
  local class, id = classes[next_number()], next_text()
  local ends = redis.call('ZSCORE', class.key, id)
  if ends then
    -- A renewal never shortens a lease.
    redis.call('ZADD', class.key, text(math.max(tonumber(ends), now + lease)), id)
    change(class, 0)
  end
  renewed[number] = ends and 1 or 0
end

local granted = {}
for number = 1, next_number() do
  local class, id = classes[next_number()], next_text()
  local has_room = class.count < class.below and in_all < class.below_in_all
  if has_room then
    redis.call('ZADD', class.key, text(now + lease), id)
    change(class, 1)
  end
  granted[number] = has_room and 1 or 0
end

-- The score of the member at that rank, in the order of their ends.
local function score(class, rank)
  return tonumber(redis.call('ZRANGE', class.key, rank, rank, 'WITHSCORES')[2])
end

local first_end
for _, class in ipairs(classes) do
  if class.changed and class.count == 0 then
    redis.call('DEL', class.key)
  elseif class.changed then
    redis.call('ZADD', class.key, text(-now), 'at')
    -- The key expires with its last lease, and not before.
    redis.call('PEXPIRE', class.key, text(math.ceil((score(class, '-1') - now) / 1000)))
  end
  if class.count > 0 then
    first_end = math.min(first_end or math.huge, score(class, '1'))
  end
end

local reply = { now, first_end and first_end - now or 0 }
for _, class in ipairs(classes) do reply[#reply + 1] = class.count end
for _, answer in ipairs(renewed) do reply[#reply + 1] = answer end
for _, answer in ipairs(granted) do reply[#reply + 1] = answer end
return reply
