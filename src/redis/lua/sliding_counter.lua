-- The twin of policy/sliding_counter.rs, strict and smooth.
--
-- The key is a hash: a field for each bucket in which something was spent, named by its number; 'at' is when the hash was
-- written, 'origin' when bucket 0 began, 'bucket' how long each is.

policies.sliding_counter = function(key, argument, memory, server_now)
  local most, bucket, reach = argument(), argument(), argument()
  local is_smooth = argument() == 1

  local kept = redis.call('HGETALL', key)
  local spent_in, at, origin, old_bucket = {}, nil, nil, nil
  for field = 1, #kept, 2 do
    local name, value = kept[field], tonumber(kept[field + 1])
    if name == 'at' then at = value
    elseif name == 'origin' then origin = value
    elseif name == 'bucket' then old_bucket = value
    else
      local number = tonumber(name)
      if not (number and value) then return foreign(key, 'sliding counter') end
      spent_in[number] = value
    end
  end
  if #kept > 0 and not (at and origin and old_bucket) then return foreign(key, 'sliding counter') end
  local now = server_now
  if at then now = max(now, at) end

  if old_bucket and old_bucket ~= bucket then
    -- Other parameters: each count moves to the latest new bucket it may belong to.
    local moved = {}
    for number, spent in pairs(spent_in) do
      local latest = min(now - origin, (number + 1) * old_bucket - 1)
      local new = floor_div(latest, bucket)
      moved[new] = (moved[new] or 0) + spent
    end
    spent_in = moved
  end

  local lost = is_lost(memory, at, now)
  if lost then
    origin = now
    spent_in = { [0] = most }
  end

  -- What no longer counts is forgotten; when nothing is left, the buckets begin anew.
  local present = origin and floor_div(now - origin, bucket) or 0
  local numbers = {}
  for number in pairs(spent_in) do
    if number <= present - reach then
      spent_in[number] = nil
    else
      numbers[#numbers + 1] = number
    end
  end
  table.sort(numbers)
  if #numbers == 0 then
    origin = now
    present = 0
  end

  local limit = { now = now, lost = lost, at = at or 0 }

  local function total()
    local sum = 0
    for _, number in ipairs(numbers) do sum = sum + spent_in[number] end
    return sum
  end

  local function wait_strict(room)
    local must_go = total() - room
    for _, number in ipairs(numbers) do
      if must_go <= 0 then break end
      must_go = must_go - spent_in[number]
      if must_go <= 0 then return max(0, origin + (number + reach) * bucket - now) end
    end
    return 0
  end

  -- The last window's count falls in proportion as time goes on in the present one, and that one's in the next.
  local function wait_smooth(room)
    local spent = spent_in[present] or 0
    local begins, falling, left = present, spent_in[present - 1] or 0, room - spent
    if left < 0 then
      begins, falling, left = present + 1, spent, room
    end
    local open_at = origin + begins * bucket
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
    if not is_smooth then return max(0, most - total()) end
    local spent, last = spent_in[present] or 0, spent_in[present - 1] or 0
    -- last * (bucket - elapsed) <= (most - spent - cost) * bucket
    local covered = ceil_div(last * (bucket - (now - origin - present * bucket)), bucket)
    return max(0, most - spent - covered)
  end

  function limit.spend(cost)
    if not spent_in[present] then
      spent_in[present] = 0
      numbers[#numbers + 1] = present
    end
    spent_in[present] = spent_in[present] + cost
  end

  -- The latest first.
  function limit.give_back(cost)
    while cost > 0 and #numbers > 0 do
      local last = numbers[#numbers]
      local taken = min(cost, spent_in[last])
      cost = cost - taken
      spent_in[last] = spent_in[last] - taken
      if spent_in[last] == 0 then
        spent_in[last] = nil
        numbers[#numbers] = nil
      end
    end
  end

  function limit.settles_at()
    local last = numbers[#numbers]
    if not last then return now end
    return origin + (last + reach) * bucket
  end

  function limit.save()
    limit.at = now
    local life = lifetime(key, limit.settles_at() - now)
    local fields = { 'at', text(now), 'origin', text(origin), 'bucket', text(bucket) }
    for _, number in ipairs(numbers) do
      fields[#fields + 1] = text(number)
      fields[#fields + 1] = text(spent_in[number])
    end
    redis.call('DEL', key)
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, life)
  end

  return limit
end

