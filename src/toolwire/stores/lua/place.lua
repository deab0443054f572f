local now, name = clock(ARGV[1]), ARGV[2]
local alive = is_alive(name, now)
if alive == nil then alive = redis.call('EXISTS', KEYS[#KEYS]) == 1 end
return alive and shown(name, now)
