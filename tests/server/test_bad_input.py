"""Hostile input and misbehaving handlers, over a real server: the specified error or silence, no internals shown, and
the connection works on afterwards.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, WireClient, connect, modern_meta

from toolwire import Context, Limits, ProtocolError, Server, ToolError

ROOT = Path(__file__).resolve().parents[2]
ERAS = ("2025-11-25", MODERN)
META = json.dumps(modern_meta())
# What would show that something from inside leaked out.
INTERNALS = re.compile(r"Traceback|File \"|toolwire|msgspec|site-packages|secret|0x[0-9a-f]{6}", re.IGNORECASE)


@dataclass
class Point:
    x: int


def misbehaving(**limits: Any) -> Server:
    """A server with a well-behaved tool and many of the other kind."""
    server = Server("bad", limits=Limits(**limits))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def anything(value: Any) -> str:
        return type(value).__name__

    return server


async def still_works(client: WireClient) -> None:
    result = await client.call("add", {"a": 2, "b": 3})
    assert result["content"][0]["text"] == "5"


async def next_message(client: WireClient, raw: Any) -> Any:
    """What comes back for one frame."""
    before = len(client.received)
    client.send(raw)
    await client.until(lambda: len(client.received) > before)
    assert INTERNALS.search(json.dumps(client.received[before])) is None
    return client.received[before]


def call(identifier: str, arguments: str, name: str = "anything", revision: str = MODERN) -> bytes:
    """A `tools/call` whose id and arguments are JSON written by hand."""
    meta = f',"_meta":{META}' if revision == MODERN else ""
    params = f'{{"name":"{name}","arguments":{arguments}{meta}}}'
    return f'{{"jsonrpc":"2.0","id":{identifier},"method":"tools/call","params":{params}}}'.encode(
        "utf-8", "surrogatepass"
    )


# --- frames ---

FRAMES: list[tuple[str, bytes, int, Any]] = [
    ("empty object", b"{}", -32600, None),
    ("not json", b"hello", -32700, None),
    ("truncated", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"', -32700, None),
    ("two messages in one", b'{"jsonrpc":"2.0","id":1,"method":"x"}{"jsonrpc":"2.0"}', -32700, None),
    ("wrong jsonrpc", b'{"jsonrpc":"1.0","id":7,"method":"tools/list"}', -32600, 7),
    ("number jsonrpc", b'{"jsonrpc":2,"id":"a","method":"tools/list"}', -32600, "a"),
    ("no jsonrpc", b'{"id":7,"method":"tools/list"}', -32600, 7),
    ("no method", b'{"jsonrpc":"2.0","id":7}', -32600, 7),
    ("method is a number", b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
    ("method and result", b'{"jsonrpc":"2.0","id":7,"method":"x","result":{}}', -32600, 7),
    ("null id", b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600, None),
    ("true id", b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32600, None),
    ("float id", b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32600, None),
    ("exponent id", b'{"jsonrpc":"2.0","id":1e2,"method":"tools/list"}', -32600, None),
    ("object id", b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', -32600, None),
    ("list id", b'{"jsonrpc":"2.0","id":[1],"method":"tools/list"}', -32600, None),
    ("huge id", b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"tools/list"}', -32600, None),
    ("text", b'"tools/list"', -32600, None),
    ("number", b"5", -32600, None),
    ("null", b"null", -32600, None),
    ("array", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    ("empty array", b"[]", -32600, None),
    ("invalid utf-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700, None),
    ("invalid utf-8 in params", b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xc3"}}', -32700, None),
    ("utf-8 surrogate", b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xed\xa0\x80"}}', -32700, None),
    ("NaN", call('"n"', '{"value":NaN}'), -32700, None),
    ("Infinity", call('"n"', '{"value":-Infinity}'), -32700, None),
    ("control character", call('"n"', '{"value":"\x00"}'), -32700, None),
    ("byte order mark", b"\xef\xbb\xbf" + call('"n"', "{}"), -32700, None),
    # Whether the id of so deep a message can be read depends on the stack of the interpreter.
    ("10,000 levels", call('"deep"', '{"value":' + "[" * 10_000 + "]" * 10_000 + "}"), -32600, (None, "deep")),
    ("200 levels", call('"deep"', '{"value":' + "[" * 200 + "]" * 200 + "}"), -32600, "deep"),
    ("10,000 open braces", b'{"a":' * 10_000, -32600, None),
]


def allowed_ids(identifier: Any) -> tuple[Any, ...]:
    return identifier if isinstance(identifier, tuple) else (identifier,)


@pytest.mark.covers("RPC-1", "RPC-2", "ERR-4", "1.1.2")
@cases("revision", ERAS)
@cases(("frame", "code", "identifier"), [each[1:] for each in FRAMES], ids=[each[0] for each in FRAMES])
async def test_a_bad_frame_is_refused(revision: str, frame: bytes, code: int, identifier: Any) -> None:
    async with connect(misbehaving(), revision) as client:
        answer = await next_message(client, frame)
        assert answer["error"]["code"] == code
        assert answer.get("id") in allowed_ids(identifier)
        assert ("id" in answer) is (answer.get("id") is not None)
        await still_works(client)
        assert not client.notifications


@pytest.mark.covers("1.1.5", "RPC-3")
@cases("revision", ERAS)
@cases(
    "frame",
    [
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}',
        b'{"jsonrpc":"2.0","method":"initialize"}',
        b'{"jsonrpc":"2.0","method":"no/such"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":"x"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":"x"}}',
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":99,"error":"text"}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"result":{},"error":{"code":1,"message":"x"}}',
    ],
)
async def test_what_asks_for_no_answer_gets_none(revision: str, frame: bytes) -> None:
    async with connect(misbehaving(), revision) as client:
        before = len(client.received)
        client.send(frame)
        await still_works(client)
        assert len(client.received) == before + 1


@cases("revision", ERAS)
@cases(
    ("value", "expected"),
    [
        ("1e400", None),
        ("-1e400", None),
        ("1" * 5000, None),
        ("1e-400", "float"),
        ("18446744073709551616", "int"),
        ("1.0", "float"),
        ('"\\ud83d\\ude00"', "str"),
        ("null", "NoneType"),
    ],
)
async def test_odd_numbers_and_texts_are_read_or_refused(revision: str, value: str, expected: str | None) -> None:
    async with connect(misbehaving(), revision) as client:
        answer = await next_message(client, call('"v"', f'{{"value":{value}}}', revision=revision))
        assert answer["id"] == "v"
        text = answer["result"]["content"][0]["text"]
        if expected is None:
            assert answer["result"]["isError"] is True
        elif expected == "int":
            assert text in ("int", "float")
        else:
            assert text == expected
        await still_works(client)


@pytest.mark.covers("1.1.7", "META-10")
@cases("revision", REVISIONS)
async def test_unknown_members_are_ignored(revision: str) -> None:
    async with connect(misbehaving(), revision) as client:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "future": [1], "_meta": {"org.example/x": {"y": 1}}}
        result = await client.result("tools/call", params)
        assert result["content"][0]["text"] == "3"


@cases("revision", ERAS)
@cases(
    ("method", "params", "code"),
    [
        ("no/such", {}, -32601),
        ("", {}, -32601),
        ("tools/call\n", {"name": "add"}, -32601),
        ("m" * 100_000, {}, -32601),
        ("notifications/initialized", {}, -32601),
        ("roots/list", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": 7}, -32602),
        ("tools/call", {"name": "no such tool"}, -32602),
        ("tools/call", {"name": "n" * 100_000}, -32602),
        ("tools/list", {"cursor": 5}, -32602),
        ("tools/list", {"cursor": "made up"}, -32602),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused(
    revision: str, method: str, params: dict[str, Any], code: int
) -> None:
    async with connect(misbehaving(), revision) as client:
        error = await client.error(method, params)
        assert error["code"] == code
        assert len(error["message"]) < 500
        assert INTERNALS.search(json.dumps(error)) is None
        await still_works(client)


@cases("params", [b"[]", b"5", b'"x"', b"null", b"[[]]"])
@cases("revision", ERAS)
async def test_params_that_are_no_object_are_refused(revision: str, params: bytes) -> None:
    async with connect(misbehaving(), revision) as client:
        await still_works(client)
        frame = b'{"jsonrpc":"2.0","id":"p","method":"tools/call","params":' + params + b"}"
        answer = await next_message(client, frame)
        assert (answer["id"], answer["error"]["code"]) == ("p", -32602)
        await still_works(client)


@pytest.mark.covers("2.2.25", "T-18")
@cases("revision", ERAS)
@cases("arguments", [{}, {"a": 1}, {"a": "one", "b": 2}, {"a": 1, "b": 2, "c": 3}, {"a": None, "b": 1}])
async def test_arguments_that_do_not_fit_are_an_error_result(revision: str, arguments: dict[str, Any]) -> None:
    async with connect(misbehaving(), revision) as client:
        result = await client.call("add", arguments)
        assert result["isError"] is True
        assert INTERNALS.search(result["content"][0]["text"]) is None
        await still_works(client)


@pytest.mark.parametrize("revision", ERAS)
async def test_arguments_that_are_no_object_are_an_error(revision: str) -> None:
    async with connect(misbehaving(), revision) as client:
        for arguments in ("[]", "5", "true", '"x"', '"{}"', '"{\\"a\\": 1, \\"b\\": 2}"'):
            answer = await next_message(client, call('"v"', arguments, revision=revision))
            assert (answer["id"], answer["error"]["code"]) == ("v", -32602), arguments
            assert "one JSON object" in answer["error"]["message"]
        # Null is no arguments at all, which the model can mend.
        answer = await next_message(client, call('"v"', "null", revision=revision))
        assert answer["result"]["isError"] is True
        await still_works(client)


@pytest.mark.covers("1.3.1.5")
async def test_requests_before_initialize_are_refused_and_the_way_stays_open() -> None:
    async with connect(misbehaving()) as client:
        for method in ("tools/list", "tools/call", "resources/read", "no/such"):
            assert (await client.error(method, {"name": "add"}))["code"] == -32600
        client.notify("notifications/initialized")
        assert (await client.request("ping"))["result"] == {}
        await client.initialize("2025-06-18")
        await still_works(client)


@pytest.mark.covers("RPC-2")
@pytest.mark.parametrize("revision", ERAS)
async def test_an_id_in_flight_is_refused_and_the_first_call_is_answered(revision: str) -> None:
    server, gate = misbehaving(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "first"

    async with connect(server, revision) as client:
        first = client.start("tools/call", {"name": "wait"}, id="same")
        client._waiting.pop("same")
        second = client.start("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}, id="same")
        assert (await second)["error"]["code"] == -32600
        client._waiting["same"] = first
        gate.set()
        assert (await first)["result"]["content"][0]["text"] == "first"
        await still_works(client)


# --- handlers that misbehave ---


def failing() -> Server:
    server = misbehaving(tool=30, result=4096)

    @server.tool
    async def raises() -> str:
        raise RuntimeError("the secret is 42")

    @server.tool
    def raises_in_a_thread() -> str:
        raise RuntimeError("the secret is 42")

    @server.tool
    async def exits() -> str:
        raise SystemExit("the secret is 42")

    @server.tool
    def exits_in_a_thread() -> str:
        sys.exit("the secret is 42")

    @server.tool
    async def interrupts() -> str:
        raise KeyboardInterrupt("the secret is 42")

    @server.tool
    def interrupts_in_a_thread() -> str:
        raise KeyboardInterrupt("the secret is 42")

    @server.tool
    async def generator_exit() -> str:
        raise GeneratorExit("the secret is 42")

    @server.tool
    async def base_exception() -> str:
        raise BaseException("the secret is 42")

    @server.tool
    async def cancels_itself() -> str:
        raise asyncio.CancelledError("the secret is 42")

    @server.tool
    def cancels_itself_in_a_thread() -> str:
        raise asyncio.CancelledError("the secret is 42")

    @server.tool
    async def stops() -> str:
        raise StopAsyncIteration("the secret is 42")

    @server.tool
    def stops_in_a_thread() -> str:
        raise StopIteration("the secret is 42")

    @server.tool
    async def unserialisable() -> Any:
        return object()

    @server.tool
    async def cyclic_list() -> Any:
        value: list[Any] = []
        value.append(value)
        return value

    @server.tool
    async def cyclic_object() -> dict[str, Any]:
        value: dict[str, Any] = {}
        value["again"] = value
        return value

    @server.tool
    async def wrong_type() -> int:
        return "text"  # type: ignore[return-value]

    @server.tool
    async def wrong_shape() -> Point:
        return {"y": 1}  # type: ignore[return-value]

    @server.tool
    async def not_a_number() -> float:
        return float("nan")

    return server


FAILURES = [name for name in (tool.name for tool in failing().tools) if name not in ("add", "anything")]


@pytest.mark.covers("R19", "R10")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failing_tool_is_masked_under_an_id_and_logged_under_it(
    revision: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(failing(), revision) as client:
        result = await client.call(name)
        text = result["content"][0]["text"]
        assert result["isError"] is True
        assert INTERNALS.search(text) is None
        found = re.fullmatch(rf"Internal error in the tool {name} \(error id ([0-9a-f]{{12}})\)", text)
        assert found is not None
        await still_works(client)
    (record,) = [record for record in caplog.records if found[1] in record.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    if name.startswith(("raises", "exits", "interrupts", "generator", "base", "cancels", "stops")):
        assert "the secret is 42" in caplog.text


@pytest.mark.parametrize("revision", ERAS)
async def test_other_components_that_fail_are_masked_errors(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = misbehaving()

    @server.resource("bad://one")
    async def one() -> str:
        raise SystemExit("the secret is 42")

    @server.prompt
    def two(a: str) -> str:
        raise KeyboardInterrupt("the secret is 42")

    @server.completion(prompt="two", argument="a")
    async def three(partial: str) -> list[str]:
        raise SystemExit("the secret is 42")

    requests = [
        ("resources/read", {"uri": "bad://one"}),
        ("prompts/get", {"name": "two", "arguments": {"a": "x"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "two"}, "argument": {"name": "a", "value": ""}}),
    ]
    async with connect(server, revision) as client:
        for method, params in requests:
            error = await client.error(method, params)
            assert error["code"] == -32603
            assert error["message"].startswith("Internal error")
            assert INTERNALS.search(error["message"]) is None
        await still_works(client)
    assert caplog.text.count("the secret is 42") >= 3


@pytest.mark.parametrize("revision", ERAS)
async def test_a_text_that_has_no_utf8_form_is_sent_as_far_as_it_has(revision: str) -> None:
    server = misbehaving()

    @server.tool
    async def surrogate() -> str:
        return "\ud800"

    async with connect(server, revision) as client:
        answer = await client.call("surrogate")
        assert answer["content"] == [{"type": "text", "text": "\ufffd"}]
        await still_works(client)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_tool_error_reaches_the_model_word_for_word(revision: str) -> None:
    server = misbehaving()

    @server.tool
    async def refuses() -> str:
        raise ToolError("There is no city of that name")

    async with connect(server, revision) as client:
        result = await client.call("refuses")
        assert (result["isError"], result["content"][0]["text"]) == (True, "There is no city of that name")


@cases("revision", ERAS)
@cases("kind", ["loop", "thread"])
async def test_a_tool_that_hangs_is_ended_by_its_deadline(revision: str, kind: str) -> None:
    server = misbehaving(tool=0.05)
    told: list[bool] = []

    if kind == "loop":

        @server.tool
        async def hang(ctx: Context) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                told.append(True)
            return ""

    else:
        import threading

        release = threading.Event()

        @server.tool
        def hang() -> str:
            told.append(release.wait(30))
            return ""

    async with connect(server, revision) as client:
        result = await client.call("hang")
        assert result["isError"] is True
        assert result["content"][0]["text"] == "hang did not finish within 0.05 seconds"
        await still_works(client)
        if kind == "thread":
            release.set()
        else:
            assert told == [True]


@pytest.mark.parametrize("revision", ERAS)
async def test_a_result_that_is_too_large_is_an_error(revision: str) -> None:
    server = misbehaving(result=4096)

    @server.tool
    async def big() -> str:
        return "x" * 5000

    async with connect(server, revision) as client:
        error = await client.error("tools/call", {"name": "big"})
        assert error == {"code": -32603, "message": "The result is over the limit of 4096 bytes"}
        await still_works(client)


@pytest.mark.parametrize("revision", ERAS)
async def test_error_over_the_limit_of_results_is_shortened(revision: str) -> None:
    server = misbehaving(result=4096)

    @server.tool
    async def fail() -> str:
        raise ProtocolError(-32050, "failed", {"rows": "x" * 5000})

    async with connect(server, revision) as client:
        error = await client.error("tools/call", {"name": "fail"})
        assert error["code"] == -32050
        assert error["message"].startswith("failed [The error has ")
        await still_works(client)


@pytest.mark.parametrize("revision", ERAS)
async def test_a_middleware_that_fails_is_masked(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = misbehaving()

    @server.use
    async def middleware(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/list":
            raise ValueError("the secret is 42")
        return await call_next(ctx)

    async with connect(server, revision) as client:
        error = await client.error("tools/list")
        assert error["code"] == -32603
        assert INTERNALS.search(error["message"]) is None
        await still_works(client)
    assert "the secret is 42" in caplog.text


# --- floods and cancellations ---


@pytest.mark.covers("CAN-2", "1.5.4", "STD-10", "1.5.5")
@cases("revision", REVISIONS)
async def test_queued_running_finished_and_unknown_requests_can_be_cancelled(revision: str) -> None:
    server = misbehaving(in_flight=1)
    running, ended = asyncio.Event(), asyncio.Event()
    started: list[str] = []

    @server.tool
    async def wait(name: str) -> str:
        started.append(name)
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return name

    def cancel(identifier: Any) -> None:
        client.notify("notifications/cancelled", {"requestId": identifier})

    async with connect(server, revision) as client:
        for name in ("running", "queued"):
            client.start("tools/call", {"name": "wait", "arguments": {"name": name}}, id=name)
        await running.wait()
        before = len(client.received)
        cancel("queued")
        cancel("running")
        await ended.wait()
        await still_works(client)
        cancel("running")
        cancel(client._last_id)
        cancel("nobody")
        await still_works(client)
        assert started == ["running"]
        assert len(client.received) == before + 2


@pytest.mark.parametrize("revision", ERAS)
async def test_a_flood_is_served_in_order_within_the_cap(revision: str) -> None:
    server = misbehaving(in_flight=3)
    at_once, most = 0, 0

    @server.tool
    async def count() -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return ""

    async with connect(server, revision) as client:
        await asyncio.gather(*(client.start("tools/call", {"name": "count"}) for _ in range(3000)))
        assert most == 3
        await still_works(client)


# --- real standard input and output ---


class Stdio:
    """A server as a child process, in lines of bytes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def read(self) -> Any:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        assert line.endswith(b"\n")
        return json.loads(line)

    async def still_works(self) -> None:
        self.write(call('"probe"', '{"a":2,"b":3}', "add"))
        answer = await self.read()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == ("probe", "5")


@asynccontextmanager
async def child(*command: str, **options: Any) -> AsyncIterator[Stdio]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(command or (str(ROOT / "examples" / "hello.py"),)),
        stdin=options.pop("stdin", asyncio.subprocess.PIPE),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        **options,
    )
    try:
        yield Stdio(process)
    finally:
        if process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                await asyncio.wait_for(process.communicate(), 20)
            except TimeoutError:
                process.kill()
                await process.communicate()
                raise


@pytest.mark.covers("STD-1", "RPC-1")
async def test_bad_lines_over_stdio_are_refused_and_the_next_is_served() -> None:
    async with child() as server:
        for name, frame, code, identifier in FRAMES:
            server.write(frame.replace(b"\n", b" "))
            answer = await server.read()
            assert answer["error"]["code"] == code, name
            assert answer.get("id") in allowed_ids(identifier), name
            assert INTERNALS.search(json.dumps(answer)) is None
        server.write(b"")
        server.write(b"   \r")  # White space is no message, and gets no answer.
        await server.still_works()
        assert server.process.returncode is None


async def test_a_line_over_the_limit_is_refused_and_skipped_to_its_end() -> None:
    async with child() as server:
        server.write(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + b"x" * (5 * 1024 * 1024) + b'"}}')
        answer = await server.read()
        assert answer == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "The message is over the size limit"}}
        await server.still_works()


@pytest.mark.covers("STD-2")
async def test_whatever_a_handler_writes_to_stdout_stays_out_of_the_protocol(tmp_path: Path) -> None:
    script = tmp_path / "noisy.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "from toolwire import Server\n"
        "server = Server('noisy')\n"
        "@server.tool\n"
        "async def add(a: int, b: int) -> int:\n"
        "    print('printed')\n"
        "    sys.stdout.write('written\\n')\n"
        "    sys.stdout.flush()\n"
        "    os.write(1, b'raw\\n')\n"
        "    subprocess.run([sys.executable, '-c', 'print(\"child\")'], check=True)\n"
        "    return a + b\n"
        "server.run()\n"
    )
    async with child(str(script)) as server:
        await server.still_works()
        await server.still_works()


@pytest.mark.covers("STD-11")
@pytest.mark.parametrize("stdin", ["/dev/null", "closed"])
async def test_without_any_input_the_server_ends_quietly(stdin: str) -> None:
    options: dict[str, Any] = {"stdin": asyncio.subprocess.DEVNULL}
    if stdin == "closed":
        options = {"stdin": None, "preexec_fn": lambda: os.close(0)}
    async with child(**options) as server:
        out, err = await asyncio.wait_for(server.process.communicate(), 20)
        assert out == b""
        assert b"Traceback" not in err
        assert server.process.returncode == 0


async def test_input_from_a_file_is_answered_in_full(tmp_path: Path) -> None:
    count = 600  # More than run at once.
    source = tmp_path / "requests.jsonl"
    lines = [call(str(number), f'{{"a":{number},"b":1}}', "add") for number in range(count)]
    source.write_bytes(b"\n".join([b"nonsense", *lines]))
    with source.open("rb") as stdin:
        async with child(stdin=stdin) as server:
            out, err = await asyncio.wait_for(server.process.communicate(), 30)
    answers = [json.loads(line) for line in out.splitlines()]
    assert answers[0]["error"]["code"] == -32700
    sums = {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers[1:]}
    assert sums == {number: str(number + 1) for number in range(count)}
    assert b"Traceback" not in err
    assert server.process.returncode == 0


async def test_an_exit_in_a_handler_over_stdio_does_not_end_the_server(tmp_path: Path) -> None:
    script = tmp_path / "exits.py"
    script.write_text(
        "import sys\n"
        "from toolwire import Server\n"
        "server = Server('exits')\n"
        "@server.tool\n"
        "async def leave() -> str:\n"
        "    sys.exit(3)\n"
        "@server.tool\n"
        "def interrupt() -> str:\n"
        "    raise KeyboardInterrupt\n"
        "@server.tool\n"
        "async def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "server.run()\n"
    )
    async with child(str(script)) as server:
        for name in ("leave", "interrupt"):
            server.write(call('"x"', "{}", name))
            answer = await server.read()
            assert answer["result"]["isError"] is True
            await server.still_works()
    assert server.process.returncode == 0


@cases("revision", LEGACY)
async def test_every_legacy_revision_survives_the_same_nonsense(revision: str) -> None:
    async with connect(misbehaving(), revision) as client:
        for _, frame, code, _ in FRAMES:
            if frame.startswith(b"[") and revision == "2025-03-26":
                continue  # Batches exist there.
            assert (await next_message(client, frame))["error"]["code"] == code
        await still_works(client)
