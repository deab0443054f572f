local now, name = clock(ARGV[1]), ARGV[2]
return is_alive(name, now) and shown(name, now)
