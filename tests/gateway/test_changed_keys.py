"""Every key of the file of a gateway changes while a call runs: it is in force then, or a restart is said to be needed.

The keys come from the tables, so that a key without a row fails here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import inspect
from tests.gateway.backs import until

from toolwire import Server, testing
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.gateway import Gateway
from toolwire.gateway.config import gateway_of, making
from toolwire.gateway.config.tables import BackEntry, FileTables, GatewayTable, HttpTable
from toolwire.gateway.configuration import AT_ONCE
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.server.limits import LIMITS_AT_USE, Limits

PLAIN = str(Path(__file__).parent / "plain_back.py")


class Row(NamedTuple):
    """The new value of a key, and how it shows that the value is in force."""

    value: Any
    shows: Callable[[Gateway], Any] | None = None
    """Returns whether the value is in force; None for a key that needs a restart, and for one of a server."""
    beside: dict[str, Any] = {}
    """Other members of the same table, before and after."""


def remote(gateway: Gateway) -> Any:
    """Return the server `x` behind a gateway, as it is now."""
    return gateway.catalog.mounts[0].catalog.owner


def names(gateway: Gateway) -> set[str]:
    return set(gateway.catalog.listed("tools"))


def entry(gateway: Gateway) -> Any:
    """Return the entry that the server `x` was made from."""
    return remote(gateway).back_connections.target.entry


COMMAND = {"command": sys.executable, "args": [PLAIN, "old"], "revision": "2025-11-25"}
SECRET = {"kind": "static_secret", "secret": "s", "header": "X-Key"}
KEY = "0123456789abcdef0123456789abcdef"
KEYS = {"api_keys": {"keys": {"ci": {"key": KEY}}}}

GATEWAY: dict[str, Row] = {
    "name": Row("other", lambda gateway: gateway.identity.name == "other"),
    "version": Row("2.0", lambda gateway: gateway.identity.version == "2.0"),
    "title": Row("T", lambda gateway: gateway.identity.title == "T"),
    "description": Row("D", lambda gateway: gateway.identity.description == "D"),
    "website_url": Row("https://a.example", lambda gateway: gateway.identity.website_url == "https://a.example"),
    "icons": Row([{"src": "https://a.example/i.png"}], lambda gateway: len(gateway.identity.icons or ()) == 1),
    "instructions": Row("Do this.", lambda gateway: (gateway.instructions or "").startswith("Do this.")),
    "strict": Row(True, lambda gateway: gateway.catalog.is_strict),
    "stale": Row(True, lambda gateway: remote(gateway).keeps_stale_lists),
    "auth": Row(KEYS, lambda gateway: gateway.auth is not None),
    "local_principal": Row({"subject": "anna"}, lambda gateway: gateway.local_principal.subject == "anna"),
    "policy": Row({"timeout": 7}, lambda gateway: gateway.policy.timeout == 7 and gateway.enforcer is not None),
    "audit": Row({"logger": "toolwire.test", "key": KEY}, lambda gateway: gateway.kernel.audit is not None),
    "metrics": Row(True),
    "tracing": Row(True),
    "stores": Row("state.db"),
    "secret": Row(KEY),
    "credentials": Row({"a": SECRET}),
    "directory": Row("."),
    "capabilities": Row(
        {"experimental": {"a": {}}}, lambda gateway: gateway.capabilities()["experimental"] == {"a": {}}
    ),
    "page_size": Row(1, lambda gateway: gateway.kernel.methods.pages.size == 1),
    "cache": Row({"ttl_ms": 5}, lambda gateway: gateway.kernel.methods.cache.ttl_ms == 5),
    "schema_profile": Row("nullable"),
    "debug": Row(True, lambda gateway: gateway.kernel.failures.debug),
}
HTTP: dict[str, Any] = {
    "host": "127.0.0.2",
    "port": 1,
    "path": "/other",
    "workers": 2,
    "public_url": "https://a.example",
    "allowed_hosts": ["a.example"],
    "allowed_origins": ["https://a.example"],
    "allow_unauthenticated": True,
    "stateless": True,
    "sse": True,
    "access_log": True,
    "trusted_proxies": ["10.0.0.0/8"],
    "log_level": "error",
    "stores_wait": 1.0,
}
ENTRY: dict[str, Row] = {
    "command": Row(sys.executable, lambda gateway: gateway.backs["x"].transport == "stdio", {"args": [PLAIN, "old"]}),
    "args": Row([PLAIN, "new"], lambda gateway: entry(gateway).args[-1] == "new", COMMAND),
    "env": Row({"A": "b"}, lambda gateway: entry(gateway).env == {"A": "b"}, COMMAND),
    "cwd": Row("/", lambda gateway: entry(gateway).cwd == "/", COMMAND),
    "inherit_env": Row(True, lambda gateway: entry(gateway).inherit_env, COMMAND),
    "url": Row("http://other/mcp", lambda gateway: entry(gateway).url == "http://other/mcp"),
    "urls": Row(["http://other/mcp"], lambda gateway: entry(gateway).urls == ["http://other/mcp"]),
    "headers": Row({"X-A": "b"}, lambda gateway: entry(gateway).headers == {"X-A": "b"}),
    "type": Row("http", lambda gateway: entry(gateway).type == "http"),
    "transport": Row("sse", lambda gateway: entry(gateway).transport == "sse"),
    "tls": Row({}, lambda gateway: entry(gateway).tls is not None),
    "proxy": Row("http://127.0.0.1:9", lambda gateway: entry(gateway).proxy == "http://127.0.0.1:9"),
    "disabled": Row(True, lambda gateway: "x" not in gateway.backs),
    "prefix": Row("other_", lambda gateway: "other_wait" in names(gateway) and "x_wait" not in names(gateway)),
    "timeout": Row(7.0, lambda gateway: remote(gateway).relay.timeout == 7.0),
    "revision": Row("2025-11-25", lambda gateway: gateway.backs["x"].revision == "2025-11-25"),
    "list_timeout": Row(7.0),
    "trust": Row(True, lambda gateway: remote(gateway).trusts),
    "breaker": Row({"failures": 3}),
    "health": Row({"every": 900.0}),
    "max_calls": Row(3),
    "max_calls_per_caller": Row(3),
    "queue": Row(3, beside={"max_calls": 9}),
    "queue_seconds": Row(3.0, beside={"max_calls": 9}),
    "credentials": Row(SECRET, lambda gateway: "x" in gateway.vault),
    "list_credentials": Row(
        SECRET, lambda gateway: "x (lists)" in gateway.vault, {"credentials": {"kind": "user_secret"}}
    ),
    "credential_variable": Row(
        "KEY", beside={**COMMAND, "credentials": {"kind": "static_secret", "secret": "s"}, "credential_variable": "OLD"}
    ),
    "isolation": Row("principal", lambda gateway: entry(gateway).isolation == "principal", COMMAND),
    "max_processes": Row(3, lambda gateway: entry(gateway).max_processes == 3, {**COMMAND, "isolation": "principal"}),
    "idle_seconds": Row(3.0, lambda gateway: entry(gateway).idle_seconds == 3, {**COMMAND, "isolation": "principal"}),
    "allow": Row(["other"], lambda gateway: "x_wait" not in names(gateway)),
    "deny": Row(["wait"], lambda gateway: "x_wait" not in names(gateway)),
    "allow_prompts": Row([], lambda gateway: entry(gateway).allow_prompts == []),
    "deny_prompts": Row(["p"], lambda gateway: entry(gateway).deny_prompts == ["p"]),
    "allow_resources": Row([], lambda gateway: entry(gateway).allow_resources == []),
    "deny_resources": Row(["r"], lambda gateway: entry(gateway).deny_resources == ["r"]),
    "allow_extensions": Row([], lambda gateway: entry(gateway).allow_extensions == []),
    "deny_extensions": Row(["a/b"], lambda gateway: entry(gateway).deny_extensions == ["a/b"]),
    "tools": Row({"wait": {"rename": "hold"}}, lambda gateway: "x_hold" in names(gateway)),
    "prompts": Row({"p": {"title": "T"}}, lambda gateway: entry(gateway).prompts["p"].title == "T"),
    "resources": Row({"r": {"title": "T"}}, lambda gateway: entry(gateway).resources["r"].title == "T"),
    "scopes": Row(["s"], lambda gateway: entry(gateway).scopes == ["s"]),
    "visible_to": Row(["s"], lambda gateway: entry(gateway).visible_to == ["s"]),
    "result_budget": Row(2000, lambda gateway: entry(gateway).result_budget == 2000),
    "pins": Row(True, lambda gateway: entry(gateway).pins),
    "forward_headers": Row(["x-a"], lambda gateway: entry(gateway).forward_headers == ["x-a"]),
    "policy": Row({"timeout": 7}, lambda gateway: remote(gateway).policy.timeout == 7),
}
TABLES = {
    "gateway": {name for name in GatewayTable.__struct_fields__ if name != "limits"},
    "mcpServers.x": set(BackEntry.__struct_fields__),
}


LIMITS = {name: 0.5 if name == "share" else 17 for name in Limits.__struct_fields__}


class Waiting:
    """A server with a tool that waits, in front of which any target of a file stands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.server = Server("back")
        self.server.tool(self.wait)
        self.app = self.server.http_app(allowed_hosts=["other"])
        self.pool = AsgiPool(self.app)
        self._made = making.target_of
        monkeypatch.setattr(making, "target_of", self.target_of)

    async def wait(self) -> str:
        self.begun.set()
        await self.go_on.wait()
        return "ended well"

    def target_of(self, name: str, entry: Any) -> Target:
        """Make the target that the file says, whose requests reach the server here."""
        made: Any = self._made(name, entry)
        if entry.command is None:
            made = HttpTarget(entry.url, headers=entry.headers, pool=self.pool)
        made.entry = entry
        return made  # type: ignore[no-any-return]

    async def end(self) -> None:
        self.app.drain()
        await self.pool.close()
        await self.app.stop()


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize(("table", "name"), [(table, name) for table, keys in TABLES.items() for name in sorted(keys)])
async def test_a_key_changes_while_a_call_runs(
    table: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = (GATEWAY if table == "gateway" else ENTRY)[name]
    monkeypatch.chdir(tmp_path)
    waiting = Waiting(monkeypatch)
    url = {"url": "http://localhost/mcp"}

    def file(**change: Any) -> dict[str, Any]:
        entry = {**({} if "command" in (row.beside.keys() | change.keys()) else url), **row.beside, **change}
        servers = {"x": entry if table == "mcpServers.x" else url, "y": url}
        return {"mcpServers": servers, "gateway": change if table == "gateway" else {}}

    if table == "mcpServers.x" and {"command", "credentials"} & row.beside.keys():
        # Nothing waits there: the call is made at its neighbour.
        before = file()
        called = "y_wait"
    else:
        before = {**file(), "mcpServers": {"x": {**url, **row.beside} if name != "command" else url, "y": url}}
        called = "x_wait"
    gateway = gateway_of(before)
    async with testing.connect(gateway) as (client, _):
        calling = asyncio.ensure_future(client.call_tool(called, returns=str))
        await waiting.begun.wait()
        done = await gateway.reload(file(**{name: row.value}))
        key = f"{table}.{name}"
        if table == "mcpServers.x":
            assert (done.changed, done.removed) == ((), ("x",)) if name == "disabled" else (("x",), ())
        elif row.shows is not None:
            assert (done.settings, done.restart) == ((key,), ())
        else:
            assert (done.settings, done.restart) == ((), (key,))
            assert gateway.configuration is not None and gateway.configuration.status.restart == (key,)
        assert row.shows is None or row.shows(gateway)
        assert not calling.done()
        waiting.go_on.set()
        assert await calling == "ended well"
        # And back again.
        done = await gateway.reload(before)
        assert done.restart == () and (
            table == "mcpServers.x" or row.shows is None or done.settings == (key,) or key == "gateway.auth"
        )
        await until(lambda: len(gateway.catalog.family()) == 2)
    await waiting.end()


@pytest.mark.covers("GW-9.34")
async def test_limits_and_options_of_http_change_while_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch)
    before: dict[str, Any] = {"mcpServers": {"x": {"url": "http://localhost/mcp"}}}
    gateway = gateway_of(before)
    async with testing.connect(gateway) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("x_wait", returns=str))
        await waiting.begun.wait()
        done = await gateway.reload({**before, "gateway": {"limits": LIMITS}, "http": HTTP})
        assert set(done.settings) == {f"gateway.limits.{name}" for name in LIMITS_AT_USE}
        later = [f"gateway.limits.{name}" for name in LIMITS if name not in LIMITS_AT_USE]
        assert set(done.restart) == {*later, *(f"http.{name}" for name in HTTP)}
        for name, value in LIMITS.items():
            assert (getattr(gateway.limits, name) == value) is (name in LIMITS_AT_USE), name
        waiting.go_on.set()
        assert await calling == "ended well"
        assert (await gateway.reload(before)).restart == ()
        assert gateway.limits == Limits()
    await waiting.end()


@pytest.mark.covers("GW-9.34")
def test_every_key_has_a_row() -> None:
    assert TABLES["gateway"] == GATEWAY.keys()
    assert set(HttpTable.__struct_fields__) == HTTP.keys()
    assert TABLES["mcpServers.x"] == ENTRY.keys()
    assert set(FileTables.__struct_fields__) == {"schema_address", "servers", "vscode_servers", "gateway", "http"}
    assert {name for name, row in GATEWAY.items() if row.shows} | {"limits"} == AT_ONCE.keys()


def test_no_key_below_these_is_overlooked() -> None:
    """A key of a table inside a table changes that table: no class leaves an attribute out when it compares."""
    found: set[type] = set()

    def look(type_: inspect.Type) -> None:
        if isinstance(type_, inspect.StructType) and type_.cls not in found:
            found.add(type_.cls)
            for field in type_.fields:
                look(field.type)
        for name in ("type", "types", "item_type", "value_type"):
            for each in inner if isinstance(inner := getattr(type_, name, ()), tuple) else (inner,):
                look(each)

    look(inspect.type_info(FileTables))
    assert len(found) > 30
    for each in found:
        assert each.__struct_config__.eq, each  # type: ignore[attr-defined]
        assert "__eq__" not in vars(each), each
