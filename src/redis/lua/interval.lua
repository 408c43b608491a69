-- The twin of policy/interval.rs.
--
-- The interval is token / permits microseconds.
--
-- The key holds: when it was written, when the last request passed, and how many intervals it bought.

policies.interval = function(key, argument, memory, server_now)
  local token, permits = argument(), argument()

  local kept, fault = read('an interval', 'GET', key)
  if fault then return nil, fault end
  local at, last, bought
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+)%+(%d+)$') }
    if #fields == 0 then return nil, foreign(key, 'an interval') end
    at, last, bought = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
  end
  local now = max(server_now, at or 0)

  -- How long the last request keeps others away. What was bought by shorter intervals may be more than has room.
  local function spacing()
    return ceil_div(min(bought * token, 4503599627370496), permits)
  end

  local has_changed = false
  local open_later = after_blindness(memory, at, at and last + spacing(), ceil_div(token, permits), now)
  if open_later then
    bought = bought or 1
    last = open_later - spacing()
    has_changed = open_later > now
  end
  local lost = is_lost(memory, at, now)
  if lost then
    -- Whoever bought more keeps others away for longer than that.
    if not last or last + spacing() < now + ceil_div(token, permits) then
      last, bought = now, 1
    end
    has_changed = true
  end
  if not last then last, bought = now, 0 end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed }

  -- An interval that nobody used is not saved up.
  function limit.room()
    if limit.wait() == 0 then return 1 end
    return 0
  end

  -- Whatever it costs: it is paid for afterwards.
  function limit.wait()
    return max(0, last + spacing() - now)
  end

  function limit.spend(cost)
    last, bought = now, cost
  end

  -- Of the latest request only: the one before it is history.
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
