-- Names of values, from the arguments of LIST.
local function listed()
    local names, deadlines = prefix .. ':kv-names', prefix .. ':kv-deadlines'
    local now, first, after, limit = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
    -- No byte of UTF-8 is 0xff, so this comes after every name that begins like that.
    local from, to = '[' .. first, '(' .. first .. '\255'
    if ARGV[5] == '1' then from = '(' .. after end
    local found = {}
    while #found < limit do
        local page = redis.call('ZRANGEBYLEX', names, from, to, 'LIMIT', 0, 200)
        if #page == 0 then break end
        local ends = redis.call('ZMSCORE', deadlines, unpack(page))
        for index, name in ipairs(page) do
            if #found < limit and not (ends[index] and tonumber(ends[index]) <= now) then found[#found + 1] = name end
        end
        from = '(' .. page[#page]
    end
    return found
end
