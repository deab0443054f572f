-- The names and the sizes of values have a mark as long as they are those of all values: a key that was lost begins
-- again without it. The names of values are text, and no text begins with 0xff.
local all_names, all_sizes, mark = prefix .. ':kv-names', prefix .. ':kv-sizes', '\255!'
local function is_marked(key)
    if key == all_names then return redis.call('ZSCORE', key, mark) and 1 or 0 end
    return redis.call('HEXISTS', key, mark)
end
