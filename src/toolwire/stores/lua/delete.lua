local now, name = clock(ARGV[1]), ARGV[2]
if not live(name, now) then return 0 end
forget(name)
return 1
