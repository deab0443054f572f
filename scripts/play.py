"""Plays a short session with examples/hello.py over stdio and prints every message, both ways.

The client here is the bare protocol: JSON lines of revision 2026-07-28, written with nothing but the standard library,
to show what travels. A program would use `toolwire.Client`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 20.0  # seconds for the whole session
LINE = 150

# 2026-07-28 basic/index: there is no handshake; every request says which revision it speaks and what the client can do.
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "play", "version": "1"},
}

SESSION: list[tuple[str, str, dict[str, Any]]] = [
    ("What can you do?", "server/discover", {}),
    ("Which tools are there?", "tools/list", {}),
    ("Add two numbers.", "tools/call", {"name": "add", "arguments": {"a": 2, "b": 40}}),
    ("Add something that is no number.", "tools/call", {"name": "add", "arguments": {"a": 2, "b": "forty"}}),
    ("Greet somebody.", "tools/call", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("Read a resource from a template.", "resources/read", {"uri": "hello://Ada"}),
    ("Fill in a prompt.", "prompts/get", {"name": "welcome", "arguments": {"name": "Ada"}}),
]


def show(arrow: str, message: dict[str, Any]) -> None:
    """One line where it fits, indented where it does not."""
    text = json.dumps(message, ensure_ascii=False)
    if len(text) > LINE:
        text = json.dumps(message, ensure_ascii=False, indent=2)
    for line in text.splitlines():
        print(f"  {arrow} {line}")


def ask(to: IO[str], answers: IO[str], message: dict[str, Any]) -> dict[str, Any]:
    """Sends one request and returns its response; notifications that come before it are printed."""
    show("→", message | {"params": message["params"] | {"_meta": "…"}})
    to.write(json.dumps(message) + "\n")
    to.flush()
    for line in answers:
        answer: dict[str, Any] = json.loads(line)
        show("←", answer)
        if answer.get("id") == message["id"]:
            return answer
    raise SystemExit("the server closed its output before it answered")


def main() -> None:
    command = [sys.executable, str(ROOT / "examples" / "hello.py")]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert server.stdin is not None and server.stdout is not None
    watchdog = threading.Timer(PATIENCE, server.kill)
    watchdog.start()
    try:
        print("The `_meta` of every request, shown as … below:")
        show("→", META)
        for id, (purpose, method, params) in enumerate(SESSION, start=1):
            print(f"\n{purpose}")
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
            answer = ask(server.stdin, server.stdout, message)
            if "result" not in answer:
                raise SystemExit(f"{method} failed: {answer['error']['message']}")
        server.stdin.close()  # the end of input tells a stdio server to leave
        status = server.wait()
        print(f"\nThe server left with status {status}.")
        if status != 0:
            raise SystemExit(1)
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
