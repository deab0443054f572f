local now, limit = clock(ARGV[1]), tonumber(ARGV[2])
clean(now)
local found = {}
for _, process in ipairs(redis.call('ZRANGE', gone, 0, -1)) do
    local after
    while #found < 2 * limit do
        local page = held_by(process, after, limit - #found / 2)
        if #page == 0 then
            if not after then redis.call('ZREM', gone, process) end
            break
        end
        after = page[#page]
        for _, name in ipairs(page) do
            if is_alive(name, now) == false then
                unplace(name)
            elseif is_held(process, name) then
                found[#found + 1] = name
                found[#found + 1] = process
            end
        end
    end
end
return {found, doubts}
