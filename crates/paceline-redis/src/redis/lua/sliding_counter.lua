-- The twin of policy/sliding_counter.rs, strict and smooth.
--
-- The key holds besides: the start of bucket 0, the sum of all entries, and an entry for each bucket in use, in their order: the
-- times of its first and of its last permit, and their number. Other parameters with other buckets count the entry at its last
-- permit, so that alternating parameters do not move it.

policies[5] = function(key, settles_at, written_at, most, bucket, reach, is_smooth)
  is_smooth = is_smooth == 1

  local kept, fault = read_string('a sliding counter', key, 5, 33, 24)
  if fault then return nil, fault end
  local at, dies, origin
  if kept then
    local _
    _, at, dies, origin = from_bytes('<Bddd', kept)
  end
  local now, lost = time_of(at, bucket * reach, settles_at, written_at)

  local function bucket_at(time)
    return floor_div(time - origin, bucket)
  end

  local function beginning_of(number)
    return origin + number * bucket
  end

  -- Entries that no longer count are dropped. When none is left, the buckets start anew.
  local entries, total = {}, 0
  if at and not lost then
    local counts_from = beginning_of(bucket_at(now) - reach + 1)
    for offset = 34, #kept, 24 do
      local first, last, spent = from_bytes('<ddd', kept, offset)
      if last >= counts_from then
        entries[#entries + 1] = { first = first, last = last, spent = spent }
        total = total + spent
      end
    end
  end
  if #entries == 0 then origin = now end
  local present = bucket_at(now)

  local function spend(cost)
    local latest = entries[#entries]
    -- An entry of other parameters may have started in the bucket before. It must not grow into this one, or it would never expire.
    if not latest or latest.first < beginning_of(present) then
      latest = { first = now, spent = 0 }
      entries[#entries + 1] = latest
    end
    latest.last, latest.spent = now, latest.spent + cost
    total = total + cost
  end
  if lost then spend(most) end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost, dies = dies or 0, spend = spend }

  local function spent_in(number)
    local sum = 0
    for _, entry in ipairs(entries) do
      if bucket_at(entry.last) == number then sum = sum + entry.spent end
    end
    return sum
  end

  local function wait_strict(room)
    local must_go = total - room
    for _, entry in ipairs(entries) do
      if must_go <= 0 then break end
      must_go = must_go - entry.spent
      if must_go <= 0 then return max(0, beginning_of(bucket_at(entry.last) + reach) - now) end
    end
    return 0
  end

  -- The count of the last window falls in proportion to the time in the present one, and the present count in the next window.
  local function wait_smooth(room)
    local spent = spent_in(present)
    local begins, falling, left = present, spent_in(present - 1), room - spent
    if left < 0 then
      begins, falling, left = present + 1, spent, room
    end
    local open_at = beginning_of(begins)
    if falling > left then
      -- falling * (bucket - elapsed) <= left * bucket
      open_at = open_at + bucket - floor_div(left * bucket, falling)
    end
    return max(0, open_at - now)
  end

  function limit.wait(cost)
    if is_smooth then return wait_smooth(most - cost) end
    return wait_strict(most - cost)
  end

  function limit.room()
    if not is_smooth then return max(0, most - total) end
    local elapsed = now - beginning_of(present)
    -- last * (bucket - elapsed) <= (most - spent - cost) * bucket
    local covered = ceil_div(spent_in(present - 1) * (bucket - elapsed), bucket)
    return max(0, most - spent_in(present) - covered)
  end

  -- The latest first.
  function limit.give_back(cost)
    while cost > 0 and #entries > 0 do
      local latest = entries[#entries]
      local taken = min(cost, latest.spent)
      cost = cost - taken
      latest.spent = latest.spent - taken
      total = total - taken
      if latest.spent == 0 then entries[#entries] = nil end
    end
  end

  -- Out of the entry that counts it.
  function limit.take_back(cost, counted_at)
    for number, entry in ipairs(entries) do
      if not lost and entry.first <= counted_at and entry.last >= counted_at then
        local taken = min(cost, entry.spent)
        entry.spent, total = entry.spent - taken, total - taken
        limit.has_changed = true
        if entry.spent == 0 then table.remove(entries, number) end
        return
      end
    end
  end

  function limit.settles_at()
    local latest = entries[#entries]
    if not latest then return now end
    return beginning_of(bucket_at(latest.last) + reach)
  end

  function limit.save()
    limit.at = now
    local rest = { to_bytes('<dd', origin, total) }
    for number, entry in ipairs(entries) do
      rest[number + 1] = to_bytes('<ddd', entry.first, entry.last, entry.spent)
    end
    keep(key, 5, now, limit.dies, limit.settles_at(), table.concat(rest))
  end

  return limit
end
