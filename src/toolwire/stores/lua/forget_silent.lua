local max_streams, max_total = tonumber(ARGV[1]), tonumber(ARGV[2])
for index = 3, #ARGV do
    -- One that was appended to meanwhile is not silent any more.
    if too_much(max_streams, max_total) ~= ARGV[index] then break end
    forget(ARGV[index])
end
return {too_much(max_streams, max_total)}
