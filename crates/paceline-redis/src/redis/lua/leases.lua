-- Leases: a limited number at once, each for a limited time.
--
-- KEYS     a sorted set for each class of leases; then, if requests of the first class can wait, a hash with the marks of the
--          waiting processes. All are in one slot of a cluster
-- ARGV     how long a lease lasts, in microseconds
--          how many classes, and for each: the number of its leases, and of all leases, below which one more is granted
--          this process's field in the hash
--          how many of its requests wait; -1 if the marks are left alone
--          how long its mark stands, in microseconds
--          how many are released, and for each its class, from 1, and its member
--          how many are renewed, and for each the same
--          how many are wanted, how many of those wait, and for each the same; those that wait come first
-- returns  the time
--          in how many microseconds the first lease ends if it is not renewed; 0 if there are none
--          this process's place among those that wait, from 1; 0 if it has no mark
--          for each class: its number of leases
--          for each to be renewed: 1 if it was, 0 if it had expired
--          for each wanted: 1 if it was granted, 0 if not
--
-- The score of a member is the end of its lease. A lease that ends now has ended. One member is no lease: the score of 'at' is
-- the time of the last write, negative, so that it never counts as ended. The script's time never goes back behind it, unless the
-- server's clock went back by more than the time of a lease: then all leases move along, and keep the time that they have left.
--
-- A mark has five numbers: the turn, how many leases that turn has taken, how many requests wait, when it was written, how long
-- it stands. Smaller turns are served first. A turn takes a quantum: the limit divided by the number of waiting processes. Then
-- the process goes to the back. What is left of earlier turns is reserved. Requests that do not wait come after all that do.
--
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

-- The numbers of a mark, as doubles.
local MARK = '>ddddd'

local lease = next_number()
local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = clock

local classes = {}
for number = 1, next_number() do
  local key = KEYS[number]
  local kind = redis.call('TYPE', key)['ok']
  local at = kind == 'zset' and redis.call('ZSCORE', key, 'at')
  if kind ~= 'none' and not at then
    return redis.error_reply('WRONGTYPE ' .. key .. ' holds something else than leases')
  end
  local behind = at and -tonumber(at) - clock or 0
  if behind <= lease then
    now = math.max(now, clock + behind)
    behind = 0
  end
  classes[number] =
    { key = key, below = next_number(), below_in_all = next_number(), exists = at and true, count = 0, behind = behind }
end

local marks_key, process, waits, stands = KEYS[#classes + 1], next_text(), next_number(), next_number()
local has_turns = marks_key and waits >= 0

-- The marks of other processes that stand, the fields of those that have lapsed, and this process's turn.
local marks, lapsed, turn, took, last_turn = {}, {}, math.huge, 0, 0
local fields = has_turns and redis.pcall('HGETALL', marks_key) or {}
for position = 1, #fields, 2 do
  local field, mark = fields[position], fields[position + 1]
  if #mark ~= struct.size(MARK) then fields.err = 'a field of another kind' break end
  local its_turn, its_took, its_waits, at, its_time = struct.unpack(MARK, mark)
  if its_turn > last_turn then last_turn = its_turn end
  if field == process then
    turn, took = its_turn, its_took
  -- A mark from the future was written before the clock went back.
  elseif at <= now and now < at + its_time then
    marks[#marks + 1] = { its_turn, its_took, its_waits, at + its_time }
  else
    lapsed[#lapsed + 1] = field
  end
end
if fields.err then
  return redis.error_reply('WRONGTYPE ' .. marks_key .. ' holds something else than marks of waiting processes')
end

local in_all = 0
local function change(class, by)
  class.count = class.count + by
  in_all = in_all + by
  class.changed = true
end

for _, class in ipairs(classes) do
  if class.behind > 0 then
    local members = redis.call('ZRANGE', class.key, 0, -1, 'WITHSCORES')
    for position = 1, #members, 2 do
      local ends = tonumber(members[position + 1]) - class.behind
      if members[position] ~= 'at' then redis.call('ZADD', class.key, text(ends), members[position]) end
    end
    change(class, 0)
  end
  if class.exists then
    local ended = redis.call('ZREMRANGEBYSCORE', class.key, '(0', text(now))
    class.count = redis.call('ZCARD', class.key) - 1
    class.changed = class.changed or ended > 0
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

local function free(class)
  return math.min(class.below - class.count, class.below_in_all - in_all)
end

-- How many more are granted to requests that wait.
local wanted, wanted_waiting, left = next_number(), next_number(), math.huge
local quantum = math.ceil(classes[1].below / (#marks + 1))
if has_turns then
  left = free(classes[1])
  for _, mark in ipairs(marks) do
    if mark[1] < turn then left = left - math.max(0, math.min(quantum - mark[2], mark[3])) end
  end
  left = math.min(left, quantum - took)
end

local granted = {}
for number = 1, wanted do
  local class, id = classes[next_number()], next_text()
  if has_turns and number == wanted_waiting + 1 then
    left = free(classes[1]) - waits
    for _, mark in ipairs(marks) do left = left - mark[3] end
  end
  local is_granted = left > 0 and free(class) > 0
  if is_granted then
    redis.call('ZADD', class.key, text(now + lease), id)
    change(class, 1)
    left = left - 1
    if has_turns and number <= wanted_waiting then
      waits = waits - 1
      took = took + 1
    end
  end
  granted[number] = is_granted and 1 or 0
end

local place = 0
for _, field in ipairs(lapsed) do redis.call('HDEL', marks_key, field) end
if has_turns and waits > 0 then
  if took >= quantum or turn == math.huge then turn, took = last_turn + 1, 0 end
  place = 1
  local longest = stands
  for _, mark in ipairs(marks) do
    if mark[1] < turn then place = place + 1 end
    if mark[4] - now > longest then longest = mark[4] - now end
  end
  redis.call('HSET', marks_key, process, struct.pack(MARK, turn, took, waits, now, stands))
  redis.call('PEXPIRE', marks_key, text(math.ceil(longest / 1000)))
elseif has_turns and turn < math.huge then
  redis.call('HDEL', marks_key, process)
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

local reply = { now, first_end and first_end - now or 0, place }
for _, class in ipairs(classes) do reply[#reply + 1] = class.count end
for _, answer in ipairs(renewed) do reply[#reply + 1] = answer end
for _, answer in ipairs(granted) do reply[#reply + 1] = answer end
return reply
