local now, process, after, limit = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
clean(now)
local found = {redis.call('ZLEXCOUNT', held, '[' .. sized(process), '(' .. sized(process) .. '\255')}
if after == '' then after = nil end
while #found <= limit do
    local page = held_by(process, after, limit + 1 - #found)
    if #page == 0 then break end
    after = page[#page]
    for _, name in ipairs(page) do
        if is_alive(name, now) == false then
            unplace(name)
        elseif is_held(process, name) then
            found[#found + 1] = name
        end
    end
end
return {found, doubts}
