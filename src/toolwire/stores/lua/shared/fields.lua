local function fields(hash)
    local found = {}
    for index, each in ipairs(redis.call('HGETALL', hash)) do
        if index % 2 == 1 then found[#found + 1] = each end
    end
    return found
end
