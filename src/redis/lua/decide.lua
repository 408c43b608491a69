-- Asks one limit or several: all or none.
--
-- KEYS     one for each limit
-- ARGV     what to do: 'ask', 'peek', 'give_back'
--          an id that no other call has
--          now, or 0 for the server's time: only tests bring their own
--          ahead: as many permits as there are beyond what is asked for, but no more than these; of 'give_back', how many
--          since when and until when this client could not reach the server, both 0 if that is over
--          how many groups of requests there are; then of each group the cost of one, and how many there are in a row
--          then for each limit: its policy, until when it cannot have settled, when it was last written as far as is known,
--          and the policy's parameters
-- returns  the time
--          how many requests passed, in their order, before the first that did not
--          how many permits ahead
--          which limit binds the first that did not pass, from 1; 0 if all passed
--          how long that one has to wait, in microseconds
--          and for each limit: when it was written, until when it cannot have settled, whether it had been lost

local place = 0
local function word()
  place = place + 1
  return ARGV[place]
end
local function argument()
  return tonumber(word())
end

local task, id = word(), word()
local now, ahead = argument(), argument()
local blind_from, blind_to = argument(), argument()
local groups = {}
for group = 1, argument() do
  groups[group] = { cost = argument(), count = argument() }
end
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local limits = {}
for number, key in ipairs(KEYS) do
  local policy = word()
  local memory = { until_then = argument(), known_at = argument(), blind_from = blind_from, blind_to = blind_to }
  local limit, fault = policies[policy](key, argument, memory, now)
  if not limit then return redis.error_reply(fault) end
  limits[number] = limit
end

local function room()
  local least = math.huge
  for _, limit in ipairs(limits) do least = min(least, limit.room()) end
  return least
end

-- Which of them 'cost' has to wait for longest, and how long; 0 if it passes.
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
    limit.give_back(ahead)
    if limit.at > 0 or limit.has_changed then limit.save(id) end
  end
else
  for _, group in ipairs(groups) do
    local fit = min(group.count, floor_div(room(), group.cost))
    if fit == 0 and wait(group.cost) == 0 then
      -- Dearer than there is room for, and yet it passes: it owes.
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
  if binding == 0 and ahead > 0 then
    granted = min(ahead, room())
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
        outlive(KEYS[number], limit.settles_at() - limit.now)
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
