-- The twin of policy/fixed_window.rs.
--
-- The key holds besides: when the window began, and how much was spent in it.

policies[3] = function(key, settles_at, written_at, most, window)
  local kept, fault = read_string('a fixed window', key, 3, 33)
  if fault then return nil, fault end
  local at, dies, began, spent = nil, 0, 0, 0
  if kept then
    local _
    _, at, dies, began, spent = from_bytes('<Bdddd', kept)
  end
  local now, lost = time_of(at, window, settles_at, written_at)

  if lost then
    began, spent = now, most
  elseif spent == 0 or began + window <= now then
    began, spent = now, 0
  end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost, dies = dies }

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

  -- A window that began later does not count it.
  function limit.take_back(cost, counted_at)
    if spent == 0 or lost or began > counted_at or at < counted_at then return end
    limit.give_back(cost)
    limit.has_changed = true
  end

  -- An unspent window has not begun.
  function limit.settles_at()
    if spent == 0 then return now end
    return began + window
  end

  function limit.save()
    limit.at = now
    keep(key, 3, now, dies, limit.settles_at(), to_bytes('<dd', began, spent))
  end

  return limit
end
