-- Decides what the first part of the text has left over. A request passes all limits of its decision or none.

local function decide(offset, keys_before)
  local _, number_of_limits, extra, first_cost, first_count, settles_at, written_at, a, b, c, d
  local policy, task, more_groups, returns
  _, _, number_of_limits, extra, first_cost, first_count, settles_at, written_at, a, b, c, d, policy, task, more_groups, returns,
    offset = from_bytes('<I4BBI4I4I4ddddddBBI2I2', argument, offset)

  local limits = {}
  for number = 1, number_of_limits do
    if number > 1 then
      settles_at, written_at, a, b, c, d, policy, offset = from_bytes('<ddddddB', argument, offset)
    end
    local counts_requests = policy >= 128
    local limit, fault = policies[counts_requests and policy - 128 or policy](
      KEYS[keys_before + number], settles_at, written_at, a, b, c, d)
    if not limit then return to_bytes('<BI4', 1, #fault) .. fault end
    limit.counts_requests = counts_requests
    limits[number] = limit
  end

  -- How many of 'count' requests of that cost fit.
  local function fitting(count, cost)
    for _, limit in ipairs(limits) do
      count = min(count, limit.counts_requests and limit.room() or floor_div(limit.room(), cost))
    end
    return count
  end

  -- The most permits that fit, taken as one request.
  local function room()
    local least = math.huge
    for _, limit in ipairs(limits) do
      local one = limit.room()
      if not limit.counts_requests or one == 0 then least = min(least, one) end
    end
    return least
  end

  -- The longest wait for 'cost', and its limit; 0 if it passes.
  local function wait(cost)
    local longest, binding = 0, 0
    for number, limit in ipairs(limits) do
      local this = limit.wait(limit.counts_requests and 1 or cost)
      if this > longest then longest, binding = this, number end
    end
    return longest, binding
  end

  local function spend(requests, cost)
    for _, limit in ipairs(limits) do limit.spend(limit.counts_requests and requests or requests * cost) end
  end

  local groups_at = offset
  offset = offset + 8 * more_groups
  if task ~= 1 then
    for _ = 1, returns do
      local cost, requests, counted_at
      cost, requests, counted_at, offset = from_bytes('<I4I4d', argument, offset)
      for _, limit in ipairs(limits) do
        local unused = limit.counts_requests and requests or cost
        if unused > 0 then limit.take_back(unused, counted_at) end
      end
    end
  end

  local passed, granted, binding, retry_in = 0, 0, 0, 0
  local spent = 0

  if task == 2 then
    for _, limit in ipairs(limits) do
      if extra > 0 and not limit.counts_requests then limit.give_back(extra) end
      if limit.at > 0 or limit.has_changed then limit.save() end
    end
  elseif task == 3 then
    for _, limit in ipairs(limits) do
      if not limit.counts_requests then
        local charge = limit.charge or limit.spend
        charge(extra)
        limit.save()
      end
    end
  else
    for group = 0, more_groups do
      local cost, count = first_cost, first_count
      if group > 0 then
        cost, count, groups_at = from_bytes('<I4I4', argument, groups_at)
      end
      local fit = fitting(count, cost)
      if fit == 0 and count > 0 and wait(cost) == 0 then
        -- The cost exceeds what is available, and passes as a debt.
        fit = 1
      end
      if fit > 0 then
        spend(fit, cost)
        spent = spent + fit * cost
        passed = passed + fit
      end
      if fit < count then
        retry_in, binding = wait(cost)
        break
      end
    end
    if binding == 0 and extra > 0 then
      granted = min(extra, room())
      if granted > 0 then
        spend(1, granted)
        spent = spent + granted
      elseif passed == 0 then
        retry_in, binding = wait(1)
      end
    end
    if task == 0 then
      for _, limit in ipairs(limits) do
        -- Clients with shorter windows may have set a shorter lifetime.
        local settles_at = limit.settles_at()
        local dies_early = limit.at > 0 and settles_at > limit.now and settles_at > limit.dies
        if spent > 0 or limit.has_changed or dies_early then limit.save() end
      end
    end
  end

  local reply = { to_bytes('<BI4I4BI8', 0, passed, granted, binding, retry_in) }
  for number, limit in ipairs(limits) do
    reply[number + 1] = to_bytes('<BI8I8I4', limit.lost and 1 or 0, limit.at, limit.settles_at(), limit.room())
  end
  return table.concat(reply)
end

for number = 1, #left_over, 3 do
  replies[left_over[number]] = decide(left_over[number + 1], left_over[number + 2])
end
return to_bytes('<I8I8', server_now, seen) .. table.concat(replies)
