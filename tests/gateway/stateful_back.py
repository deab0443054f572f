"""A server of 2025-11-25 over standard input and output that keeps tools, resources and subscriptions by session.

It imports nothing of this library. `grow` adds the tool `extra` and the resource `note://extra`, `shrink` takes them
away, `touch` announces that the resources of all subscriptions have new contents, and `die` ends the process.
"""

import json
import sys

IS_PLAIN = "plain" in sys.argv
tools = ["grow", "shrink", "touch", "die"]
resources = ["note://shared"]
subscribed: set[str] = set()


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def announce(family):
    send(method=f"notifications/{family}/list_changed")


def call(name, is_quiet):
    if name == "die":
        sys.exit()
    if name not in tools:
        return None
    if name == "grow" and "extra" not in tools:
        tools.append("extra")
        resources.append("note://extra")
    if name == "shrink" and "extra" in tools:
        tools.remove("extra")
        resources.remove("note://extra")
    if name in ("grow", "shrink") and not is_quiet:
        announce("tools")
        announce("resources")
    if name == "touch":
        for uri in sorted(subscribed):
            send(method="notifications/resources/updated", params={"uri": uri})
    text = f"{name} of {len(tools)}" + (f" for {len(subscribed)}" if name == "touch" else "")
    return {"content": [{"type": "text", "text": text}]}


def answer(method, params):
    if method == "initialize":
        changes = {"listChanged": True}
        if IS_PLAIN:
            # It has no prompt, and it announces nothing.
            capabilities = {"tools": {}, "resources": {}, "prompts": {}}
        else:
            capabilities = {"tools": changes, "resources": {"subscribe": True, **changes}}
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "stateful", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    if method == "prompts/list":
        return {"prompts": []}
    if method == "resources/list":
        return {"resources": [{"name": uri, "uri": uri} for uri in resources]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/read" and params["uri"] in resources:
        return {"contents": [{"uri": params["uri"], "text": params["uri"]}]}
    if method == "resources/subscribe":
        subscribed.add(params["uri"])
        return {}
    if method == "resources/unsubscribe":
        subscribed.discard(params["uri"])
        return {}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}).get("quiet"))
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        send(id=request["id"], error={"code": -32602, "message": "Unknown"})
    else:
        send(id=request["id"], result=result)
