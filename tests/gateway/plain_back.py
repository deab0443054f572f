"""A server of 2025-11-25 over standard input and output that starts at once: it imports nothing of this library."""

import json
import os
import sys
import time

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    waits_for = request.get("params", {}).get("arguments", {}).get("file")
    if waits_for:
        # The caller knows by the file that the call has begun, and ends it by removing the file.
        open(waits_for, "w").close()
        while os.path.exists(waits_for):
            time.sleep(0.01)
    answers = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": sys.argv[1]}]},
        "ping": {},
    }
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": answers.get(request["method"])}
    if answer["result"] is None:
        del answer["result"]
        answer["error"] = {"code": -32601, "message": "Method not found"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
