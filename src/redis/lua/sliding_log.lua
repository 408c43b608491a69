-- The twin of policy/sliding_log.rs.
--
-- The key is a sorted set with a member for each permit, scored by its time. Members are unique, because call ids are. Two members
-- are not permits: 'at' is the time of the last permit, 'lost' the time when everything counted as spent.

policies.sliding_log = function(key, next_number, memory, server_now)
  local most, window = next_number(), next_number()

  local kept, fault = read('a sliding log', 'ZSCORE', key, 'at')
  if not fault and not kept and redis.call('EXISTS', key) == 1 then fault = wrong_type(key, 'a sliding log') end
  if fault then return nil, fault end
  local at = kept and tonumber(kept) or nil
  local now = max(server_now, at or 0)
  -- A permit exactly one window old no longer counts.
  local gone = now - window

  local lost_at = at and tonumber(redis.call('ZSCORE', key, 'lost') or nil)
  if lost_at and lost_at <= gone then lost_at = nil end
  local live = '(' .. text(gone)
  local spent = 0
  if at and at > gone then
    -- Without 'at' itself. With 'lost', the number does not matter.
    spent = redis.call('ZCOUNT', key, live, '+inf') - 1
  end
  local added = 0
  local lost = is_lost(memory, at, now)
  if lost then lost_at = now end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost }

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

  -- The latest first. 'at' stays, because it determines the lifetime of the set.
  function limit.give_back(cost)
    cost = min(cost, spent)
    if lost_at or cost == 0 then return end
    redis.call('ZADD', key, '-1', 'at')
    redis.call('ZPOPMAX', key, text(cost))
    redis.call('ZADD', key, text(at), 'at')
    spent = spent - cost
  end

  function limit.settles_at()
    if added > 0 or lost then return now + window end
    if spent > 0 or lost_at then return at + window end
    return now
  end

  function limit.save(id)
    if added == 0 and not lost then return end
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
    set_lifetime(key, limit.settles_at() - now)
  end

  return limit
end
