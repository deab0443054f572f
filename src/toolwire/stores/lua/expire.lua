local now, name, ttl = clock(ARGV[1]), ARGV[2], ARGV[3]
if not live(name, now) then return 0 end
if ttl == '' then redis.call('PERSIST', value_of(name)) else redis.call('PEXPIRE', value_of(name), kept(ttl)) end
note_deadline(name, now, ttl)
return 1
