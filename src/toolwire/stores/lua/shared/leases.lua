local leases, renewals = prefix .. ':queue-leases', prefix .. ':queue-renewals'
local gone, buried = prefix .. ':queue-gone', prefix .. ':queue-buried'
local processes = prefix .. ':queue-processes'
local function has_lease(process)
    return redis.call('ZSCORE', leases, process) or redis.call('HEXISTS', renewals, process) == 1
end
-- A full Redis refuses only the first change of a script: after this one it refuses none.
local function insist() redis.call('ZREM', leases, '') end
