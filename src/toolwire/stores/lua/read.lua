local now, found = clock(ARGV[1]), {}
for index = 2, #ARGV do
    found[index - 1] = not is_over(ARGV[index], now) and redis.call('GET', value_of(ARGV[index]))
end
return found
