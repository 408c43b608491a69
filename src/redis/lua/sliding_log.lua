-- The twin of policy/sliding_log.rs.
--
-- The key is a sorted set: a member for each permit, scored by when it was spent. Members are unique, since the id of a call
-- is. Two members are not permits: 'at' is when the set was written, 'lost' when all counted as spent.

policies.sliding_log = function(key, argument, memory, server_now)
  local most, window = argument(), argument()

  local at = tonumber(redis.call('ZSCORE', key, 'at') or nil)
  if not at and redis.call('EXISTS', key) == 1 then return foreign(key, 'sliding log') end
  local now = server_now
  if at then now = max(now, at) end
  -- An entry exactly one window old is gone.
  local gone = now - window

  local lost_at = at and tonumber(redis.call('ZSCORE', key, 'lost') or nil)
  if lost_at and lost_at <= gone then lost_at = nil end
  local lost = is_lost(memory, at, now)
  if lost then lost_at = now end

  local live = '(' .. text(gone)
  local spent = 0
  if at then
    spent = redis.call('ZCOUNT', key, live, '+inf')
    if at > gone then spent = spent - 1 end
    if lost_at and not lost then spent = spent - 1 end
  end
  local added = 0

  local limit = { now = now, lost = lost, at = at or 0 }

  function limit.room()
    if lost_at then return 0 end
    return max(0, most - spent - added)
  end

  function limit.wait(cost)
    if lost_at then return lost_at + window - now end
    local must_go = spent + added + cost - most
    if must_go <= 0 then return 0 end
    if must_go > spent then return window end
    local oldest = redis.call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', text(must_go - 1), '1')
    return tonumber(oldest[2]) + window - now
  end

  function limit.spend(cost)
    added = added + cost
  end

  -- The latest first.
  function limit.give_back(cost)
    if lost_at or not at then return end
    cost = min(cost, spent)
    -- It stays, and the set with it, however little is left.
    redis.call('ZADD', key, '-1', 'at')
    if cost > 0 then redis.call('ZPOPMAX', key, text(cost)) end
    spent = spent - cost
  end

  function limit.settles_at()
    if added > 0 or lost then return now + window end
    if not at then return now end
    return at + window
  end

  function limit.save(id)
    limit.at = now
    redis.call('ZADD', key, text(now), 'at')
    redis.call('ZREMRANGEBYSCORE', key, '-inf', text(gone))
    if lost then redis.call('ZADD', key, text(now), 'lost') end
    local members = {}
    for permit = 1, added do
      members[#members + 1] = text(now)
      members[#members + 1] = id .. ':' .. permit
      if #members >= 4000 or permit == added then
        redis.call('ZADD', key, unpack(members))
        members = {}
      end
    end
    redis.call('PEXPIRE', key, lifetime(key, limit.settles_at() - now))
  end

  return limit
end

