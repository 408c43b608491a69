-- Decides for one limit or several. A request passes all of them or none.
--
-- KEYS     one for each limit
-- ARGV     the task: 'ask', 'peek' or 'give_back'
--          a unique id of this call
--          the time, or 0 for the server's clock: only tests pass their own
--          extra: up to how many permits to take beyond the requests; for 'give_back', how many to return
--          start and end of the client's last outage, both 0 if there was none
--          the number of groups of requests; then for each group the cost of a request, and how many follow each other
--          then for each limit: its policy, when its state settles and when it was last written as far as the client knows,
--          and the parameters of the policy
-- returns  the time
--          how many requests passed, from the first on
--          how many extra permits were taken
--          which limit the first denied request waits for, from 1; 0 if all passed
--          how long that request has to wait, in microseconds
--          and for each limit: when its state was written, when it settles, and whether it had been lost

local index = 0
local function next_text()
  index = index + 1
  return ARGV[index]
end
local function next_number()
  return tonumber(next_text())
end

local task, id = next_text(), next_text()
local now, extra = next_number(), next_number()
local outage_from, outage_to = next_number(), next_number()
local groups = {}
for group = 1, next_number() do
  groups[group] = { cost = next_number(), count = next_number() }
end
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local limits = {}
for number, key in ipairs(KEYS) do
  local policy = next_text()
  local memory = { settles_at = next_number(), written_at = next_number(), outage_from = outage_from, outage_to = outage_to }
  local limit, fault = policies[policy](key, next_number, memory, now)
  if not limit then return redis.error_reply(fault) end
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

local passed, granted, binding, retry_in = 0, 0, 0, 0
local spent = 0

if task == 'give_back' then
  for _, limit in ipairs(limits) do
    limit.give_back(extra)
    if limit.at > 0 or limit.has_changed then limit.save(id) end
  end
else
  for _, group in ipairs(groups) do
    local fit = min(group.count, floor_div(room(), group.cost))
    if fit == 0 and wait(group.cost) == 0 then
      -- The cost exceeds what is available, and passes as a debt.
      fit = 1
    end
    if fit > 0 then
      spend(fit * group.cost)
      spent = spent + fit * group.cost
      passed = passed + fit
    end
    if fit < group.count then
      retry_in, binding = wait(group.cost)
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
  if task == 'ask' then
    for number, limit in ipairs(limits) do
      if spent > 0 or limit.has_changed then
        limit.save(id)
      else
        extend_lifetime(KEYS[number], limit.settles_at() - limit.now)
      end
    end
  end
end

local reply = { now, passed, granted, binding, retry_in }
for number, limit in ipairs(limits) do
  reply[#reply + 1] = limit.at
  reply[#reply + 1] = limit.settles_at()
  reply[#reply + 1] = limit.lost and 1 or 0
end
return reply
