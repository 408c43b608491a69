-- The twin of policy/token_bucket.rs, and of policy/interval.rs: an interval is a bucket of one token that may owe.
--
-- A token takes token / permits microseconds. Sums are in shares of 1 / permits of a microsecond, as in Rust, but counted from
-- now, so that they stay small.
--
-- The key holds: when it was written, when the bucket is full again (microseconds, and shares beyond), and token, permits and
-- burst at that time.

policies.token_bucket = function(key, argument, memory, server_now)
  local token, permits = argument(), argument()
  local burst = argument()
  local room = token * burst

  local at, missing
  local now = server_now
  local kept = redis.call('GET', key)
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
    if #fields == 0 then return foreign(key, 'token bucket') end
    local full_at, beyond, old_token, old_permits, old_burst
    at, full_at, beyond = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
    old_token, old_permits, old_burst = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
    now = max(now, at)
    if at <= memory.blind_from then
      -- Others went on without asking, at no more than the rate: for that long it did not fill.
      full_at = max(full_at, memory.blind_from) + memory.blind_to - memory.blind_from
    end
    missing = max(0, (full_at - now) * old_permits + beyond)
    if token ~= old_token or permits ~= old_permits or burst ~= old_burst then
      -- Other parameters: the tokens stay, cut to the new burst, and a debt up to one new burst.
      missing = math.ceil(missing / old_token * token) + (burst - old_burst) * token
      missing = min(max(0, missing), 2 * room)
    end
  end
  local lost = is_lost(memory, at, now)
  if lost then missing = room end
  missing = missing or 0

  local limit = { now = now, lost = lost, at = at or 0 }

  function limit.room()
    return floor_div(max(0, room - missing), token)
  end

  -- How long until 'cost' would pass; 0 if it does now.
  function limit.wait(cost)
    if cost <= burst then
      return ceil_div(max(0, missing + token * cost - room), permits)
    end
    return ceil_div(missing, permits)
  end

  function limit.spend(cost)
    missing = missing + token * cost
  end

  function limit.give_back(cost)
    missing = max(0, missing - token * cost)
  end

  -- Until when this state differs from none.
  function limit.settles_at()
    return now + ceil_div(missing, permits)
  end

  function limit.save()
    limit.at = now
    local beyond = math.fmod(missing, permits)
    local full_at = now + (missing - beyond) / permits
    local state = string.format('%d %d %d %d %d %d', now, full_at, beyond, token, permits, burst)
    redis.call('SET', key, state, 'PX', lifetime(key, limit.settles_at() - now))
  end

  return limit
end

