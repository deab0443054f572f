-- Calls of several legacy sessions in turns, each with an id of its own. The arguments: a body that has ID where the id
-- stands, and the ids of the sessions. The headers come as options of wrk.

local body, sessions, number = "", {}, 0

function init(args)
  wrk.method = "POST"
  body = args[1]
  for index = 2, #args do
    sessions[#sessions + 1] = args[index]
  end
end

function request()
  number = number + 1
  wrk.headers["mcp-session-id"] = sessions[number % #sessions + 1]
  return wrk.format(nil, nil, nil, (body:gsub("ID", number)))
end

function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("%d %d %d\n", summary.requests, summary.duration, failed))
end
