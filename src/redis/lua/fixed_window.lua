-- The twin of policy/fixed_window.rs.
--
-- The key holds: when it was written, when the window began, and how much was spent in it.

policies.fixed_window = function(key, next_number, memory, server_now)
  local most, window = next_number(), next_number()

  local kept, fault = read('a fixed window', 'GET', key)
  if fault then return nil, fault end
  local at, began, spent = nil, 0, 0
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+) (%d+)$') }
    if #fields == 0 then return nil, wrong_type(key, 'a fixed window') end
    at, began, spent = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
  end
  local now = max(server_now, at or 0)

  local lost = is_lost(memory, at, now)
  if lost then
    began, spent = now, most
  elseif spent == 0 or began + window <= now then
    began, spent = now, 0
  end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost }

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

  -- An unspent window has not begun.
  function limit.settles_at()
    if spent == 0 then return now end
    return began + window
  end

  function limit.save()
    limit.at = now
    local state = string.format('%d %d %d', now, began, spent)
    keep(key, state, limit.settles_at() - now)
  end

  return limit
end
