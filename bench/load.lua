-- One POST, again and again. The body is the argument; the headers come as options of wrk.

function init(args)
  wrk.method = "POST"
  wrk.body = args[1]
end

function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("%d %d %d\n", summary.requests, summary.duration, failed))
end
