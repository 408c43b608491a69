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
    local limit, fault = policies[policy](KEYS[keys_before + number], settles_at, written_at, a, b, c, d)
    if not limit then return to_bytes('<BI4', 1, #fault) .. fault end
    limits[number] = limit
  end

  local function room()
    local least = math.huge
    for _, limit in ipairs(limits) do least = min(least, limit.room()) end
    return least
  end

  -- The longest wait for 'cost', and its limit; 0 if it passes.
  local function wait(cost)
    local longest, binding = 0, 0
    for number, limit in ipairs(limits) do
      local this = limit.wait(cost)
      if this > longest then longest, binding = this, number end
    end
    return longest, binding
  end

  local function spend(cost)
    for _, limit in ipairs(limits) do limit.spend(cost) end
  end

  local groups_at = offset
  offset = offset + 8 * more_groups
  if task ~= 1 then
    for _ = 1, returns do
      local cost, counted_at
      cost, counted_at, offset = from_bytes('<I4d', argument, offset)
      for _, limit in ipairs(limits) do limit.take_back(cost, counted_at) end
    end
  end

  local passed, granted, binding, retry_in = 0, 0, 0, 0
  local spent = 0

  if task == 2 then
    for _, limit in ipairs(limits) do
      if extra > 0 then limit.give_back(extra) end
      if limit.at > 0 or limit.has_changed then limit.save() end
    end
  else
    for group = 0, more_groups do
      local cost, count = first_cost, first_count
      if group > 0 then
        cost, count, groups_at = from_bytes('<I4I4', argument, groups_at)
      end
      local fit = min(count, floor_div(room(), cost))
      if fit == 0 and count > 0 and wait(cost) == 0 then
        -- The cost exceeds what is available, and passes as a debt.
        fit = 1
      end
      if fit > 0 then
        spend(fit * cost)
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
        spend(granted)
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
return to_bytes('<I8', server_now) .. table.concat(replies)
