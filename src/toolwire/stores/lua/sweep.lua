local now = clock(ARGV[1])
for index = 2, #ARGV do
    if is_over(ARGV[index], now) then forget(ARGV[index]) end
end
