-- The twin of policy/sliding_log.rs.
--
-- The key holds besides, in its first LOG_HEAD bytes: the sum of all permits before the first entry that counts, the sum of all
-- permits, how many entries are dead, and how many there are. Then comes an entry for each instant at which permits passed, whatever
-- their number: the time, and the sum of the permits up to it. So a decision takes the same time for every cost. Sums never start
-- anew while an entry counts, so the permits between two entries are a difference of sums. The latest entry is of the time at which
-- the log was last written; what was given back may leave it without permits.

-- The most entries that one call changes, so that it does not block the server for long.
local MOST_ENTRIES = 1000

policies[4] = function(key, settles_at, written_at, most, window)
  local kept, fault = read('a sliding log', 'GETRANGE', key, 0, LOG_HEAD - 1)
  if kept == '' and redis.call('EXISTS', key) == 0 then kept = nil end
  if not fault and kept and (#kept < LOG_HEAD or string.byte(kept) ~= 4) then fault = wrong_type(key, 'a sliding log') end
  if fault then return nil, fault end
  local at, dies, before, sum, dead, entries = nil, 0, 0, 0, 0, 0
  if kept then
    local _
    _, at, dies, before, sum, dead, entries = from_bytes('<BddddI4I4', kept)
  end
  local now, lost = time_of(at, window, settles_at, written_at)

  local added = 0
  if lost then
    before, sum, dead, entries = 0, 0, 0, 0
    added = most
  else
    -- A permit exactly one window old no longer counts.
    local first = find_in_log(key, dead, entries, now - window, 0)
    if first == entries then
      before, sum, dead, entries = 0, 0, 0, 0
    elseif first > dead then
      dead = first
      local _
      _, before = entry_of_log(key, first - 1)
    end
  end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost, dies = dies }

  function limit.room()
    return max(0, most - (sum - before) - added)
  end

  function limit.wait(cost)
    local must_go = sum - before + added + cost - most
    if must_go <= 0 then return 0 end
    if must_go > sum - before then return window end
    return entry_of_log(key, find_in_log(key, dead, entries, 0, before + must_go)) + window - now
  end

  function limit.spend(cost)
    added = added + cost
  end

  -- Changes the sums from an entry on.
  local function change(first, changed)
    local from, new = LOG_HEAD + 16 * first, {}
    local old = redis.call('GETRANGE', key, from, -1)
    for offset = 1, #old, 16 do
      local time, its_sum = from_bytes('<dd', old, offset)
      new[#new + 1] = to_bytes('<dd', time, changed(its_sum))
    end
    sum = changed(sum)
    redis.call('SETRANGE', key, from, table.concat(new))
    redis.call('SETRANGE', key, 0, to_bytes('<BddddI4I4', 4, limit.at, dies, before, sum, dead, entries))
  end

  -- The latest first.
  function limit.give_back(cost)
    if entries == 0 then return end
    local first, left = dead, before
    if entries - dead > MOST_ENTRIES then
      first = entries - MOST_ENTRIES
      local _
      _, left = entry_of_log(key, first - 1)
    end
    left = max(left, sum - cost)
    change(first, function(its_sum) return min(its_sum, left) end)
  end

  -- Takes it out of its own entry, and from the sums of all later ones.
  function limit.take_back(cost, counted_at)
    local number = find_in_log(key, dead, entries, counted_at - 1, 0)
    if number == entries or entries - number > MOST_ENTRIES then return end
    local time, its_sum = entry_of_log(key, number)
    if time ~= counted_at then return end
    local its_before = before
    if number > dead then
      local _
      _, its_before = entry_of_log(key, number - 1)
    end
    cost = min(cost, its_sum - its_before)
    change(number, function(later) return later - cost end)
  end

  function limit.settles_at()
    if added > 0 or lost then return now + window end
    if sum > before then return at + window end
    return now
  end

  function limit.save()
    local has_to_live
    dies, has_to_live = lifetime(dies, limit.settles_at())
    if added == 0 and not has_to_live then return end
    local count = entries
    if added > 0 then
      -- The latest entry may be of now already.
      if entries == 0 or limit.at < now then count = count + 1 end
      limit.at = now
    end
    write_log(key, '', limit.at, dies, has_to_live and lives_for(dies), before, sum + added, dead, count)
  end

  return limit
end
