"""Every key of the file of a gateway changes while a call runs: it is in force then, or a restart is said to be needed.

The keys come from the tables, so that a key without a row fails here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from joserfc.jwk import ECKey
from msgspec import inspect
from tests.gateway.backs import until
from tests.http1.raw_http import certificate

from toolwire import Server, testing
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.gateway import Breaker, Gateway, Health
from toolwire.gateway.config import apis, gateway_of, making, shapes, tables
from toolwire.gateway.config import authorization as a
from toolwire.gateway.config import credentials as c
from toolwire.gateway.config import policies as p
from toolwire.gateway.config.configuration import AT_ONCE
from toolwire.gateway.config.tables import BackEntry, FileTables, GatewayTable, HttpTable
from toolwire.gateway.lazy_lists import LazyLists
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.openapi import openapi
from toolwire.openapi.lock_file.lock import make_lock, write_lock
from toolwire.search import SearchSettings
from toolwire.server.described_api import DescribedApi
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
API = {"openapi": "pets.json", "api": {"keep": ["*"]}}
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
    "stale": Row(True, lambda gateway: remote(gateway).availability.keeps_stale_lists),
    "ping": Row(False, lambda gateway: not remote(gateway).components.answers_pings),
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
    "search": Row({"mode": "auto"}, lambda gateway: gateway.settings.search.mode == "auto"),
    "schema_profile": Row("nullable"),
    "debug": Row(True, lambda gateway: gateway.settings.debug),
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
    "trust": Row(True, lambda gateway: remote(gateway).components.trusts),
    "views": Row(False, lambda gateway: not remote(gateway).components.shows_views),
    "lazy": Row(True, lambda gateway: isinstance(remote(gateway).lists, LazyLists)),
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
    "openapi": Row("other.json", lambda gateway: names(gateway) == {"x_other", "y_wait"}, API),
    "lock": Row("pets.lock.json", lambda gateway: names(gateway) == {"x_pets", "y_wait"}, {"openapi": "pets.json"}),
    "api": Row({"keep": ["pets"]}, lambda gateway: names(gateway) == {"x_pets", "y_wait"}, {"openapi": "pets.json"}),
    "forward_headers": Row(["x-a"], lambda gateway: entry(gateway).forward_headers == ["x-a"]),
    "policy": Row({"timeout": 7}, lambda gateway: remote(gateway).policy.timeout == 7),
}
TABLES = {
    "gateway": {name for name in GatewayTable.__struct_fields__ if name != "limits"},
    "mcpServers.x": set(BackEntry.__struct_fields__),
}


LIMITS = {name: 0.5 if name == "share" else 17 for name in Limits.__struct_fields__}


def described(name: str) -> bytes:
    """Return the description of an API with one operation and several security schemes."""
    flows = {"authorizationCode": {"authorizationUrl": f"{ISSUER}/a", "tokenUrl": f"{ISSUER}/t", "scopes": {}}}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": name, "version": "1"},
            "servers": [{"url": "https://{region}.example", "name": "one", "variables": {"region": {"default": "a"}}}],
            "paths": {"/things": {"get": {"operationId": name, "security": [{}], "responses": {}}}},
            "components": {"securitySchemes": {"oauth": {"type": "oauth2", "flows": flows}}},
        }
    )


def write_apis(folder: Path) -> None:
    """Write descriptions, a lock file and an overlay."""
    for name in ("pets", "other"):
        (folder / f"{name}.json").write_bytes(described(name))
    actions = [{"target": "$.info", "update": {"title": "changed"}}]
    (folder / "a.overlay.json").write_bytes(msgspec.json.encode({"overlay": "1.0.0", "info": {}, "actions": actions}))
    api = openapi(folder / "pets.json", keep="pets")
    path = folder / "pets.lock.json"
    digests = api.description.digests
    write_lock(path, make_lock(path, api.description, api.definitions, [], source="pets.json", digests=digests), {})


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

    def target_of(self, name: str, entry: Any) -> Target | DescribedApi:
        """Make the target that the file says, whose requests reach the server here."""
        made: Any = self._made(name, entry)
        if isinstance(made, DescribedApi):
            return made
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
    write_apis(tmp_path)
    waiting = Waiting(monkeypatch)
    url = {"url": "http://localhost/mcp"}

    def file(**change: Any) -> dict[str, Any]:
        is_other = {"command", "openapi"} & (row.beside.keys() | change.keys())
        entry = {**({} if is_other else url), **row.beside, **change}
        servers = {"x": entry if table == "mcpServers.x" else url, "y": url}
        return {"mcpServers": servers, "gateway": change if table == "gateway" else {}}

    if table == "mcpServers.x" and {"command", "credentials", "openapi"} & row.beside.keys():
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


def tables_inside() -> dict[type[Any], list[str]]:
    """Return every table that stands in another one, with its keys."""
    found: dict[type[Any], list[str]] = {}

    def look(type_: inspect.Type) -> None:
        if isinstance(type_, inspect.StructType) and type_.cls not in found:
            found[type_.cls] = [field.encode_name for field in type_.fields]
            for field in type_.fields:
                look(field.type)
        for name in ("type", "types", "item_type", "value_type"):
            for each in inner if isinstance(inner := getattr(type_, name, ()), tuple) else (inner,):
                look(each)

    look(inspect.type_info(FileTables))
    return {cls: keys for cls, keys in found.items() if cls not in (FileTables, BackEntry, GatewayTable, HttpTable)}


class Inside(NamedTuple):
    """A table inside another one: where it stands, its members before, and another value for each key."""

    place: str
    before: dict[str, Any]
    values: dict[str, Any]
    around: dict[str, Any] = {}
    """Further members of the table that it stands in."""
    whole: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    """The table before and after, for a key that cannot stand beside the others."""


ISSUER = "https://login.example"
PROVIDER: dict[str, Any] = {
    "issuer": "https://other.example",
    "accept_issuer": {"https://other.example": "https://third.example"},
    "token_endpoint": f"{ISSUER}/token",
    "authorization_endpoint": f"{ISSUER}/authorize",
    "revocation_endpoint": f"{ISSUER}/revoke",
    "resource": "https://api.example",
    "client_id": "other",
    "client_secret": "other secret",
    "client_key": {"key": {"file": "key.pem"}},
    "token_endpoint_auth_method": "client_secret_post",
    "scopes": ["read"],
    "accepts_fewer_scopes": True,
    "dpop": True,
    "parameters": {"prompt": "login"},
    "trusted_hosts": ["login.example"],
}
ENDPOINTS = {"token_endpoint": "https://a.example/token", "authorization_endpoint": "https://a.example/authorize"}
CLIENT: dict[str, Any] = {"issuer": ISSUER, "client_id": "gateway", **ENDPOINTS}
GRANT = {"kind": "client_credentials", "client_id": "a", "secret": "s"}
SUBJECT: dict[str, Any] = {
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "subject_issuers": ["https://idp.example"],
}
IDENTITY = {
    "provider": "https://idp.example",
    "provider_client_id": "a",
    "provider_token_endpoint": "https://idp.example/token",
}
UPSTREAM = {
    "authorize_url": f"{ISSUER}/authorize",
    "token_url": f"{ISSUER}/token",
    "client_id": "gateway",
    "client_secret": "s3cret",
}
JWT = {"issuer": ISSUER, "audience": "api"}
ALONE: dict[str, dict[str, Any]] = {
    "introspection": {"endpoint": f"{ISSUER}/introspect", "audience": "api", "client_id": "a", "client_secret": "s"},
    "entra": {"tenant": "9188040d-6c67-4c5b-b112-36a304b66dad", "client_id": "a", "client_secret": "s"},
    "google": {"client_id": "a", "client_secret": "s"},
    "github": {"client_id": "a", "client_secret": "s", "users": ["anna"]},
    "auth0": {"domain": "a.auth0.example", "audience": "a"},
    "keycloak": {"url": ISSUER, "realm": "a", "audience": "a"},
}
PART: dict[str, Any] = {
    "rate": "5/minute",
    "quota": "5/day",
    "concurrency": 5,
    "timeout": 5.0,
    "rules": {"a": {"at_most": 5}},
    "result": 5000,
    "redact": ["a"],
    "mask": ["[0-9]{9}"],
}
ARGUMENT = {"rename": "b", "description": "D", "fixed": 1, "default": 1, "hidden": True}
SEEN: dict[str, Any] = {
    "title": "T",
    "description": "D",
    "scopes": ["s"],
    "visible_to": ["s"],
    "policy": {"timeout": 5.0},
}
SERVICE = "gateway.credentials.a"
INSIDE: dict[type[Any], Inside] = {
    tables.TlsTable: Inside(
        "mcpServers.x.tls", {"certificate": "tls.pem"}, {"ca": "tls.pem", "certificate": "tls2.pem", "key": "tls.pem"}
    ),
    apis.ApiTable: Inside(
        "mcpServers.x.api",
        {},
        {
            "keep": ["pets"],
            "drop": ["*"],
            "resources": ["pets"],
            "overlays": ["a.overlay.json"],
            "operations": {"pets": {"timeout": 3}},
            "base_url": "https://b.example",
            "server": "one",
            "server_variables": {"region": "b"},
            "credentials": {"oauth": SECRET},
            "output": "none",
            "max_bytes": 10,
            "max_tokens": 10,
            "inline_bytes": 10,
            "max_items": 10,
            "rate": ["10/second"],
            "depth": 3,
            "max_description": 100,
            "watch": 3600.0,
            "passthrough": True,
            "require_scopes": True,
            "reach": ["https://b.example"],
            "origins": ["https://b.example"],
            "shape": "bridge",
            "cache": False,
        },
        {"openapi": "pets.json", "lock": "pets.lock.json"},
    ),
    Breaker: Inside("mcpServers.x.breaker", {}, {"failures": 3, "pause": 3.0, "longest": 99.0, "probes": 2}),
    Health: Inside("mcpServers.x.health", {}, {"every": 900.0, "timeout": 9.0, "failures": 9}),
    c.NoCredentialTable: Inside(SERVICE, {"kind": "none"}, {}),
    c.StaticSecretTable: Inside(
        SERVICE, {"kind": "static_secret", "secret": "s"}, {"secret": "t", "header": "X-Key", "scheme": "Key"}
    ),
    c.UserSecretTable: Inside(SERVICE, {"kind": "user_secret"}, {"hint": "H", "header": "X-Key", "scheme": "Key"}),
    c.UserOAuthTable: Inside(SERVICE, {"kind": "user_oauth", **CLIENT}, PROVIDER),
    c.ServerOAuthTable: Inside(
        SERVICE,
        {"kind": "server_oauth", **CLIENT, "operators": ["anna"]},
        {**PROVIDER, "operators": ["ben"]},
        whole={
            "grant": (
                {"kind": "server_oauth", **CLIENT, "operators": ["anna"]},
                {"kind": "server_oauth", "issuer": ISSUER, "grant": GRANT},
            )
        },
    ),
    c.TokenExchangeTable: Inside(
        SERVICE, {"kind": "token_exchange", **CLIENT}, {**PROVIDER, **SUBJECT, "audience": "api"}
    ),
    c.IdentityAssertionTable: Inside(
        SERVICE,
        {"kind": "identity_assertion", **CLIENT, **IDENTITY},
        {
            **PROVIDER,
            **SUBJECT,
            "provider": "https://new.example",
            "provider_client_id": "b",
            "provider_token_endpoint": "https://new.example/token",
            "provider_secret": "s",
        },
    ),
    c.PassthroughTable: Inside(SERVICE, {"kind": "passthrough", "audience": "a"}, {"audience": "b"}),
    c.KeyTable: Inside(
        f"{SERVICE}.client_key",
        {"key": {"file": "key.pem"}},
        {"key": {"file": "key2.pem"}, "algorithm": "ES384", "key_id": "k"},
        {"kind": "user_oauth", **CLIENT},
    ),
    c.ClientCredentialsTable: Inside(
        f"{SERVICE}.grant",
        GRANT,
        {
            "client_id": "b",
            "secret": "t",
            "issuer": ISSUER,
            "token_endpoint_auth_method": "client_secret_post",
        },
        {"kind": "server_oauth", "issuer": ISSUER},
        {"key": (GRANT, {"kind": "client_credentials", "client_id": "a", "key": {"key": {"file": "key.pem"}}})},
    ),
    c.WorkloadIdentityTable: Inside(
        f"{SERVICE}.grant",
        {"kind": "workload_identity", "client_id": "a", "assertion_file": "jwt"},
        {
            "client_id": "b",
            "assertion_file": "jwt2",
            "secret": "t",
            "key": {"key": {"file": "key.pem"}},
            "issuer": ISSUER,
        },
        {"kind": "server_oauth", "issuer": ISSUER},
    ),
    p.PolicyTable: Inside("gateway.policy", {}, {**PART, "by_scope": {"s": {"timeout": 5.0}}, "implies": {"s": ["t"]}}),
    p.PolicyPart: Inside("gateway.policy.by_scope.s", {}, PART),
    p.Rate: Inside(
        "gateway.policy.rate", {"calls": "5/minute"}, {"calls": "6/minute", "per": "everyone", "shared": True}
    ),
    p.Slots: Inside(
        "gateway.policy.concurrency", {"running": 1}, {"running": 2, "queue": 5, "wait": 5.0, "per": "caller"}
    ),
    p.RuleTable: Inside(
        "gateway.policy.rules.a",
        {"at_most": 1, "inside": "one", "to_hosts": ["a.example"]},
        {
            "at_most": 2,
            "between": [1, 2],
            "one_of": [1],
            "matches": "a",
            "plain_text": True,
            "inside": "two",
            "relative_to": "two",
            "to_hosts": ["b.example"],
            "schemes": ["http"],
        },
    ),
    shapes.ToolTable: Inside(
        "mcpServers.x.tools.wait",
        {},
        {
            **SEEN,
            "rename": "hold",
            "annotations": {"readOnlyHint": True},
            "arguments": {"a": {"description": "D"}},
            "output_schema": "drop",
            "result_budget": 5000,
        },
    ),
    shapes.ArgumentTable: Inside("mcpServers.x.tools.wait.arguments.a", {}, ARGUMENT),
    shapes.PromptTable: Inside(
        "mcpServers.x.prompts.ask", {}, {**SEEN, "rename": "say", "arguments": {"a": {"description": "D"}}}
    ),
    shapes.ResourceTable: Inside("mcpServers.x.resources.note", {}, SEEN),
    shapes.PinsTable: Inside("mcpServers.x.pins", {}, {"stores": "pins.db", "approve_first": False}),
    tables.IconTable: Inside(
        "gateway.icons.0",
        {"src": "https://a.example/i.png"},
        {"src": "https://a.example/j.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"},
    ),
    a.AuthTable: Inside(
        "gateway.auth",
        {"jwt": JWT},
        {
            **KEYS,
            "jwt": {**JWT, "audience": "other"},
            "anonymous": {},
            "scopes": ["s"],
            "scopes_supported": ["s"],
            "authorization_servers": ["https://other.example"],
            "resource": "https://api.example",
            "resource_name": "Work",
            "documentation": "https://docs.example",
            "allow": ["anna"],
            "enabled": False,
            "sign_in": CLIENT,
        },
        whole={
            **{name: ({"jwt": JWT}, {name: table}) for name, table in ALONE.items()},
            "allow_usernames": (KEYS, {**KEYS, "allow_usernames": ["ci"]}),
            "proxy": ({"jwt": JWT}, {"jwt": JWT, "proxy": UPSTREAM}),
            "redirect_schemes": (
                {"jwt": JWT, "proxy": UPSTREAM},
                {"jwt": JWT, "proxy": UPSTREAM, "redirect_schemes": ["cursor"]},
            ),
        },
    ),
    a.ApiKeysTable: Inside(
        "gateway.auth.api_keys", {"keys": {"ci": {"key": KEY}}}, {"keys": {"me": {"key": KEY}}, "header": "X-Key"}
    ),
    a.ApiKeyTable: Inside(
        "gateway.auth.api_keys.keys.ci", {"key": KEY}, {"key": KEY + "0", "scopes": ["s"], "username": "Ci"}
    ),
    a.JwtTable: Inside(
        "gateway.auth.jwt",
        JWT,
        {
            "issuer": "https://other.example",
            "audience": "other",
            "jwks_uri": f"{ISSUER}/keys",
            "keys": {"keys": [ECKey.generate_key("P-256").as_dict(private=False)]},
            "algorithms": ["ES256"],
            "other_audiences": ["b"],
            "scope_claims": ["s"],
            "subject_claims": ["email"],
            "skew": 5,
            "remember": 5,
        },
    ),
    a.IntrospectionTable: Inside(
        "gateway.auth.introspection",
        ALONE["introspection"],
        {
            "endpoint": f"{ISSUER}/other",
            "audience": "other",
            "client_id": "b",
            "client_secret": "t",
            "issuer": ISSUER,
            "other_audiences": ["b"],
            "subject_claims": ["sub", "client_id"],
            "skew": 5,
            "remember": 5,
        },
    ),
    a.AnonymousTable: Inside("gateway.auth.anonymous", {}, {"subject": "guest", "scopes": ["s"]}, KEYS),
    a.EntraTable: Inside(
        "gateway.auth.entra",
        ALONE["entra"],
        {
            "tenant": "9188040d-6c67-4c5b-b112-36a304b66dae",
            "client_id": "b",
            "client_secret": "t",
            "app_id_uri": "api://b",
            "proxy": True,
            "login": "https://login.microsoftonline.us",
        },
    ),
    a.GoogleTable: Inside(
        "gateway.auth.google",
        ALONE["google"],
        {"client_id": "b", "client_secret": "t", "proxy": True},
    ),
    a.Auth0Table: Inside(
        "gateway.auth.auth0",
        ALONE["auth0"],
        {"domain": "b.auth0.example", "audience": "b"},
    ),
    a.KeycloakTable: Inside(
        "gateway.auth.keycloak",
        ALONE["keycloak"],
        {"url": "https://other.example", "realm": "b", "audience": "b"},
    ),
    a.GithubTable: Inside(
        "gateway.auth.github",
        ALONE["github"],
        {
            "client_id": "b",
            "client_secret": "t",
            "users": ["ben"],
            "organization": "work",
            "any_app": True,
            "remember": 5,
            "proxy": True,
            "site": "https://github.example",
            "api": "https://api.github.example",
        },
    ),
    a.ProxyTable: Inside(
        "gateway.auth.proxy",
        UPSTREAM,
        {
            "authorize_url": f"{ISSUER}/other",
            "token_url": f"{ISSUER}/other",
            "client_id": "other",
            "client_secret": "other",
            "parameters": {"prompt": "login"},
        },
        {"jwt": JWT},
    ),
    a.SignInTable: Inside("gateway.auth.sign_in", CLIENT, PROVIDER, {"jwt": JWT}),
    tables.PrincipalTable: Inside(
        "gateway.local_principal",
        {"subject": "anna"},
        {"subject": "ben", "provider": "p", "username": "Anna", "scopes": ["s"], "claims": {"a": 1}},
    ),
    Limits: Inside("gateway.limits", {}, LIMITS),
    tables.AuditTable: Inside(
        "gateway.audit",
        {"logger": "toolwire.test", "key": KEY},
        {
            "logger": "toolwire.other",
            "key": KEY[::-1],
            "anchor": "anchor",
            "anchor_every": 5,
            "redact": ["a"],
            "mask": ["[0-9]{9}"],
            "required": False,
            "queue": 50,
            "max_arguments": 500,
        },
        whole={"path": ({"logger": "toolwire.test", "key": KEY}, {"path": "audit.log", "key": KEY})},
    ),
    tables.MetricsTable: Inside("gateway.metrics", {}, {"token": "t", "buckets": [1.0, 2.0]}),
    SearchSettings: Inside(
        "gateway.search",
        {"mode": "auto"},
        {
            "mode": "always",
            "threshold_tokens": 5,
            "results": 7,
            "pinned": ["a"],
            "deferring_clients": ["x"],
        },
    ),
    tables.Cache: Inside("gateway.cache", {}, {"ttl_ms": 5, "scope": "public"}),
}


def test_every_key_inside_a_table_has_a_row() -> None:
    assert {cls: set(keys) for cls, keys in tables_inside().items()} == {
        cls: {*row.values, *row.whole} for cls, row in INSIDE.items()
    }


def placed(place: str, table: dict[str, Any], around: dict[str, Any]) -> dict[str, Any]:
    """Return the file in which a table stands at a place."""
    url = {"url": "http://localhost/mcp"}
    file: dict[str, Any] = {"mcpServers": {"x": dict(url), "y": dict(url)}, "gateway": {"secret": KEY}}
    *way, last = place.split(".")
    node: Any = file
    for step in way:
        node = node.setdefault(step, {})
    if last == "0":
        list_holder: Any = file
        for step in way[:-1]:
            list_holder = list_holder[step]
        list_holder[way[-1]] = [table]
    else:
        node.update(around)
        node[last] = table
        if "openapi" in around:
            del node["url"]
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the keys and certificates that tables name."""
    folder = tmp_path_factory.mktemp("files")
    write_apis(folder)
    for name in ("tls", "tls2"):
        (folder / name).mkdir()
        certificate(folder / name).rename(folder / f"{name}.pem")
    for name in ("key.pem", "key2.pem"):
        (folder / name).write_bytes(ECKey.generate_key("P-256").as_pem(private=True))
        (folder / name).chmod(0o600)
    return folder


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize("cls", INSIDE, ids=lambda cls: cls.__name__)
async def test_keys_inside_a_table_change_while_a_call_runs(
    cls: type[Any], monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    row = INSIDE[cls]
    monkeypatch.chdir(files)
    waiting = Waiting(monkeypatch)
    before = placed(row.place, row.before, row.around)
    gateway = gateway_of(before)
    table, name = row.place.split(".")[:2]
    async with testing.connect(gateway) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("y_wait", returns=str))
        await waiting.begun.wait()
        changes = {key: (row.before, {**row.before, key: value}) for key, value in row.values.items()} | row.whole
        for key, (first, second) in changes.items():
            if first != row.before:
                await gateway.reload(placed(row.place, first, row.around))
            done = await gateway.reload(placed(row.place, second, row.around))
            if table == "mcpServers":
                assert done.changed == ("x",), key
            else:
                setting = f"gateway.limits.{key}" if name == "limits" else f"gateway.{name}"
                assert {*done.settings, *done.restart} == {setting}, key
            await gateway.reload(before)
        assert not calling.done()
        waiting.go_on.set()
        assert await calling == "ended well"
    await waiting.end()
