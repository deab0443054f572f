"""Mutated messages by the thousand through one server, on each era.

Valid messages are changed member by member and byte by byte. Whatever arrives: nothing crashes or hangs, every
well-formed request with a usable id has exactly one answer with that id, what is no request has none of its own, every
answer is valid JSON-RPC that shows nothing internal, and the server works on.

`TOOLWIRE_FUZZ` is the number of messages for each revision (`make fuzz` sets it).
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.wireclient import MODERN, modern_meta

from toolwire import Context, Server
from toolwire.wire.channel import memory_pair

MESSAGES = int(os.environ.get("TOOLWIRE_FUZZ", "1000"))
PER_EXAMPLE = 40
PATIENCE = 60.0
DEEPEST = 128

LEGACY = "2025-11-25"
BATCHING = "2025-03-26"
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}


def build() -> Server:
    """A server whose handlers never fail, so that any internal error is ours."""
    server = Server("fuzzed", instructions="Do not panic.")

    @server.tool
    async def add(a: int, b: int = 0) -> int:
        return a + b

    @server.tool
    def echo(value: Any, times: int = 1) -> str:
        return json.dumps(value)[:100] * max(0, min(times, 3))

    @server.tool
    async def ask(ctx: Context, key: str | None = None) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return answer.action

    @server.resource("thing://{name}/x")
    async def thing(name: str) -> str:
        return name

    @server.resource("thing://fixed")
    async def fixed() -> bytes:
        return b"\x00\x01"

    @server.prompt
    def brief(city: str, tone: str = "dry") -> str:
        return f"{city} {tone}"

    @server.completion(prompt="brief", argument="city")
    async def cities(partial: str) -> list[str]:
        return [partial + "x"]

    return server


# --- valid messages ---


def requests(modern: bool) -> list[dict[str, Any]]:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tools/list", {}),
        ("tools/list", {"cursor": "abc"}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ("tools/call", {"name": "echo", "arguments": {"value": {"a": [1, "x", None]}, "times": 2}}),
        ("tools/call", {"name": "ask", "arguments": {}}),
        ("tools/call", {"name": "ask", "requestState": "v1.abc.def", "inputResponses": {"k": {"action": "accept"}}}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "thing://a/x"}),
        ("resources/read", {"uri": "thing://fixed"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "brief", "arguments": {"city": "Oslo", "tone": "wry"}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "city", "value": "O"}},
        ),
    ]
    if modern:
        calls += [
            ("server/discover", {}),
            ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}}),
        ]
    else:
        calls += [
            ("ping", {}),
            ("logging/setLevel", {"level": "error"}),
            ("resources/subscribe", {"uri": "thing://fixed"}),
            ("resources/unsubscribe", {"uri": "thing://fixed"}),
            (
                "initialize",
                {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "a", "version": "b"}},
            ),
        ]
    meta = modern_meta(CAPABILITIES, progress_token="t", log_level="debug") if modern else {"progressToken": 5}
    return [
        {"jsonrpc": "2.0", "id": 0, "method": method, "params": {**params, "_meta": meta}} for method, params in calls
    ]


OTHERS: list[Any] = [
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0, "reason": "x"}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
    {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"value": True}}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no", "data": {}}},
    {"jsonrpc": "2.0", "error": {"code": -32700, "message": "no"}},
]

INTERESTING: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, "", "x",
    "0", "\x00", "é", "\U0001f600", "a" * 300, "../../etc/passwd", "%00", "2026-07-28", "2.0", "tools/call", "a:b",
    "thing://a/x", [], {}, [[]], [1, 2], {"a": 1}, {"_meta": {}}, {"": ""}, ["x"] * 50,
]  # fmt: skip
NAMES = [
    "id",
    "method",
    "params",
    "result",
    "error",
    "jsonrpc",
    "_meta",
    "name",
    "arguments",
    "uri",
    "cursor",
    "__class__",
    "",
]

# --- mutations: a kind, two numbers that choose where, and a value ---

STRUCTURAL = ("drop", "replace", "rename", "nest", "copy", "deepen")
BYTEWISE = ("flip", "insert", "delete", "cut", "repeat")
MUTATION = st.tuples(
    st.sampled_from(STRUCTURAL + BYTEWISE),
    st.integers(0, 999),
    st.integers(0, 255),
    st.integers(0, len(INTERESTING) - 1),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and element, as its container and key."""
    found: list[tuple[Any, Any]] = []
    keyed = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in keyed:
        found.append((value, key))
        found += places(inner)
    return found


def mutate(message: Any, kind: str, where: int, other: int, index: int) -> Any:
    message = copy.deepcopy(message)
    found = places(message)
    if not found:
        return INTERESTING[index]
    container, key = found[where % len(found)]
    value = copy.deepcopy(INTERESTING[index])
    if kind == "drop":
        del container[key]
    elif kind == "replace":
        container[key] = value
    elif kind == "rename" and isinstance(container, dict):
        container[NAMES[other % len(NAMES)]] = container.pop(key)
    elif kind == "nest":
        container[key] = [container[key]] if other % 2 else {"value": container[key]}
    elif kind == "copy":
        target, name = found[other % len(found)]
        target[name] = copy.deepcopy(container[key])
    elif kind == "deepen" and depth(message) <= DEEPEST:
        # Once past what is read, no further: copying it would take more of the stack than there is.
        for _ in range(other % (DEEPEST + 20)):
            value = [value]
        container[key] = value
    return message


def mangle(data: bytes, kind: str, where: int, other: int) -> bytes:
    at = where * 7919 % (len(data) + 1)
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (other or 1)]) + data[at + 1 :] if at < len(data) else data
    if kind == "insert":
        return data[:at] + bytes([other]) + data[at:]
    if kind == "delete":
        return data[:at] + data[at + 1 + other % 8 :]
    if kind == "cut":
        return data[:at]
    return data[:at] + data[at : at + 1 + other] * 2 + data[at + 1 + other :]


def make_frame(message: Any, identifier: int, mutations: list[tuple[str, int, int, int]]) -> bytes:
    if isinstance(message, dict) and "method" in message and "id" in message:
        message = {**message, "id": identifier}
    for kind, where, other, index in mutations:
        if kind in STRUCTURAL:
            message = mutate(message, kind, where, other, index)
    data = json.dumps(message, ensure_ascii=bool(identifier % 2)).encode("utf-8", "surrogatepass")
    for kind, where, other, _ in mutations:
        if kind in BYTEWISE:
            data = mangle(data, kind, where, other)
    return data


# --- what a frame is owed ---


class Repeated(ValueError):
    """A member stands twice, so readers may differ on what the message says."""


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Repeated
    return dict(pairs)


def no_constants(name: str) -> Any:
    raise ValueError(name)


def read(frame: bytes) -> tuple[bool, Any]:
    """Whether a frame is JSON that every reader understands alike, and its value."""
    try:
        text = frame.decode()
        value = json.loads(text, parse_constant=no_constants, object_pairs_hook=unrepeated)
        json.dumps(value, ensure_ascii=False).encode()  # No lone surrogates.
        return depth(value) <= DEEPEST, value
    except (ValueError, RecursionError):
        return False, None


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def usable(identifier: Any) -> bool:
    if isinstance(identifier, str):
        return True
    return isinstance(identifier, int) and not isinstance(identifier, bool)


class Owed:
    """What the answers to some frames have to be."""

    def __init__(self, frames: list[bytes], batches: bool) -> None:
        self.least: Counter[int | str] = Counter()
        self.most: Counter[int | str] = Counter()
        self.unnamed = 0
        self.cancelled: set[Any] = set()
        for frame in frames:
            clear, value = read(frame)
            if clear and batches and isinstance(value, list) and 0 < len(value) <= 100:
                for each in value:
                    self._add(each)
            elif clear:
                self._add(value)
            else:
                # Refused, and perhaps with an id that we cannot tell.
                self.unnamed += 1
        for identifier in self.cancelled:
            self.least.pop(identifier, None)

    def _add(self, message: Any) -> None:
        if not isinstance(message, dict):
            self.unnamed += 1
            return
        identifier = message.get("id")
        well_formed = message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
        answers = "result" in message or "error" in message
        if well_formed and not answers and "id" not in message:
            self._notice(message)
        elif well_formed and not answers and usable(identifier):
            self.most[identifier] += 1
            if message["method"] != "subscriptions/listen":
                self.least[identifier] += 1
        elif usable(identifier):
            self.most[identifier] += 1
            self.unnamed += 1
        else:
            self.unnamed += 1

    def _notice(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if message["method"] == "notifications/cancelled" and isinstance(params, dict):
            identifier = params.get("requestId")
            if usable(identifier):
                self.cancelled.add(identifier)


# --- the wire ---


class Wire:
    """One connection to one server, on a loop that stands still between examples."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.runner = asyncio.Runner()
        self.answers: list[dict[str, Any]] = []
        self.count = 0
        self.sent = 0
        self.answered = 0
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.ours, theirs = memory_pair()
        self.arrived = asyncio.Event()
        self.serving = asyncio.create_task(build().serve(theirs))
        self.ours.attach(self._take, lambda error: self.arrived.set())
        if self.revision != MODERN:
            identity = {"name": "fuzz", "version": "0"}
            params = {"protocolVersion": self.revision, "capabilities": CAPABILITIES, "clientInfo": identity}
            await self._probe({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params})
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: Any) -> None:
        self.ours.write(json.dumps(message).encode())

    def _take(self, data: bytes) -> None:
        message = json.loads(data)
        for each in message if isinstance(message, list) else [message]:
            if "method" not in each:
                self.answers.append(each)
            elif "id" in each:
                assert self.revision != MODERN, "RPC-5: a modern server sends no requests"
                self._send({"jsonrpc": "2.0", "id": each["id"], "result": {"action": "decline"}})
        self.arrived.set()

    async def _until(self, ready: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not ready():
                assert not self.serving.done(), "the server ended"
                self.arrived.clear()
                await self.arrived.wait()

    async def _probe(self, message: dict[str, Any]) -> None:
        self._send(message)
        await self._until(lambda: any(answer.get("id") == message["id"] for answer in self.answers))

    async def _exchange(self, frames: list[bytes]) -> list[dict[str, Any]]:
        self.answers = []
        owed = Owed(frames, self.revision == BATCHING)
        for frame in frames:
            self.ours.write(frame)
        await self._until(lambda: owed.least <= Counter(each.get("id") for each in self.answers))
        for identifier in owed.most:
            # Whatever still runs, such as a listen stream, ends here.
            self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identifier}})
        self.count += 1
        probe = f"probe {self.count}"
        meta = {"_meta": modern_meta()} if self.revision == MODERN else {}
        call = {"name": "add", "arguments": {"a": self.count}, **meta}
        await self._probe({"jsonrpc": "2.0", "id": probe, "method": "tools/call", "params": call})
        answers = [each for each in self.answers if each.get("id") != probe]
        (proof,) = [each for each in self.answers if each.get("id") == probe]
        assert proof["result"]["content"][0]["text"] == str(self.count)
        self._check(owed, answers)
        self.sent += len(frames)
        self.answered += len(answers)
        return answers

    def _check(self, owed: Owed, answers: list[dict[str, Any]]) -> None:
        found = Counter(answer["id"] for answer in answers if "id" in answer)
        for identifier, count in owed.least.items():
            assert count <= found[identifier] <= owed.most[identifier] + owed.unnamed
        stray = sum((found - owed.most).values())
        assert stray + sum("id" not in answer for answer in answers) <= owed.unnamed
        for answer in answers:
            check_answer(answer, self.revision == MODERN)

    def exchange(self, frames: list[bytes]) -> list[dict[str, Any]]:
        return self.runner.run(self._exchange(frames))

    def close(self) -> None:
        async def end() -> None:
            await self.ours.close()
            await self.serving

        with self.runner:
            self.runner.run(end())


def check_answer(answer: dict[str, Any], modern: bool) -> None:
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) != ("error" in answer)
    assert set(answer) <= {"jsonrpc", "id", "result", "error"}
    if "id" in answer:
        assert usable(answer["id"])
    shown = json.dumps(answer)
    assert "Traceback" not in shown
    assert "Internal error" not in shown, shown
    if "result" in answer:
        assert usable(answer["id"])
        assert isinstance(answer["result"], dict)
        if modern:
            assert answer["result"]["resultType"] in ("complete", "input_required")
    else:
        error = answer["error"]
        assert error["code"] in (-32700, -32600, -32601, -32602, -32002, -32021, -32022), shown
        assert isinstance(error["message"], str)
        assert 0 < len(error["message"]) < 2000


@pytest.fixture(params=[LEGACY, BATCHING, MODERN])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    logging.disable(logging.CRITICAL)
    made = Wire(request.param)
    yield made
    made.close()
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(1800)
def test_no_message_upsets_a_server(wire: Wire) -> None:
    bases: list[Any] = requests(wire.revision == MODERN) + OTHERS
    bases += [requests(True)[2], requests(False)[2]]  # One of them is of the other era.
    bases += [[requests(False)[2], OTHERS[2], requests(False)[0]], []]
    parts = st.lists(
        st.tuples(st.integers(0, len(bases) - 1), st.lists(MUTATION, max_size=4)),
        min_size=PER_EXAMPLE,
        max_size=PER_EXAMPLE,
    )

    @settings(
        max_examples=max(1, MESSAGES // PER_EXAMPLE),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        database=None,
    )
    @given(parts)
    def feed(chosen: list[tuple[int, list[tuple[str, int, int, int]]]]) -> None:
        frames = [make_frame(bases[base], 100 + n, mutations) for n, (base, mutations) in enumerate(chosen)]
        wire.exchange(frames)

    feed()
    assert wire.sent >= MESSAGES // PER_EXAMPLE * PER_EXAMPLE
    # The messages are not all noise: many are answered.
    assert wire.answered > wire.sent // 3


@pytest.mark.timeout(300)
def test_no_bytes_upset_a_server(wire: Wire) -> None:
    @settings(
        max_examples=max(10, MESSAGES // 100), deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.lists(st.binary(max_size=60), min_size=10, max_size=10))
    def feed(frames: list[bytes]) -> None:
        wire.exchange(frames)

    feed()
