-- KEYS: the tokens, the time at which they were counted. ARGV: tokens a second, burst, now in seconds, cost.
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
local lifetime = math.floor(burst / rate * 2)

local tokens = tonumber(redis.call('GET', KEYS[1])) or burst
local counted_at = tonumber(redis.call('GET', KEYS[2])) or 0

local there = math.min(burst, tokens + math.max(0, now - counted_at) * rate)
local passes = there >= cost
if passes then there = there - cost end

redis.call('SETEX', KEYS[1], lifetime, there)
redis.call('SETEX', KEYS[2], lifetime, now)
return { passes and 1 or 0, there }
