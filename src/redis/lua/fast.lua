-- Decides for one limit or several, as often as the argument says. This part decides what is frequent and simple; the rest of the
-- text decides everything else, in the same call. Both give the same answers and write the same states.
--
-- KEYS     the keys of all decisions, in their order, one for each limit
-- ARGV     one packed string: the time in microseconds, or 0 for the server's clock (only tests pass their own);
--          start and end of the client's last outage, both 0 if there was none;
--          1 if the rest of the text has to decide everything (only tests say so);
--          the number of decisions; and for each decision
--            its length in bytes
--            the policy if it is simple: it asks one limit, has one group of requests, and returns nothing. Otherwise 0
--            the task: 0 to ask, 1 to peek, 2 to give back
--            the numbers of limits, of groups and of returns
--            extra: how many permits to take beyond the requests; to give back: how many
--            for each limit its policy, when its state settles and when it was last written as far as the client knows,
--            and four numbers: the parameters of the policy, and zeros
--            for each group the cost of a request, and how many follow each other
--            for each return a cost that was counted and not used, and when it was counted
-- returns  one packed string: the server's time; and for each decision
--            0, or 1 and an error: its length and its text
--            how many requests passed, from the first on
--            how many extra permits were taken
--            which limit the first denied request waits for, from 1; 0 if all passed
--            how long that request has to wait, in microseconds
--            and for each limit: whether its state had been lost, when it was written, and when it settles
--
-- A state that is one string begins with: the number of its policy, when it was written, and when its key expires at the earliest.
-- The key lives a second longer than the state, so that most writes leave its lifetime as it is.
--
-- Times are microseconds of the server's clock. Lua numbers are doubles, exact up to 2^53. The client refuses parameters that
-- would exceed that. `%` is not exact; fmod is.

local from_bytes, to_bytes, fmod = struct.unpack, struct.pack, math.fmod

local argument = ARGV[1]
local server_now, outage_from, outage_to, is_full_only, decisions, offset = from_bytes('<I8I8I8BI2', argument)
if server_now == 0 then
  local time = redis.call('TIME')
  server_now = time[1] * 1000000 + time[2]
end

-- The first element is the server's time.
local replies = { to_bytes('<I8', server_now) }
-- The decisions that are left: for each its number, its offset in the argument, and the number of its first key, less one.
local left_over = {}
local keys_before = 0

for decision = 1, decisions do
  local size, simple, limits, extra, settles_at, written_at, a, b, c, cost, count =
    from_bytes('<I4BxBxxxxI4xI8I8I8I8I8xxxxxxxxI4I4', argument, offset)
  local reply
  if simple > 0 and is_full_only == 0 then
    local key = KEYS[keys_before + 1]
    local kept = redis.pcall('GET', key)
    -- 'there' is what the limit has, 'needed' what one request takes of it, and 'unit' what a permit takes.
    local at, dies, there, needed, unit = 0, 0, nil, cost, 1
    local born, full_at, beyond, began, bought = server_now, server_now, 0, server_now, 0
    if not kept then
      if outage_to == 0 and settles_at <= server_now then
        if simple == 1 then
          there, needed, unit = a * c, a * cost, a
        elseif simple == 2 then
          there, needed = 1, 1
        else
          there = a
        end
      end
    elseif simple == 1 then
      if #kept == 65 then
        local policy, token, permits, burst
        policy, at, dies, born, full_at, beyond, token, permits, burst = from_bytes('<BI8I8I8I8I8I8I8I8', kept)
        if policy == 1 and at >= written_at and token == a and permits == b and burst == c and at <= server_now
            and (at > outage_from or outage_to == 0) then
          local missing = (full_at - server_now) * b + beyond
          if missing < 0 then missing = 0 end
          there, needed, unit = a * c - missing, a * cost, a
        end
      end
    elseif simple == 2 then
      if #kept == 33 then
        local policy
        policy, at, dies, began, bought = from_bytes('<BI8I8i8I8', kept)
        if policy == 2 and at >= written_at and at <= server_now and (at > outage_from or outage_to == 0) then
          local open_at = bought * a
          if open_at > 4503599627370496 then open_at = 4503599627370496 end
          local rest = fmod(open_at, b)
          open_at = began + (open_at - rest) / b
          if rest > 0 then open_at = open_at + 1 end
          full_at, there, needed = open_at, 0, 1
          if open_at <= server_now then there = 1 end
        end
      end
    elseif #kept == 33 then
      local policy, spent
      policy, at, dies, began, spent = from_bytes('<BI8I8I8I8', kept)
      if policy == 3 and at >= written_at and at <= server_now then
        if spent == 0 or began + b <= server_now then
          began, spent = server_now, 0
        end
        there = a - spent
      end
    end

    -- A bucket passes a cost above its burst when it is full, as a debt.
    if there and (simple ~= 1 or cost <= c) then
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
      local settles
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
          began, bought = server_now, passed > 0 and cost or 1
          settles = bought * a
          local rest = fmod(settles, b)
          settles = server_now + (settles - rest) / b
          if rest > 0 then settles = settles + 1 end
        end
        if short > 0 then retry_in = settles - server_now end
      else
        settles = there == a and server_now or began + b
        if short > 0 then retry_in = settles - server_now end
      end

      -- A refusal writes only what lives too shortly, and that is left over.
      if has_passed or at == 0 or dies >= settles then
        if has_passed then
          at = server_now
          local lives_on = dies >= settles
          if not lives_on then dies = settles + 1000000 end
          local state
          if simple == 1 then
            state = to_bytes('<BI8I8I8I8I8I8I8I8', 1, at, dies, born, full_at, beyond, a, b, c)
          elseif simple == 2 then
            state = to_bytes('<BI8I8i8I8', 2, at, dies, began, bought)
          else
            state = to_bytes('<BI8I8I8I8', 3, at, dies, began, a - there)
          end
          if lives_on then
            redis.call('SET', key, state, 'KEEPTTL')
          else
            local lives = dies - server_now
            redis.call('SET', key, state, 'PX', (lives - fmod(lives, 1000)) / 1000 + 1)
          end
        end
        reply = to_bytes('<BI4I4BI8BI8I8', 0, passed, granted, short > 0 and 1 or 0, retry_in, 0, at, settles)
      end
    end
  end
  if not reply then
    local number = #left_over
    left_over[number + 1], left_over[number + 2], left_over[number + 3] = decision, offset, keys_before
  end
  replies[decision + 1] = reply or ''
  keys_before = keys_before + limits
  offset = offset + size
end

if #left_over == 0 then return table.concat(replies) end
