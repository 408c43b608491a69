-- The twin of policy/sliding_log.rs.
--
-- The key is a sorted set with an entry for each instant at which permits passed, whatever their number: so a decision takes
-- the same time for every cost. The score of an entry is its time, and its name two sums: of the permits before it, and
-- including it. Sums never start anew while there is an entry, so the permits between two entries are a difference of sums.
-- Two members are no entries: 'at', when the log was last written, and 'dies', until when the key lives at least. Their scores are
-- negative, so they come first.

-- The most entries that one call removes or changes, so that it does not block the server for long.
local MOST_ENTRIES = 1000

policies[4] = function(key, settles_at, written_at, most, window)
  local head, fault = read('a sliding log', 'ZRANGE', key, 0, 2, 'WITHSCORES')
  if not fault and #head > 0 and not (head[1] == 'dies' and head[3] == 'at') then fault = wrong_type(key, 'a sliding log') end
  if fault then return nil, fault end
  local at, dies = nil, 0
  if #head > 0 then at, dies = -head[4], -head[2] end
  local now, lost = time_of(at, window, settles_at, written_at)
  -- A permit exactly one window old no longer counts.
  local gone = now - window

  -- The entry at this position, counted from 'dies' on: its time, its sums and its name.
  local function entry_at(position)
    local found = redis.call('ZRANGE', key, position, position, 'WITHSCORES')
    local before, sum = from_bytes('<I8I8', found[1])
    return tonumber(found[2]), before, sum, found[1]
  end

  -- The oldest entry that counts, the latest, and what is spent.
  local oldest, oldest_at, before, oldest_sum, has_expired
  local latest, latest_at, latest_before, sum
  local spent, added = 0, 0

  local function load(first, first_at)
    oldest, oldest_at, has_expired = first, first and tonumber(first_at), false
    latest, latest_at, latest_before, sum, spent = nil, nil, 0, 0, 0
    if not first then return end
    latest_at, latest_before, sum, latest = entry_at(-1)
    if oldest_at <= gone then
      has_expired = true
      local live = redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%d', gone), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      oldest, oldest_at = live[1], live[1] and tonumber(live[2])
    end
    if oldest then
      before, oldest_sum = from_bytes('<I8I8', oldest)
      spent = sum - before
    end
  end
  if lost then
    load()
    added = most
  else
    load(head[5], head[6])
  end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = lost, dies = dies }

  -- The position of the first entry whose sum is at least that. The sum of the latest is.
  local function position_of(least)
    local first, last = redis.call('ZRANK', key, oldest), redis.call('ZCARD', key) - 1
    while first < last do
      local middle = floor_div(first + last, 2)
      local _, _, its_sum = entry_at(middle)
      if its_sum >= least then last = middle else first = middle + 1 end
    end
    return first
  end

  function limit.room()
    return max(0, most - spent - added)
  end

  function limit.wait(cost)
    local must_go = spent + added + cost - most
    if must_go <= 0 then return 0 end
    if must_go > spent then return window end
    local expires = oldest_at
    if oldest_sum < before + must_go then expires = entry_at(position_of(before + must_go)) end
    return expires + window - now
  end

  function limit.spend(cost)
    added = added + cost
  end

  -- The latest first.
  function limit.give_back(cost)
    cost = min(cost, spent)
    if cost == 0 then return end
    local left = sum - cost
    local position = max(position_of(left + 1), redis.call('ZCARD', key) - MOST_ENTRIES)
    local time, its_before = entry_at(position)
    redis.call('ZREMRANGEBYRANK', key, position, -1)
    left = max(left, its_before)
    if left > its_before then redis.call('ZADD', key, time, to_bytes('<I8I8', its_before, left)) end
    spent, sum = spent - (sum - left), left
  end

  -- Takes it out of its own entry, and from the sums of all later ones.
  function limit.take_back(cost, counted_at)
    if not oldest then return end
    local found = redis.call('ZRANGEBYSCORE', key, counted_at, counted_at)[1]
    if not found then return end
    local position = redis.call('ZRANK', key, found)
    if redis.call('ZCARD', key) - position > MOST_ENTRIES then return end
    local entries = redis.call('ZRANGE', key, position, -1, 'WITHSCORES')
    local its_before, its_sum = from_bytes('<I8I8', found)
    cost = min(cost, its_sum - its_before)
    local changed = {}
    for index = 1, #entries, 2 do
      local less = index == 1 and 0 or cost
      its_before, its_sum = from_bytes('<I8I8', entries[index])
      if its_sum - cost > its_before - less then
        changed[#changed + 1] = entries[index + 1]
        changed[#changed + 1] = to_bytes('<I8I8', its_before - less, its_sum - cost)
      end
    end
    redis.call('ZREMRANGEBYRANK', key, position, -1)
    if #changed > 0 then redis.call('ZADD', key, unpack(changed)) end
    local first = redis.call('ZRANGE', key, 2, 2, 'WITHSCORES')
    load(first[1], first[2])
  end

  function limit.settles_at()
    if added > 0 or lost then return now + window end
    if spent > 0 then return at + window end
    return now
  end

  function limit.save()
    local has_to_live
    dies, has_to_live = lifetime(dies, limit.settles_at())
    if lost then
      redis.call('UNLINK', key)
      has_to_live = true
    end
    local members = {}
    if has_to_live then members = { -dies, 'dies' } end
    if added > 0 then
      limit.at = now
      if latest_at == now then
        redis.call('ZREM', key, latest)
      else
        latest_before = sum
      end
      local number = #members
      members[number + 1], members[number + 2] = -now, 'at'
      members[number + 3], members[number + 4] = now, to_bytes('<I8I8', latest_before, sum + added)
    end
    if #members > 0 then redis.call('ZADD', key, unpack(members)) end
    if has_expired and added > 0 then
      local expired = redis.call('ZCOUNT', key, 1, gone)
      redis.call('ZREMRANGEBYRANK', key, 2, 1 + min(expired, MOST_ENTRIES))
    end
    if has_to_live then redis.call('PEXPIRE', key, lives_for(dies)) end
  end

  return limit
end
