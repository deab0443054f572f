local now = clock(ARGV[1])
insist()
for index = 2, #ARGV do
    local name = ARGV[index]
    local place = place_of(name)
    if redis.call('EXISTS', value_of(name)) == 0 then
        forget(name)
        unplace(name, place)
    else
        redis.call('HSETNX', sizes, name, #name + #redis.call('GET', value_of(name)))
        redis.call('ZADD', names, 0, name)
    end
    if place and redis.call('EXISTS', value_of(name)) == 1 then
        if place.process then
            redis.call('ZADD', held, 0, sized(place.process) .. name)
            if not has_lease(place.process) then redis.call('ZADD', gone, 0, place.process) end
        else
            redis.call('ZADD', ages, place.since, digits(place.number) .. name)
            if place.in_line then
                stand_in_line(name, place)
            else
                redis.call('ZADD', delays, place.since, digits(place.number) .. name)
            end
        end
        local deadline = redis.call('ZSCORE', deadlines, name)
        if deadline then redis.call('ZADD', ends, deadline, name) end
    end
end
