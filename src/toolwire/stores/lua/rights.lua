local missing = {}
for _, each in ipairs(ARGV) do
    local words = {}
    for word in string.gmatch(each, '%S+') do words[#words + 1] = word == 'k' and KEYS[1] or word end
    local reply = redis.pcall(unpack(words))
    if type(reply) == 'table' and reply.err and is_forbidden(reply.err) then missing[#missing + 1] = words[1] end
end
return missing
