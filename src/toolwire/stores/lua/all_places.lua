local now, found = clock(ARGV[1]), {}
for _, name in ipairs(listed()) do
    local place = shown(name, now) or {}
    found[#found + 1] = sized(name)
    for index = 1, 4 do found[#found + 1] = sized(place[index] or '') end
end
return table.concat(found)
