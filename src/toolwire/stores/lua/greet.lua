local written = redis.pcall('SET', KEYS[1], '1', 'PX', 60000)
local text = written.err
if text and not string.find(text, 'OOM', 1, true) and not is_forbidden(text) then return redis.error_reply(text) end
return 1
