-- Changes an override, and returns the overrides that have changed since a version.
--
-- KEYS     the overrides by name; the versions of the names; when a name can be dropped. The last two are sorted sets
-- ARGV     the last version that the client knows, 0 for none, with a plus if the last reply did not have all;
--          and for a change: the name, what changes, and the new value
-- returns  a packed string: the time in microseconds, the version of the last override that follows, and the sum of 1 if these are
--          all and not only the changed ones, and 2 if there are more;
--          for each override its name, and a packed string: the end of the pause, until when its absence could be missed, the mode,
--          and the parameters, which only clients read
--
-- A version is the time of a change, or one more than the last version. A client that has not read for an hour gets everything. So
-- does a client whose version is from before the first override: the server has lost what there was. The field with an empty name
-- holds the first version.

local from_bytes, to_bytes, call = struct.unpack, struct.pack, redis.call

local HOUR = 3600000000
local MOST = 10000
local MOST_AT_ONCE = 1000

local by_name, versions, ends = unpack(KEYS)
local since, name, task, value = unpack(ARGV)
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local version = tonumber(call('ZREVRANGE', versions, 0, 0, 'WITHSCORES')[2] or 0)

if name then
  version = math.max(now, version + 1)
  for _, ended in ipairs(call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do
    call('HDEL', by_name, ended)
    call('ZREM', versions, ended)
    call('ZREM', ends, ended)
  end

  local kept = call('HGET', by_name, name)
  if not kept and call('ZCARD', versions) >= MOST then
    return redis.error_reply('ERR there are ' .. MOST .. ' overrides: more limits cannot be paused or changed')
  end
  local paused_until, missed_until, mode, params = 0, 0, 0, ''
  if kept then
    local offset
    paused_until, missed_until, mode, offset = from_bytes('<I8I8B', kept)
    params = string.sub(kept, offset)
  end
  if task == 'pause' then
    paused_until = math.max(paused_until, now + tonumber(value))
  else
    missed_until = math.max(missed_until, version + HOUR)
    if task == 'resume' then
      -- A client that knows of the pause learns of this before its end, or never has to.
      missed_until, paused_until = math.max(missed_until, paused_until), 0
    elseif task == 'mode' then
      mode = tonumber(value)
    else
      params = value
    end
  end

  call('HSETNX', by_name, '', version)
  call('HSET', by_name, name, to_bytes('<I8I8B', paused_until, missed_until, mode) .. params)
  call('ZADD', versions, version, name)
  if mode == 0 and params == '' then
    call('ZADD', ends, math.max(paused_until, missed_until), name)
  else
    call('ZREM', ends, name)
  end
  -- All of it expires once nothing in it can matter any more.
  local is_passing = call('ZCARD', ends) == call('ZCARD', versions)
  local last = is_passing and call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2] / 1000 + 1
  for _, key in ipairs(KEYS) do
    if is_passing then
      call('PEXPIREAT', key, last - last % 1)
    else
      call('PERSIST', key)
    end
  end
end

local known = tonumber(since)
if known == version and known > 0 then return { to_bytes('<I8I8B', now, version, 0) } end
local first = tonumber(call('HGET', by_name, '') or 0)
local goes_on = string.sub(since, 1, 1) == '+'
local is_all = known < first or known > version or not goes_on and known < version - HOUR
local from = is_all and '-inf' or string.format('(%.0f', known)
local names = call('ZRANGEBYSCORE', versions, from, '+inf', 'LIMIT', 0, MOST_AT_ONCE + 1)
local has_more = #names > MOST_AT_ONCE
if has_more then
  names[#names] = nil
  version = tonumber(call('ZSCORE', versions, names[#names]))
end
local reply = { to_bytes('<I8I8B', now, version, (is_all and 1 or 0) + (has_more and 2 or 0)) }
for _, changed in ipairs(names) do
  local kept = call('HGET', by_name, changed)
  if kept then
    reply[#reply + 1] = changed
    reply[#reply + 1] = kept
  end
end
return reply
