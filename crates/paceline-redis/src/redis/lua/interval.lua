-- The twin of policy/interval.rs.
--
-- The interval is token / permits microseconds.
--
-- The key holds besides: when the last request passed, and how many intervals it takes.

policies[2] = function(key, settles_at, written_at, token, permits)
  local kept, fault = read_string('an interval', key, 2, 33)
  if fault then return nil, fault end
  local at, dies, last, bought = nil, 0, nil, nil
  if kept then
    local _
    _, at, dies, last, bought = from_bytes('<Bdddd', kept)
  end

  -- How long the last request blocks others. A cost from shorter intervals may be too large for this one.
  local function spacing()
    return ceil_div(min(bought * token, 4503599627370496), permits)
  end

  local every = ceil_div(token, permits)
  local life = every
  if at then life = max(life, last + spacing() - at) end
  local now, lost, ahead = time_of(at, life, settles_at, written_at)

  local has_changed = false
  local open_later
  if ahead > 0 then
    last = last - ahead
  else
    open_later = after_outage(at, at and last + spacing(), every, now, settles_at, written_at)
  end
  if open_later then
    bought = bought or 1
    last = open_later - spacing()
    has_changed = open_later > now
  end
  if lost then
    -- A request of a higher cost blocks others for longer than that.
    if not last or last + spacing() < now + every then
      last, bought = now, 1
    end
    has_changed = true
  end
  if not last then last, bought = now, 0 end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed, dies = dies }

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

  -- After the latest request, if that still blocks others.
  function limit.charge(cost)
    if limit.wait() == 0 then
      limit.spend(cost)
    else
      bought = bought + cost
    end
  end

  -- Of the latest request only: the one before is not recorded.
  function limit.give_back(cost)
    bought = max(0, bought - cost)
  end

  function limit.take_back(cost, counted_at)
    if last ~= counted_at or lost or bought == 0 then return end
    limit.give_back(cost)
    limit.has_changed = true
  end

  function limit.settles_at()
    return last + spacing()
  end

  function limit.save()
    limit.at = now
    keep(key, 2, now, dies, limit.settles_at(), to_bytes('<dd', last, bought))
  end

  return limit
end
