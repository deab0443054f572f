local now, longer_than, limit = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
clean(now)
local found = {}
while #found < limit do
    local page = redis.call('ZRANGEBYSCORE', ages, '-inf', now - longer_than, 'LIMIT', #found, limit - #found)
    if #page == 0 then break end
    for _, member in ipairs(page) do
        local name = is_ready(ages, member, 0)
        if name and is_alive(name, now) ~= false then
            found[#found + 1] = name
        elseif name then
            unplace(name)
        end
    end
end
return {found, doubts}
