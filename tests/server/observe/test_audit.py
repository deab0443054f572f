"""What a server records of its calls, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Client, Context, Gateway, Policy, Prompt, Resource, Server, ToolError
from toolwire.audit import AuditLog
from toolwire.audit.chain import ChainVerifier, audit_key
from toolwire.auth import Principal
from toolwire.errors import ServerError
from toolwire.shape import ArgumentShape, Shape, ToolPins, ToolShape

KEY = "a key of sixteen bytes"


class Kept:
    """An audit log whose lines are kept in a list."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[str] = []
        self.log = AuditLog(self.lines.append, key=KEY, **options)

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == "call"]

    def findings(self) -> list[str]:
        verifier = ChainVerifier(audit_key(KEY))
        for line in self.lines:
            verifier.read(line.encode())
        return [text for _, text in verifier.end()]


async def greet(name: str, password: str = "") -> str:
    return f"hello {name}"


@pytest.mark.covers("R21", "R30")
@cases("revision", REVISIONS)
async def test_every_call_has_a_line(revision: str) -> None:
    kept = Kept()
    server = Server("s", version="3", tools=greet, audit=kept.log)
    server.add(Resource("note://a", content="x")).add(Prompt.text("hi {who}", name="p"))
    ann = Principal("ann-1", "https://issuer.example", "Ann", claims={"email": "private"})
    async with connect(server, revision, principal=ann) as client:
        await client.result("tools/list")
        await client.call("greet", {"name": "Bo", "password": "hunter2"})
        await client.result("resources/read", {"uri": "note://a"})
        await client.result("prompts/get", {"name": "p", "arguments": {"who": "me"}})
    opened, *calls, ended = kept.entries
    assert (opened["kind"], opened["server"], opened["version"], ended["kind"]) == ("open", "s", "3", "end")
    assert [(call["method"], call["name"], call["arguments"], call["outcome"]) for call in calls] == [
        ("tools/call", "greet", {"name": "Bo", "password": "[redacted]"}, "ok"),
        ("resources/read", "note://a", {"uri": "note://a"}, "ok"),
        ("prompts/get", "p", {"who": "me"}, "ok"),
    ]
    for call in calls:
        assert call["who"] == {"subject": "ann-1", "provider": "https://issuer.example", "username": "Ann"}
        assert (call["revision"], call["client"]) == (revision, "raw 0")
        assert call["ms"] >= 0
    assert "hunter2" not in str(kept.lines)
    assert "private" not in str(kept.lines)
    assert kept.findings() == []


@pytest.mark.covers("R21")
async def test_how_a_call_ended() -> None:
    kept = Kept()
    started = asyncio.Event()
    server = Server("s", audit=kept.log)

    @server.tool
    async def fine() -> str:
        return ""

    @server.tool
    async def wrong() -> str:
        raise ToolError("wrong")

    @server.tool
    async def broken() -> str:
        raise RuntimeError("secret details")

    @server.tool
    async def asks(ctx: Context) -> str:
        await ctx.elicit("?", bool)
        return ""

    @server.tool
    async def endless() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    @server.tool(policy=Policy(rules={"n": lambda n: "no"}))
    async def ruled(n: int) -> str:
        return ""

    async with connect(server, MODERN, {"elicitation": {"form": {}}}) as client:
        for name in ("fine", "wrong", "asks"):
            await client.call(name)
        masked = (await client.call("broken"))["content"][0]["text"]
        await client.call("ruled", {"n": 1})
        await client.error("tools/call", {"name": "no\nsuch\x1b[2J"})
        client.start("tools/call", {"name": "endless"}, id="e")
        await started.wait()
        client.notify("notifications/cancelled", {"requestId": "e"})
    found = {call["name"]: call for call in kept.calls}
    assert {name: call["outcome"] for name, call in found.items()} == {
        "fine": "ok",
        "wrong": "error",
        "asks": "asked",
        "broken": "failed",
        "ruled": "refused",
        "no\nsuch\x1b[2J": "error",
        "endless": "cancelled",
    }
    assert found["broken"]["errorId"] in masked
    assert found["ruled"]["reason"] == "rule"
    assert found["no\nsuch\x1b[2J"]["code"] == -32602
    assert "secret" not in str(kept.lines)
    assert kept.findings() == []


async def test_secrets_of_policies_and_of_the_log_are_in_no_line() -> None:
    kept = Kept(redact=["iban"], mask=["tok-[0-9]+"])
    server = Server("s", policy=Policy(redact=["pin"], mask=["sk-[a-z]+"]), audit=kept.log)

    server.tool(name="open", input_schema={"type": "object"})(raw)
    server.tool(name="raw", input_schema={"type": "object"}, policy=Policy(redact=["plate"]))(raw)
    secrets = {"iban": "AAA1", "PIN": "BBB2", "note": "use sk-abc or tok-123", "deep": [{"Api-Key": "CCC3"}]}
    async with connect(server, MODERN) as client:
        await client.call("open", secrets | {"plate": "seen"})
        await client.call("raw", secrets | {"plate": "DDD4"})
        await client.error("resources/read", {"uri": "x://sk-abc"})
        await client.error("tools/call", {"name": "sk-abc"})
        await client.error("prompts/get", {"name": "sk-abc", "arguments": {"pin": "BBB2"}})
    text = str(kept.lines)
    assert "seen" in text
    assert not [secret for secret in ("AAA1", "BBB2", "CCC3", "DDD4", "sk-abc", "tok-123") if secret in text]


async def raw(arguments: dict[str, Any]) -> str:
    return "x"


async def test_large_arguments_are_left_out() -> None:
    kept = Kept(max_arguments=100)
    async with connect(Server("s", tools=greet, audit=kept.log), MODERN) as client:
        await client.call("greet", {"name": "x" * 1000})
    assert kept.calls[0]["arguments"] == {"omitted": len('{"name": "' + "x" * 1000 + '"}')}


async def test_what_the_handler_does_to_its_arguments_is_not_recorded() -> None:
    kept = Kept()
    server = Server("s", audit=kept.log)

    @server.tool
    async def clear(items: list[str]) -> int:
        items.clear()
        return 0

    async with connect(server, MODERN) as client:
        await client.call("clear", {"items": ["a"]})
    assert kept.calls[0]["arguments"] == {"items": ["a"]}


async def test_a_log_that_cannot_be_written_stops_calls_before_they_run() -> None:
    go, ran = threading.Event(), []
    entered = threading.Event()

    def sink(line: str) -> None:
        entered.set()
        go.wait(30)

    server = Server("s", audit=AuditLog(sink, key=KEY, queue=2))

    @server.tool
    async def work() -> str:
        ran.append(1)
        return ""

    server.add(Resource("note://a", content="x"))
    async with connect(server, MODERN) as client:
        await client.call("work")
        while not entered.is_set():
            await asyncio.sleep(0.001)
        refusals = [result for _ in range(8) if "isError" in (result := await client.call("work"))]
        assert len(ran) == 9 - len(refusals) <= 4
        assert "cannot be recorded" in refusals[0]["content"][0]["text"]
        assert refusals[0]["_meta"]["toolwire/retryAfterMs"] == 10_000
        assert (await client.error("resources/read", {"uri": "note://a"}))["code"] == 429
        await client.result("tools/list")
        go.set()


async def test_a_log_that_is_not_required_stops_nothing() -> None:
    def sink(line: str) -> None:
        raise OSError

    server = Server("s", tools=greet, audit=AuditLog(sink, key=KEY, queue=1, required=False))
    async with connect(server, MODERN) as client:
        for _ in range(5):
            assert "isError" not in await client.call("greet", {"name": "x"})


async def test_a_server_that_starts_again_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = Server("s", tools=greet, audit=AuditLog(path, key=KEY))
    for _ in range(2):
        async with Client(server) as client:
            await client.call_tool("greet", {"name": "x"})
    verifier = ChainVerifier(audit_key(KEY))
    for line in path.read_bytes().splitlines():
        verifier.read(line)
    assert verifier.end() == []
    assert (verifier.lines, verifier.chains) == (6, 2)


def test_only_an_audit_log_is_one() -> None:
    with pytest.raises(Exception, match="audit= takes an AuditLog, not str"):
        Server("s", audit="audit.jsonl")  # type: ignore[arg-type]


async def test_a_secret_variable_of_a_template_is_in_no_part_of_a_line() -> None:
    lines: list[str] = []
    server = Server("s", audit=AuditLog(lines.append, key="a key of sixteen bytes"))
    server.resource("doc://{access_token}/{page}")(lambda access_token, page: page)
    server.resource("note://{customer}", policy=Policy(redact=["customer"]))(lambda customer: customer)
    server.resource("free://{page}")(lambda page: page)
    async with connect(server, MODERN) as client:
        for uri in ("doc://hunter2/one", "note://hunter2", "free://one"):
            await client.result("resources/read", {"uri": uri})
    entries = [json.loads(line) for line in lines if "method" in json.loads(line)]
    assert "hunter2" not in str(lines)
    assert [(each["name"], each["arguments"]) for each in entries] == [
        (
            "doc://{access_token}/{page}",
            {"uri": "doc://{access_token}/{page}", "access_token": "[redacted]", "page": "one"},
        ),
        ("note://{customer}", {"uri": "note://{customer}", "customer": "[redacted]"}),
        ("free://one", {"uri": "free://one", "page": "one"}),
    ]


async def test_object_that_is_sent_as_json_text_is_redacted_like_the_object() -> None:
    kept, arrived = Kept(redact=["iban"]), []

    async def login(account: dict[str, str]) -> str:
        arrived.append(account)
        return "ok"

    server = Server("s", tools=login, audit=kept.log, policy=Policy(mask=[r'code="[^"]*"']))
    account = {"password": "canary", "iban": "canary", "note": 'code="canary"'}
    async with connect(server, REVISIONS[-1]) as client:
        await client.call("login", {"account": json.dumps(account)})
    assert arrived == [account]
    assert json.loads(kept.calls[0]["arguments"]["account"]) == dict.fromkeys(account, "[redacted]")


def renaming(arguments: dict[str, str], **options: Any) -> Shape:
    shapes = {name: ArgumentShape(rename=public) for name, public in arguments.items()}
    return Shape(tools={"pay": ToolShape(arguments=shapes)}, **options)


def payments(**options: Any) -> Server:
    server = Server("payments", **options)

    @server.tool
    async def pay(iban: str = "", password: str = "", max_tokens: int = 0) -> str:
        return "paid"

    return server


@pytest.mark.parametrize("remote", [False, True])
async def test_argument_that_a_shape_renames_is_redacted_by_its_original_name(remote: bool) -> None:
    shape = renaming({"iban": "account", "password": "code", "max_tokens": "most"})
    kept = Kept(redact=["iban"] if remote else [])
    if remote:
        front: Server = Gateway("front", audit=kept.log).add("p", payments(), shape=shape)
    else:
        inner = payments(audit=Kept(redact=["iban"]).log)
        middle = Server("middle").mount(inner, shape=renaming({"iban": "number", "password": "word"}))
        outer = {"number": "account", "word": "code", "max_tokens": "most"}
        front = Server("front", audit=kept.log).mount(middle, "p", shape=renaming(outer))
    async with Client(front) as client:
        await client.call_tool("p_pay", {"account": "a", "code": "b", "most": 5})
    (call,) = kept.calls
    hidden = dict.fromkeys(("account", "code"), "[redacted]")
    assert call["arguments"] == {**hidden, "most": 5}


async def test_refused_call_of_a_withheld_tool_is_redacted_by_the_original_names() -> None:
    kept, pins, inner = Kept(), ToolPins(), payments(policy=Policy(redact=["iban"]))
    shape = renaming({"iban": "account", "password": "code"}, pins=pins)
    async with Client(Server("front", audit=kept.log).mount(inner, shape=shape)) as client:
        await client.list_tools()
        inner.remove("pay")

        @inner.tool(description="Pays, and more.")
        async def pay(iban: str = "", password: str = "") -> str:
            return "paid"

        assert (await client.call_tool("pay", {"account": "canary", "code": "canary"})).is_error
    assert "canary" not in str(kept.lines)


async def test_redacted_uri_is_in_no_part_of_a_line() -> None:
    kept = Kept(redact=["uri"])
    server = Server("s", audit=kept.log)
    server.resource("doc://{customer}")(lambda customer: customer)
    server.resource("note://canary")(lambda: "x")
    async with connect(server, MODERN) as client:
        for uri in ("doc://canary", "note://canary"):
            await client.result("resources/read", {"uri": uri})
        await client.error("resources/read", {"uri": "none://canary"})
    assert "canary" not in str(kept.lines)
    assert [each["name"] for each in kept.calls] == ["doc://{customer}", "[redacted]", "[redacted]"]


@cases("options", [{"redact": "iban"}, {"mask": "abc"}, {"redact": 5}])
def test_log_takes_lists_of_names_and_patterns(options: Any) -> None:
    with pytest.raises(ServerError, match="takes a list of"):
        Kept(**options)


def bank(**options: Any) -> Server:
    """A server with secret arguments. `visible_to=["staff"]` hides a component from the callers in these tests."""
    server = Server("bank", **options)
    policy = None if options else Policy(redact=["iban"], mask=["sk-[a-z]+"])
    for name, visible_to in (("pay", None), ("refund", ["staff"])):
        server.tool(name=name, visible_to=visible_to, policy=policy)(lambda iban, note: "paid")
        server.add(Prompt.text("{iban} {note}", name=name, visible_to=visible_to, policy=policy))
        server.completion(prompt=name, argument="iban")(lambda partial: [])
    server.resource("account://{iban}", visible_to=["staff"], policy=policy)(lambda iban: "x")
    return server


SECRETS = {"redact": ["iban"], "mask": ["sk-[a-z]+"]}


@cases("where", ["component", "policy of a mounted server", "log of a mounted server"])
async def test_call_that_finds_no_component_shows_no_secret_of_any(where: str) -> None:
    kept, ann = Kept(), Principal("ann")
    options: dict[str, Any] = {"policy": Policy(**SECRETS)} if "policy" in where else {"audit": Kept(**SECRETS).log}
    inner = bank() if where == "component" else bank(**options)
    front = Server("front", audit=kept.log).mount(Server("middle").mount(inner))
    iban, values = "DE89370400440532013000", {"iban": "DE89370400440532013000", "note": "sk-abcdef"}
    async with connect(front, MODERN, principal=ann) as client:
        for name in ("refund", "pya", "sk-abcdef"):
            await client.error("tools/call", {"name": name, "arguments": values})
            await client.error("prompts/get", {"name": name, "arguments": values})
            argument = {"name": "iban", "value": iban}
            await client.error(
                "completion/complete", {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}
            )
        ref = {"type": "ref/resource", "uri": f"account://{iban}"}
        await client.error("completion/complete", {"ref": ref, "argument": {"name": "x", "value": "y"}})
        await client.error("resources/read", {"uri": f"account://{iban}"})
    assert not [secret for secret in (iban, "sk-abcdef") if secret in str(kept.lines)]
    size = len(json.dumps(values))
    shown = [(call["method"], call["name"], call["arguments"]) for call in kept.calls]
    assert shown[3:6] == [
        ("tools/call", "pya", {"omitted": size}),
        ("prompts/get", "pya", {"omitted": size}),
        ("completion/complete", "pya", {"omitted": len(iban)}),
    ]
    assert [name for _, name, _ in shown[6:]] == ["[redacted]"] * 5
    assert shown[-1][2] == {"uri": "[redacted]"}


async def test_name_of_unknown_tool_is_masked_by_policies_that_come_later() -> None:
    kept = Kept()
    front = Server("front", audit=kept.log)
    async with connect(front, MODERN) as client:
        await client.error("tools/call", {"name": "sk-abc"})
        # A shape that hides the tool hides no mask.
        front.mount(bank(), shape=Shape(deny=["*"], policy=Policy(mask=["tok-[0-9]+"])))
        for name in ("sk-abc", "tok-1", "other"):
            await client.error("tools/call", {"name": name})
        front.tool(policy=Policy(by_principal=lambda principal: None))(greet)
        await client.error("tools/call", {"name": "other"})
    assert [call["name"] for call in kept.calls] == ["sk-abc", "[redacted]", "[redacted]", "other", "[redacted]"]


@cases("encoded", ["ann%40example.org", "%61nn%40example%2Eorg", "ann%40example%2eorg"])
async def test_mask_finds_percent_encoded_text_in_an_address(encoded: str) -> None:
    kept = Kept()
    server = Server("s", policy=Policy(mask=[r"[a-z.]+@[a-z.]+"]), audit=kept.log)
    server.resource("user://{email}/{page}")(lambda email, page: f"{page} of user://{encoded}")
    server.completion(template="user://{email}/{page}", argument="email")(lambda partial: [])
    async with connect(server, MODERN) as client:
        result = await client.result("resources/read", {"uri": f"user://{encoded}/a%20b"})
        error = await client.error("resources/read", {"uri": f"none://{encoded}"})
        ref = {"type": "ref/resource", "uri": "user://{email}/{page}"}
        await client.result("completion/complete", {"ref": ref, "argument": {"name": "email", "value": encoded}})
    assert result["contents"][0]["text"] == "a b of user://[redacted]"
    assert encoded not in str(error)
    assert encoded not in str(result)
    assert encoded not in str(kept.lines)
    assert (kept.calls[0]["name"], kept.calls[0]["arguments"]) == (
        "user://[redacted]/a%20b",
        {"uri": "user://[redacted]/a%20b", "email": "[redacted]", "page": "a b"},
    )
    assert kept.calls[2]["arguments"] == {"email": "[redacted]"}
