-- The twin of policy/token_bucket.rs.
--
-- A token takes token / permits microseconds. Amounts are in fractions of 1 / permits of a microsecond, as in Rust, but relative
-- to now, so that they stay small.
--
-- The key holds: when it was written, when the bucket is full again (microseconds, and fractions), and token, permits and burst
-- at that time.

-- part * to / from, rounded up, for part < from. If the product is not exact, the result may be two more.
local function scaled_up(part, to, from)
  if part * to < 9007199254740992 then return ceil_div(part * to, from) end
  return min(to, math.ceil(part / from * to) + 1)
end

policies.token_bucket = function(key, next_number, memory, server_now)
  local token, permits = next_number(), next_number()
  local burst = next_number()
  local room = token * burst

  local kept, fault = read('a token bucket', 'GET', key)
  if fault then return nil, fault end
  local at, full_at, beyond = nil, nil, 0
  local old_token, old_permits, old_burst = token, permits, burst
  if kept then
    local fields = { string.match(kept, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
    if #fields == 0 then return nil, wrong_type(key, 'a token bucket') end
    at, full_at, beyond = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3])
    old_token, old_permits, old_burst = tonumber(fields[4]), tonumber(fields[5]), tonumber(fields[6])
  end
  local now = max(server_now, at or 0)

  local has_changed = false
  local full_later = after_outage(memory, at, full_at, ceil_div(room, permits), now)
  if full_later then
    full_at = full_later
    has_changed = full_at > now
  end
  local missing = 0
  if full_at then missing = max(0, (full_at - now) * old_permits + beyond) end
  if token ~= old_token or permits ~= old_permits or burst ~= old_burst then
    -- New parameters: the tokens are kept with their fraction, cut to the new burst, and a debt up to one new burst.
    local whole = floor_div(missing, old_token) + burst - old_burst
    local part = scaled_up(math.fmod(missing, old_token), token, old_token)
    missing = min(max(0, whole * token + part), 2 * room)
    has_changed = true
  end
  local lost = is_lost(memory, at, now)
  if lost then
    -- A debt exceeds that, and is kept.
    missing = max(missing, room)
    has_changed = true
  end

  local limit = { now = now, lost = lost, at = at or 0, has_changed = has_changed }

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

  function limit.give_back(cost)
    missing = max(0, missing - token * cost)
  end

  -- When this state equals a fresh one.
  function limit.settles_at()
    return now + ceil_div(missing, permits)
  end

  function limit.save()
    limit.at = now
    local beyond_now = math.fmod(missing, permits)
    local full_then = now + (missing - beyond_now) / permits
    local state = string.format('%d %d %d %d %d %d', now, full_then, beyond_now, token, permits, burst)
    keep(key, state, limit.settles_at() - now)
  end

  return limit
end
