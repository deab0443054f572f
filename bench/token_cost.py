"""What a signed token costs: microseconds that it adds to a plain HTTP call, and verifying it for the first time.

The application is called in this process, without a socket, with and without auth in turns. A token that is seen for
the first time is compared with joserfc's own `jwt.decode` and the same checks of its claims. Printed as JSON.

Usage: token_cost.py SECONDS
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from toolwire import Server
from toolwire.auth import JWT

ISSUER, AUDIENCE = "https://login.example.org", "https://api.example.org/mcp"
SLICE = 100
WARM_UP = 3
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 1}, "_meta": META},
    }
).encode()
HEADERS = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "add",
}


async def add(a: int, b: int) -> int:
    return a + b


class Issuer:
    """Signs tokens, each different from the others."""

    def __init__(self) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "1"}, private=True)
        self.keys = KeySet([self._key]).as_dict(private=False)
        self.public = RSAKey.import_key(self.keys["keys"][0])
        self._count = 0

    def token(self) -> str:
        self._count += 1
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "scope": "read write", "jti": str(self._count)}
        header = {"alg": "RS256", "kid": "1", "typ": "at+jwt"}
        return str(jwt.encode(header, {**claims, "exp": int(time.time()) + 3600}, self._key))

    def verifier(self) -> JWT:
        return JWT(ISSUER, audience=AUDIENCE, keys=self.keys)


async def call(app: Any, headers: list[tuple[bytes, bytes]]) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers}
    await app({**scope, "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1)}, receive, send)
    assert sent[0]["status"] == 200, sent


async def added_by_a_token(issuer: Issuer, seconds: float) -> float:
    """Microseconds that a token seen before adds to a call."""
    plain = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    known = [*plain, (b"authorization", f"Bearer {issuer.token()}".encode())]
    # Both send the token, so that what differs is the looking at it.
    apps = [
        (Server("bench", tools=add).http_app(), known),
        (Server("bench", tools=add, auth=issuer.verifier()).http_app(), known),
    ]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end or len(times[0]) <= WARM_UP:
        for (app, headers), taken in zip(apps, times, strict=True):
            started = time.perf_counter()
            for _ in range(SLICE):
                await call(app, headers)
            taken.append((time.perf_counter() - started) / SLICE * 1e6)
    for app, _ in apps:
        await app.stop()
    without, with_token = (statistics.median(each[WARM_UP:]) for each in times)
    return with_token - without


def theirs(issuer: Issuer) -> Callable[[str], None]:
    registry = jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": ISSUER}, aud={"essential": True, "value": AUDIENCE}, exp={"essential": True}
    )

    def verify(token: str) -> None:
        registry.validate(jwt.decode(token, issuer.public, algorithms=["RS256"]).claims)

    return verify


async def first_time(issuer: Issuer, seconds: float) -> tuple[float, float]:
    """Microseconds to verify a token that was never seen: ours, and joserfc's own."""
    verifier, verify = issuer.verifier(), theirs(issuer)
    ours, others = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ours) <= WARM_UP:
        # Signing is not what is measured.
        tokens = [issuer.token() for _ in range(20)]
        started = time.perf_counter()
        for token in tokens:
            await verifier.verify(token)
        ours.append((time.perf_counter() - started) / len(tokens) * 1e6)
        started = time.perf_counter()
        for token in tokens:
            verify(token)
        others.append((time.perf_counter() - started) / len(tokens) * 1e6)
    return statistics.median(ours[WARM_UP:]), statistics.median(others[WARM_UP:])


async def main(seconds: float) -> dict[str, float]:
    issuer = Issuer()
    ours, others = await first_time(issuer, seconds)
    return {"seen before": await added_by_a_token(issuer, seconds), "first time": ours, "joserfc": others}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(float(sys.argv[1])))))
