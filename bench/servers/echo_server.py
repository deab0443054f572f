"""The limit: a loop that answers a JSON line with another, on the primitives Toolwire uses, with no protocol."""

from __future__ import annotations

import os
from typing import Any

import msgspec


class Arguments(msgspec.Struct):
    a: int = 0
    b: int = 0


class Params(msgspec.Struct):
    arguments: Arguments | None = None


class Request(msgspec.Struct):
    method: str
    id: int | None = None
    params: Params | None = None


decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


def answer(request: Request) -> Any:
    if request.method == "initialize":
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    arguments = request.params.arguments if request.params and request.params.arguments else Arguments()
    total = arguments.a + arguments.b
    return {"content": [{"type": "text", "text": str(total)}], "structuredContent": {"result": total}}


def main() -> None:
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        out = []
        for line in lines:
            request = decode(line)
            if request.id is not None:
                out.append(encode({"jsonrpc": "2.0", "id": request.id, "result": answer(request)}))
        if out:
            waiting = memoryview(b"\n".join(out) + b"\n")
            while waiting:
                waiting = waiting[os.write(1, waiting) :]


if __name__ == "__main__":
    main()
