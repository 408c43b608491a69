-- A token bucket of which classes have a part of their own. The judge in the tests is a model that counts each microsecond.
--
-- Each class has a bucket: its weight in percent of the rate, and of the burst without the pool. What flows into a full bucket goes
-- on into the pool, as far as that has room. A request takes from the bucket of its class and the rest from the pool, or nothing. The
-- first class are all requests without a part of their own; its weight is what the others leave.
--
-- A microsecond brings 'permits' times its weight into each bucket, and a token is 100 times 'token': all are whole numbers.
--
-- The key holds besides: since when the state is known, token, permits, burst and weights at that time, and what is missing of
-- each bucket and of the pool.

local MOST_CLASSES = 8

-- How many of the tokens are in the pool.
local function pool_of(burst)
  return max(1, floor_div(burst, 5))
end

local function weights_of(packed)
  local weights = { 100 }
  for class = 2, MOST_CLASSES do
    weights[class] = fmod(packed, 128)
    weights[1] = weights[1] - weights[class]
    packed = floor_div(packed, 128)
  end
  return weights
end

policies[6] = function(key, settles_at, written_at, new_token, new_permits, burst_and_class, new_packed)
  local class = fmod(burst_and_class, MOST_CLASSES) + 1
  local new_burst = floor_div(burst_and_class, MOST_CLASSES)

  local kept, fault = read_string('a rate with reserves', key, 6, 129)
  if fault then return nil, fault end
  local at, born, dies = nil, nil, 0
  local token, permits, burst, packed = new_token, new_permits, new_burst, new_packed
  -- What is missing of each bucket, and of the pool.
  local missing, from_pool = { 0, 0, 0, 0, 0, 0, 0, 0 }, 0
  if kept then
    local _
    _, at, dies, born, token, permits, burst, packed, from_pool = from_bytes('<Bdddddddd', kept)
    missing = { from_bytes('<dddddddd', kept, 66) }
  end
  local weights = weights_of(packed)

  -- What is missing of the pool after so many microseconds. Where the product is not exact, the pool is full.
  local function pool_misses(elapsed)
    local misses = from_pool
    for number, weight in ipairs(weights) do
      misses = misses - max(0, elapsed * permits * weight - missing[number])
    end
    return max(0, misses)
  end

  -- After how many microseconds everything is full.
  local function fills_in()
    local buckets = 0
    for number, weight in ipairs(weights) do
      if missing[number] > 0 then buckets = max(buckets, ceil_div(missing[number], permits * weight)) end
    end
    return buckets + ceil_div(pool_misses(buckets), permits * 100)
  end

  local function flow(elapsed)
    from_pool = pool_misses(elapsed)
    for number, weight in ipairs(weights) do
      missing[number] = max(0, missing[number] - elapsed * permits * weight)
    end
  end

  local life = ceil_div(new_token * new_burst, new_permits)
  local full_at = at and at + fills_in()
  local now, lost, ahead = time_of(at, at and max(life, full_at - at) or life, settles_at, written_at)
  local full_later
  if ahead == 0 then full_later = after_outage(at, full_at, life, now, settles_at, written_at) end
  local has_changed = full_later and full_later > now
  if at then
    -- It did not fill during the outage.
    flow(max(0, now - at - (full_later and full_later - full_at or 0)))
  elseif has_changed then
    -- No more can be missing than flows in until then.
    for number, weight in ipairs(weights) do
      missing[number] = min(token * (burst - pool_of(burst)) * weight, (full_later - now) * permits * weight)
    end
    from_pool = min(100 * token * pool_of(burst), (full_later - now) * permits * 100)
  end

  local unit = 100 * new_token
  local pool = unit * pool_of(new_burst)
  local depth = new_token * (new_burst - pool_of(new_burst))
  if token ~= new_token or permits ~= new_permits or burst ~= new_burst or packed ~= new_packed then
    -- New parameters: what is left is kept with its fraction, cut to what is full now, and a debt up to a bucket.
    local old_weights, old_depth = weights, burst - pool_of(burst)
    local function kept_of(amount, more)
      local whole, part = floor_div(amount, token), fmod(amount, token)
      return max(0, whole * new_token + scaled_up(part, new_token, token) + new_token * more)
    end
    weights = weights_of(new_packed)
    for number, weight in ipairs(weights) do
      local more = (new_burst - pool_of(new_burst)) * weight - old_depth * old_weights[number]
      missing[number] = min(kept_of(missing[number], more), 2 * depth * weight)
    end
    from_pool = min(kept_of(from_pool, 100 * (pool_of(new_burst) - pool_of(burst))), pool)
    token, permits, burst, packed = new_token, new_permits, new_burst, new_packed
    has_changed = true
  end
  if lost then
    for number, weight in ipairs(weights) do missing[number] = max(missing[number], depth * weight) end
    from_pool = pool
    has_changed = true
  end
  if lost or not born then born = now end

  local weight = weights[class]
  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed, dies = dies }

  -- What the class can take after so many microseconds; less than nothing in debt.
  local function there(elapsed)
    local bucket = depth * weight - max(0, missing[class] - elapsed * permits * weight)
    return bucket + pool - pool_misses(elapsed)
  end

  function limit.room()
    return floor_div(max(0, there(0)), unit)
  end

  -- How long until 'cost' would pass; 0 if it does now. It passes when all is full, and then not earlier.
  function limit.wait(cost)
    local needed = unit * cost
    if there(0) >= needed then return 0 end
    local refused, passes = 0, fills_in()
    while passes - refused > 1 do
      local middle = floor_div(refused + passes, 2)
      if there(middle) >= needed then passes = middle else refused = middle end
    end
    return passes
  end

  -- A charge takes what is not there as a debt of the class. Beyond 2^52, numbers would not be exact.
  function limit.spend(cost)
    local taken = unit * cost
    local borrowed = max(0, taken - max(0, depth * weight - missing[class]))
    borrowed = min(borrowed, pool - from_pool)
    from_pool = from_pool + borrowed
    missing[class] = min(missing[class] + taken - borrowed, 4503599627370496)
  end

  -- Into the bucket of the class. What that has no room for flows on into the pool.
  local function give_back(amount)
    missing[class] = missing[class] - amount
    flow(0)
  end

  function limit.give_back(cost)
    give_back(unit * cost)
  end

  -- Exact if nothing was written since. Otherwise without what has flowed in since, as in token_bucket.lua.
  function limit.take_back(cost, counted_at)
    if not at or born > counted_at or at < counted_at then return end
    local unused = unit * cost
    if at > counted_at then unused = max(0, unused - (now - counted_at) * permits * 100) end
    limit.has_changed = limit.has_changed or fills_in() > 0 and unused > 0
    give_back(unused)
  end

  -- When this state equals a fresh one.
  function limit.settles_at()
    return now + fills_in()
  end

  function limit.save()
    limit.at = now
    local rest = to_bytes('<dddddd', born, token, permits, burst, packed, from_pool)
    keep(key, 6, now, dies, limit.settles_at(), rest .. to_bytes('<dddddddd', unpack(missing)))
  end

  return limit
end
