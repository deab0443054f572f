local token, cursor = '\255?' .. ARGV[1], ARGV[2]
if cursor == '' then
    if is_marked(all_names) + is_marked(all_sizes) > 0 then return {'0', 1} end
    insist()
    -- Left in the key, it says at the end that no name was lost meanwhile.
    redis.call('ZADD', all_names, 0, token)
    cursor = '0'
end
local start = prefix .. ':kv:'
local pattern = string.gsub(start, '[%*%?%[%]\\]', '\\%0') .. '*'
local found = redis.pcall('SCAN', cursor, 'MATCH', pattern, 'COUNT', MOST_SCANNED, 'TYPE', 'string')
if found.err then return is_forbidden(found.err) and {'0', 0} or redis.error_reply(found.err) end
insist()
for _, key in ipairs(found[2]) do redis.call('ZADD', all_names, 0, string.sub(key, #start + 1)) end
return {found[1], 1}
