-- Decides for one limit or several, as often as the argument says. This part decides what is frequent and simple; the rest of the
-- text decides everything else, in the same call. Both give the same answers and write the same states.
--
-- KEYS     the keys of all decisions, in their order, one for each limit
-- ARGV     one packed string: the time in microseconds, or 0 for the server's clock (only tests pass their own);
--          start and end of the client's last outage, both 0 if there was none;
--          1 if the rest of the text has to decide everything (only tests say so), 2 if there is a log, which may be long;
--          the epoch that the client knows, 0 for none;
--          the number of decisions; and for each decision
--            its length in bytes
--            the policy if it is simple: it asks one limit, has one group of requests, and returns nothing. Otherwise 0
--            the number of limits
--            extra: how many permits to take beyond the requests, as one more request; to give back or to charge: how many
--            of the first group the cost of a request, and how many follow each other
--            of the first limit when its state settles and when it was last written, as far as the client knows, four numbers
--            (the parameters of the policy, and zeros), and the policy, plus 128 if it counts each request as 1
--            the task: 0 to ask, 1 to peek, 2 to give back, 3 to charge whether or not there are as many
--            how many more groups there are, and how many returns
--            the same for each further limit, and for each further group
--            for each return a cost that was counted and not used, how many requests that were, and when it was counted
--          and the prefix of the epoch's key, if there is an epoch
-- returns  one packed string: the server's time; the epoch, 0 if it was not read; and for each decision
--            0, or 1 and an error: its length and its text
--            how many requests passed, from the first on
--            how many extra permits were taken
--            which limit the first denied request waits for, from 1; 0 if all passed
--            how long that request has to wait, in microseconds
--            and for each limit: whether its state had been lost, when it was written, when it settles, and how many requests of
--            cost 1 would pass next
--
-- A state that is one string begins with: the number of its policy, when it was written, and until when its key lives at least.
-- The key lives a second longer than the state, so that most writes leave its lifetime as it is.
--
-- Times are microseconds of the server's clock. Lua numbers are doubles, exact up to 2^53. The client refuses parameters that
-- would exceed that. `%` is not exact; fmod is.

local from_bytes, to_bytes, fmod, call = struct.unpack, struct.pack, math.fmod, redis.call

local argument = ARGV[1]
local server_now, outage_from, outage_to, mode, known_epoch, decisions, offset = from_bytes('<dddBdI2', argument)
if server_now == 0 then
  local time = call('TIME')
  server_now = time[1] * 1000000 + time[2]
end

-- Whether a missing state may have been lost, and not only have settled, which takes it a 'life' at most.
--
-- The epoch is since when the server has its states. Its key never expires, so a server without it has lost everything. It is
-- negative until a client knows another one: then it was not the first. It is read for a state that is missing, and for a client
-- that does not know it. Its key is not in KEYS, because a client may have no right to read or to write it. Such a client is told 1.
local epoch, seen = nil, 0
local function may_be_lost(life)
  if not epoch then
    local key = ARGV[2] and ARGV[2] .. ':epoch'
    local kept = key and redis.pcall('GET', key)
    local read = tonumber(kept)
    epoch = read or 0
    if kept == false then epoch = -server_now end
    if epoch < 0 and known_epoch > 1 and known_epoch ~= -epoch then epoch = -epoch end
    if epoch ~= 0 and epoch ~= read and redis.pcall('SET', key, string.format('%d', epoch)).err then epoch = 0 end
    seen = epoch < 0 and -epoch or epoch
    if key and epoch == 0 then seen = 1 end
  end
  return epoch > 0 and server_now < epoch + life and server_now > epoch - life
end
if known_epoch == 0 and ARGV[2] then may_be_lost(0) end

-- A log is a string: LOG_HEAD bytes that describe it, and 16 bytes for each entry. The first entries may be 'dead': they no longer
-- count. All else is in sliding_log.lua.
local LOG_HEAD, FEW_ENTRIES = 41, 16

-- The time of an entry, from 0, and the sum of the permits up to it.
local entry_of_log
-- The first entry between two numbers that is later than a time, and whose sum is at least another; the second number if none is.
local find_in_log
-- Writes a log whose latest entry is that of 'at'. 'lives' is its new lifetime in milliseconds, or nil. 'kept' is how it begins, as
-- far as that was read. Where few entries count, or most are dead, it is written anew, without the dead ones.
local write_log

-- Calls without a log are spared the functions.
if mode > 0 then
  function entry_of_log(key, number)
    local from = LOG_HEAD + 16 * number
    return from_bytes('<dd', call('GETRANGE', key, from, from + 15))
  end

  function find_in_log(key, first, last, time, least)
    while first < last do
      local middle = (first + last - fmod(first + last, 2)) / 2
      local its_time, its_sum = entry_of_log(key, middle)
      if its_time > time and its_sum >= least then last = middle else first = middle + 1 end
    end
    return first
  end

  function write_log(key, kept, at, dies, lives, before, sum, dead, entries)
    local latest = entries > 0 and to_bytes('<dd', at, sum) or ''
    local live = entries - dead
    if live > FEW_ENTRIES and live > dead then
      call('SETRANGE', key, '0', to_bytes('<BddddI4I4', 4, at, dies, before, sum, dead, entries))
      call('SETRANGE', key, LOG_HEAD + 16 * (entries - 1), latest)
      if lives then call('PEXPIRE', key, lives) end
      return
    end
    local from, to = LOG_HEAD + 16 * dead, LOG_HEAD + 16 * (entries - 1)
    local rest = ''
    if from < to then rest = #kept >= to and kept:sub(from + 1, to) or call('GETRANGE', key, from, to - 1) end
    local log = to_bytes('<BddddI4I4', 4, at, dies, before, sum, 0, live) .. rest .. latest
    if lives then call('SET', key, log, 'PX', lives) else call('SET', key, log, 'KEEPTTL') end
  end
end

-- Of several keys all states are read at once, which for a key of another type reads nothing. What was read is not used for a key
-- that has been written since.
local states, written, replies
if decisions > 1 then
  replies = {}
  if #KEYS <= 1000 and mode ~= 2 then
    states, written = call('MGET', unpack(KEYS)), {}
  end
end
-- The decisions that are left: for each its number, its offset in the argument, and the number of its first key, less one.
local left_over
local keys_before = 0

for decision = 1, decisions do
  local size, simple, limits, extra, cost, count, settles_at, written_at, a, b, c, d =
    from_bytes('<I4BBI4I4I4dddddd', argument, offset)
  -- What the limit has, what one request takes of it, and what a permit takes.
  local there, needed, unit
  local key, kept, at, dies, born, full_at, beyond, bought
  -- Of a counter when the present bucket began, where the first entry that counts is, and for a smooth one the sum of the last
  -- window, and what of it still counts.
  local begins, first, falling, covered
  -- Of a log the sums before the first entry that counts and of all entries, and the numbers of entries.
  local before, sum, dead, entries
  if mode ~= 1 and simple > 0 then
    key = KEYS[keys_before + 1]
    if simple == 4 then
      kept = redis.pcall('GETRANGE', key, '0', '296')
      if kept == '' then kept = redis.pcall('GET', key) end
    else
      kept = states and not written[key] and states[keys_before + 1] or redis.pcall('GET', key)
    end

    if not kept then
      local life = simple == 1 and a * c / b or simple == 2 and a / b or simple == 5 and b * c or b
      if settles_at <= server_now and outage_to == 0 and not may_be_lost(life) then
        at, dies, born, full_at, beyond, bought = 0, 0, server_now, server_now, 0, 0
        if simple == 1 then
          there, needed, unit = a * c, a * cost, a
        elseif simple == 2 then
          there, needed, unit = 1, 1, 1
        else
          there, needed, unit = a, cost, 1
          kept, begins, first, falling, covered = '', server_now, 34, 0, 0
          before, sum, dead, entries = 0, 0, 0, 0
        end
      end
    elseif simple == 1 then
      if #kept == 65 then
        local policy, token, permits, burst
        policy, at, dies, born, full_at, beyond, token, permits, burst = from_bytes('<Bdddddddd', kept)
        if at >= written_at and at <= server_now and token == a and permits == b and burst == c and policy == 1
            and (outage_to == 0 or at > outage_from) then
          local missing = (full_at - server_now) * b + beyond
          if missing < 0 then missing = 0 end
          there, needed, unit = a * c - missing, a * cost, a
        end
      end
    elseif simple == 4 then
      if #kept >= LOG_HEAD then
        local policy
        policy, at, dies, before, sum, dead, entries = from_bytes('<BddddI4I4', kept)
        if at >= written_at and at <= server_now and policy == 4 then
          local some, position, gone = kept, LOG_HEAD + 16 * dead + 1, server_now - b
          local last = entries > dead + 4 and dead + 4 or entries
          if #kept < LOG_HEAD + 16 * last then
            some, position = call('GETRANGE', key, position - 1, position + 62), 1
          end
          while dead < entries and position < #some do
            local time, its_sum = from_bytes('<dd', some, position)
            if time > gone then break end
            before, dead, position = its_sum, dead + 1, position + 16
          end
          if dead < entries and position > #some then
            dead = find_in_log(key, dead, entries, gone, 0)
            before = select(2, entry_of_log(key, dead - 1))
          end
          if dead == entries then before, sum, dead, entries = 0, 0, 0, 0 end
          there, needed, unit = a - sum + before, cost, 1
        end
      end
    elseif simple == 5 then
      if #kept >= 33 and fmod(#kept - 33, 24) == 0 then
        local policy
        policy, at, dies, born, bought = from_bytes('<Bdddd', kept)
        if at >= written_at and at <= server_now and policy == 5 then
          local elapsed = fmod(server_now - born, b)
          begins, first, falling, covered = server_now - elapsed, 34, 0, 0
          while first < #kept do
            local _, last, spent = from_bytes('<ddd', kept, first)
            if last >= begins - (c - 1) * b then break end
            bought, first = bought - spent, first + 24
          end
          if first > #kept then born, begins, bought = server_now, server_now, 0 end
          if d == 1 then
            for position = first, #kept, 24 do
              local _, last, spent = from_bytes('<ddd', kept, position)
              if last < begins then falling = falling + spent end
            end
            covered = falling * (b - elapsed)
            local rest = fmod(covered, b)
            covered = (covered - rest) / b
            if rest > 0 then covered = covered + 1 end
          end
          there, needed, unit = a - bought + falling - covered, cost, 1
        end
      end
    elseif #kept == 33 then
      local policy
      policy, at, dies, born, bought = from_bytes('<Bdddd', kept)
      if at >= written_at and at <= server_now and policy == simple then
        if simple == 3 then
          if bought == 0 or born + b <= server_now then born, bought = server_now, 0 end
          there, needed, unit = a - bought, cost, 1
        elseif outage_to == 0 or at > outage_from then
          full_at = bought * a
          if full_at > 4503599627370496 then full_at = 4503599627370496 end
          beyond = fmod(full_at, b)
          full_at = born + (full_at - beyond) / b
          if beyond > 0 then full_at = full_at + 1 end
          there, needed, unit = full_at <= server_now and 1 or 0, 1, 1
        end
      end
    end
  end

  local reply
  -- A full bucket passes a cost above its burst, as a debt.
  if there and (simple == 2 or cost <= (simple == 1 and c or a)) then
    local passed, granted, retry_in, short = count, 0, 0, 0
    if count * needed > there then
      passed = there < needed and 0 or (there - fmod(there, needed)) / needed
    end
    there = there - passed * needed
    if passed < count then
      short = needed - there
    elseif extra > 0 then
      granted = extra
      if granted * unit > there then
        granted = there < unit and 0 or (there - fmod(there, unit)) / unit
      end
      there = there - granted * unit
      if passed + granted == 0 then short = unit - there end
    end
    local has_passed = passed + granted > 0
    local room = there < unit and 0 or (there - fmod(there, unit)) / unit

    local settles, counted
    if simple == 1 then
      if has_passed then
        local missing = a * c - there
        beyond = fmod(missing, b)
        full_at = server_now + (missing - beyond) / b
      end
      settles = full_at
      if beyond > 0 then settles = settles + 1 end
      if settles < server_now then settles = server_now end
      if short > 0 then
        local rest = fmod(short, b)
        retry_in = (short - rest) / b
        if rest > 0 then retry_in = retry_in + 1 end
      end
    elseif simple == 2 then
      settles = full_at
      if has_passed then
        born, bought = server_now, passed > 0 and cost or 1
        settles = bought * a
        local rest = fmod(settles, b)
        settles = server_now + (settles - rest) / b
        if rest > 0 then settles = settles + 1 end
      end
      if short > 0 then retry_in = settles - server_now end
    elseif simple == 3 then
      bought = a - there
      settles = bought == 0 and server_now or born + b
      if short > 0 then retry_in = settles - server_now end
    elseif simple == 4 then
      local left = sum - before
      settles = has_passed and server_now + b or left > 0 and at + b or server_now
      if short > left then
        retry_in = b
      elseif short > 0 then
        retry_in = entry_of_log(key, find_in_log(key, dead, entries, 0, before + short)) + b - server_now
      end
      -- The latest entry is of 'at'.
      if has_passed then
        sum = sum + passed * cost + granted
        if entries == 0 or at < server_now then entries = entries + 1 end
      end
    else
      local last, latest_first, spent
      if first < #kept then latest_first, last, spent = from_bytes('<ddd', kept, #kept - 23) end
      if short > 0 and d == 1 then
        local opens, left = begins, covered - short
        if left < 0 then opens, falling, left = begins + b, a - there - covered, a - there - short end
        if falling > left then opens = opens + b - (left * b - fmod(left * b, falling)) / falling end
        retry_in = opens - server_now
      elseif short > 0 then
        local must_go, goes = short, begins
        for position = first, #kept, 24 do
          local _, its_last, its_spent = from_bytes('<ddd', kept, position)
          must_go = must_go - its_spent
          if must_go <= 0 then
            goes = its_last - fmod(its_last - born, b)
            break
          end
        end
        retry_in = goes + c * b - server_now
      end
      if has_passed then
        -- The latest entry counts it, if that began in this bucket.
        local upto, taken = #kept - 24, passed * cost + granted
        if not last or latest_first < begins then latest_first, spent, upto = server_now, 0, #kept end
        last, bought = server_now, bought + taken
        counted = kept:sub(first, upto) .. to_bytes('<ddd', latest_first, last, spent + taken)
      end
      settles = last and last - fmod(last - born, b) + c * b or server_now
    end

    -- A refusal is left over if its key does not live long enough.
    if has_passed then
      at = server_now
      local lives_on = dies >= settles
      if not lives_on then dies = settles + 1000000 end
      local lives = not lives_on and (dies - server_now - fmod(dies - server_now, 1000)) / 1000 + 1
      if simple == 4 then
        write_log(key, kept, at, dies, lives, before, sum, dead, entries)
      else
        local state
        if simple == 1 then
          state = to_bytes('<Bdddddddd', 1, at, dies, born, full_at, beyond, a, b, c)
        else
          state = to_bytes('<Bdddd', simple, at, dies, born, bought)
          if counted then state = state .. counted end
        end
        if lives then call('SET', key, state, 'PX', lives) else call('SET', key, state, 'KEEPTTL') end
      end
    end
    if at == 0 or dies >= settles then
      local binding = short > 0 and 1 or 0
      if decisions == 1 then
        return to_bytes('<I8I8BI4I4BI8BI8I8I4', server_now, seen, 0, passed, granted, binding, retry_in, 0, at, settles, room)
      end
      reply = to_bytes('<BI4I4BI8BI8I8I4', 0, passed, granted, binding, retry_in, 0, at, settles, room)
      if written then written[key] = true end
    end
  end
  if not reply then
    left_over, replies = left_over or {}, replies or {}
    local number = #left_over
    left_over[number + 1], left_over[number + 2], left_over[number + 3] = decision, offset, keys_before
    reply = ''
  end
  replies[decision] = reply
  keys_before = keys_before + limits
  offset = offset + size
end

if not left_over then return to_bytes('<I8I8', server_now, seen) .. table.concat(replies) end
