-- The twin of policy/token_bucket.rs.
--
-- A token takes token / permits microseconds. Amounts are in fractions of 1 / permits of a microsecond, as in Rust, but relative
-- to now, so that they stay small.
--
-- The key holds besides: since when the state is known, when the bucket is full again (microseconds, and fractions), and token,
-- permits and burst at that time.

-- part * to / from, rounded up, for part < from. If the product is not exact, the result may be two more.
local function scaled_up(part, to, from)
  if part * to < 9007199254740992 then return ceil_div(part * to, from) end
  return min(to, math.ceil(part / from * to) + 1)
end

policies[1] = function(key, settles_at, written_at, token, permits, burst)
  local room = token * burst

  local kept, fault = read_string('a token bucket', key, 1, 65)
  if fault then return nil, fault end
  local at, full_at, beyond, dies, born = nil, nil, 0, 0, nil
  local old_token, old_permits, old_burst = token, permits, burst
  local fills_in = ceil_div(room, permits)
  local life = fills_in
  if kept then
    local _
    _, at, dies, born, full_at, beyond, old_token, old_permits, old_burst = from_bytes('<Bdddddddd', kept)
    -- A debt counts for longer.
    life = max(life, full_at + ceil_div(beyond, old_permits) - at)
  end
  local now, lost, ahead = time_of(at, life, settles_at, written_at)

  local has_changed = false
  local full_later
  if ahead > 0 then
    full_at = full_at - ahead
  else
    full_later = after_outage(at, full_at, fills_in, now, settles_at, written_at)
  end
  if full_later then
    full_at = full_later
    has_changed = full_at > now
  end
  local missing = 0
  if full_at then missing = max(0, (full_at - now) * old_permits + beyond) end
  if token ~= old_token or permits ~= old_permits or burst ~= old_burst then
    -- New parameters: the tokens are kept with their fraction, cut to the new burst, and a debt up to one new burst.
    local whole = floor_div(missing, old_token) + burst - old_burst
    local part = scaled_up(fmod(missing, old_token), token, old_token)
    missing = min(max(0, whole * token + part), 2 * room)
    has_changed = true
  end
  if lost then
    -- A debt exceeds that, and is kept.
    missing = max(missing, room)
    has_changed = true
  end
  if lost or not born then born = now end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed, dies = dies }

  function limit.room()
    return floor_div(max(0, room - missing), token)
  end

  -- How long until 'cost' would pass; 0 if it does now.
  function limit.wait(cost)
    if cost <= burst then
      return ceil_div(max(0, missing - room + token * cost), permits)
    end
    return ceil_div(missing, permits)
  end

  function limit.spend(cost)
    missing = missing + token * cost
  end

  -- Beyond that, numbers are not exact.
  function limit.charge(cost)
    missing = min(missing + token * cost, 9007199254740992)
  end

  function limit.give_back(cost)
    missing = max(0, missing - token * cost)
  end

  -- Exact if nothing was written since. Otherwise without what has filled since: a bucket that was full meanwhile would not have
  -- kept it.
  function limit.take_back(cost, counted_at)
    if not at or born > counted_at or at < counted_at then return end
    local unused = token * cost
    if at > counted_at then unused = max(0, unused - (now - counted_at) * permits) end
    local before = missing
    missing = max(0, missing - unused)
    limit.has_changed = limit.has_changed or missing < before
  end

  -- When this state equals a fresh one.
  function limit.settles_at()
    return now + ceil_div(missing, permits)
  end

  function limit.save()
    limit.at = now
    local beyond_now = fmod(missing, permits)
    local full_then = now + (missing - beyond_now) / permits
    local rest = to_bytes('<dddddd', born, full_then, beyond_now, token, permits, burst)
    keep(key, 1, now, dies, limit.settles_at(), rest)
  end

  return limit
end
