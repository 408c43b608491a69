-- The twin of policy/fixed_window.rs.
--
-- The key holds: when it was written, when the window began, and what was spent in it.

policies.fixed_window = function(key, argument, memory, server_now)
  local most, window = argument(), argument()

  local at, began, spent
  local now = server_now
  local kept = redis.call('GET', key)
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+) (%d+)$') }
    if #fields == 0 then return foreign(key, 'fixed window') end
    at, began, spent = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
    now = max(now, at)
  end
  local lost = is_lost(memory, at, now)
  if lost then
    began, spent = now, most
  end
  if not spent or spent == 0 or began + window <= now then
    began, spent = now, 0
  end

  local limit = { now = now, lost = lost, at = at or 0 }

  function limit.room()
    return max(0, most - spent)
  end

  function limit.wait(cost)
    if spent + cost <= most then return 0 end
    return began + window - now
  end

  function limit.spend(cost)
    spent = spent + cost
  end

  function limit.give_back(cost)
    spent = max(0, spent - cost)
  end

  function limit.settles_at()
    return began + window
  end

  function limit.save()
    limit.at = now
    local state = string.format('%d %d %d', now, began, spent)
    redis.call('SET', key, state, 'PX', lifetime(key, began + window - now))
  end

  return limit
end

