return forget(ARGV[1]) and 1 or 0
