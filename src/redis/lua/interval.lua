-- The twin of policy/interval.rs.
--
-- The interval is token / permits microseconds.
--
-- The key holds: when it was written, when the last request passed, and how many intervals it takes.

policies.interval = function(key, next_number, memory, server_now)
  local token, permits = next_number(), next_number()

  local kept, fault = read('an interval', 'GET', key)
  if fault then return nil, fault end
  local at, last, bought
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+)%+(%d+)$') }
    if #fields == 0 then return nil, wrong_type(key, 'an interval') end
    at, last, bought = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
  end
  local now = max(server_now, at or 0)

  -- How long the last request blocks others. A cost from shorter intervals may be too large for this one.
  local function spacing()
    return ceil_div(min(bought * token, 4503599627370496), permits)
  end

  local has_changed = false
  local open_later = after_outage(memory, at, at and last + spacing(), ceil_div(token, permits), now)
  if open_later then
    bought = bought or 1
    last = open_later - spacing()
    has_changed = open_later > now
  end
  local lost = is_lost(memory, at, now)
  if lost then
    -- A request of a higher cost blocks others for longer than that.
    if not last or last + spacing() < now + ceil_div(token, permits) then
      last, bought = now, 1
    end
    has_changed = true
  end
  if not last then last, bought = now, 0 end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed }

  -- An unused interval is not saved up.
  function limit.room()
    if limit.wait() == 0 then return 1 end
    return 0
  end

  -- For every cost: it is paid for afterwards.
  function limit.wait()
    return max(0, last + spacing() - now)
  end

  function limit.spend(cost)
    last, bought = now, cost
  end

  -- Of the latest request only: the one before is not recorded.
  function limit.give_back(cost)
    bought = max(0, bought - cost)
  end

  function limit.settles_at()
    return last + spacing()
  end

  function limit.save()
    limit.at = now
    local state = string.format('%d %d+%d', now, last, bought)
    keep(key, state, limit.settles_at() - now)
  end

  return limit
end
