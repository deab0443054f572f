"""Every key of the file: each option of the library has one, and each takes effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import everything

from toolwire import Client, Gateway, Policy, Server
from toolwire.audit import AuditLog
from toolwire.auth import JWT, ApiKeys, Introspection, OAuthProxy, Principal, ResourceServer, Upstream, presets
from toolwire.auth.client.grants import ClientCredentials, WorkloadIdentity
from toolwire.auth.client.signing import PrivateKey
from toolwire.auth.vault import kinds
from toolwire.gateway.config import apis, gateway_options, make_gateway, making, read_gateway_file
from toolwire.gateway.config import authorization as a
from toolwire.gateway.config import credentials as c
from toolwire.gateway.config import policies as p
from toolwire.gateway.config import shapes as s
from toolwire.gateway.config import tables as t
from toolwire.gateway.config.making import back_options
from toolwire.openapi import openapi
from toolwire.protocol import types
from toolwire.protocol.errors import ServerError
from toolwire.server.metrics import Metrics
from toolwire.server.policy import rules
from toolwire.server.run_http import Options
from toolwire.shape import ArgumentShape, PromptShape, ResourceShape, ToolPins, ToolShape

BACK = {"url": "http://localhost:1/mcp"}
#: Options that are code. Programs give them to `gateway_of`.
OF_CODE = {"self", "fetch", "clock", "options", "advertise", "fetch_metadata", "approve", "approval_timeout"}
#: Options of `Server` that are code or need code, or for which a file has another way.
OF_SERVER_CODE = {"tools", "resources", "templates", "prompts", "completions", "lifespan", "middleware", "tasks"}
# Each table, what it describes, the options without a key, and the keys that are no option.
DESCRIBED: list[tuple[type[Any], list[Any], set[str], set[str]]] = [
    (t.GatewayTable, [Server.__init__, Gateway.__init__], OF_SERVER_CODE, set()),
    (t.HttpTable, [Options], {"on_ready", "cors"}, set()),
    (
        t.BackEntry,
        [Gateway.add],
        {"target", "name", "auth", "shape"},
        {"command", "args", "url", "type", "transport", "disabled", "openapi", "lock", "api", *s.SHAPE_KEYS},
    ),
    # The others are keys of the entry, or of a program.
    (
        apis.ApiTable,
        [openapi],
        {
            "source",
            "lock",
            "base_uri",
            "timeout",
            "forward_headers",
            "client",
            "tls",
            "proxy",
            "limits",
            "description_path",
            "lifespan",
        },
        set(),
    ),
    (s.ToolTable, [ToolShape], set(), set()),
    (s.PromptTable, [PromptShape], set(), set()),
    (s.ResourceTable, [ResourceShape], set(), set()),
    (s.ArgumentTable, [ArgumentShape], set(), set()),
    (s.PinsTable, [ToolPins.__init__], set(), set()),
    (t.AuditTable, [AuditLog.__init__], {"target"}, {"path", "logger"}),
    (t.MetricsTable, [Metrics.__init__], set(), set()),
    (t.PrincipalTable, [Principal], {"is_shared"}, set()),
    (t.IconTable, [types.Icon], set(), set()),
    (p.PolicyTable, [Policy], {"by_principal"}, {"by_scope"}),
    (p.PolicyPart, [Policy], {"by_principal", "implies"}, set()),
    (a.ApiKeysTable, [ApiKeys.__init__], set(), set()),
    (a.JwtTable, [JWT.__init__], set(), set()),
    (a.IntrospectionTable, [Introspection.__init__], set(), set()),
    (a.EntraTable, [presets.entra], {"scopes"}, set()),
    (a.GoogleTable, [presets.google], {"scopes", "endpoints"}, set()),
    (a.Auth0Table, [presets.auth0], {"scopes"}, set()),
    (a.KeycloakTable, [presets.keycloak], {"scopes"}, set()),
    (a.GithubTable, [presets.github], {"scopes"}, set()),
    (a.ProxyTable, [Upstream], {"scope_text", "includes"}, set()),
    (
        a.AuthTable,
        [ResourceServer.__init__, OAuthProxy.__init__],
        {"verifier", "upstream"},
        {"api_keys", "jwt", "introspection", "anonymous", "proxy", *a.PRESETS},
    ),
    (c.StaticSecretTable, [kinds.StaticSecret.__init__], set(), set()),
    (c.UserSecretTable, [kinds.UserSecret.__init__], set(), set()),
    (c.ProviderTable, [kinds.Provider.__init__], set(), set()),
    (c.ServerOAuthTable, [kinds.Provider.__init__, kinds.ServerOAuth.__init__], set(), set()),
    (c.TokenExchangeTable, [kinds.Provider.__init__, kinds.TokenExchange.__init__], set(), set()),
    (c.IdentityAssertionTable, [kinds.Provider.__init__, kinds.IdentityAssertion.__init__], set(), set()),
    (c.PassthroughTable, [kinds.Passthrough.__init__], set(), set()),
    (c.KeyTable, [PrivateKey.__init__], set(), set()),
    (c.ClientCredentialsTable, [ClientCredentials.__init__], set(), set()),
    (c.WorkloadIdentityTable, [WorkloadIdentity.__init__], {"assertion"}, {"assertion_file"}),
]


def parameters(described: Any) -> set[str]:
    fields = getattr(described, "__struct_fields__", None)
    return set(fields or inspect.signature(described).parameters)


@pytest.mark.covers("GW-9.1")
@cases(("table", "described", "without", "further"), DESCRIBED, ids=[row[0].__name__ for row in DESCRIBED])
def test_every_option_has_a_key(table: Any, described: list[Any], without: set[str], further: set[str]) -> None:
    options = {each for one in described for each in parameters(one)} - OF_CODE - without
    assert set(table.__struct_fields__) == options | further


def test_every_rule_for_arguments_has_a_key() -> None:
    public = {
        name for name, rule in vars(rules).items() if inspect.isfunction(rule) and rule.__module__ == rules.__name__
    }
    helpers = {"check", "passes"}
    assert set(p.RuleTable.__struct_fields__) - {"relative_to", "schemes"} == {
        each for each in public - helpers if not each.startswith("_")
    }


def options_of(key: str, value: Any, folder: Path) -> Mapping[str, Any]:
    file = folder / "gateway.json"
    file.write_bytes(msgspec.json.encode({"mcpServers": {"back": BACK}, "gateway": {key: value}}))
    return gateway_options(read_gateway_file(file))


SECRET = "0123456789abcdef"
AUTH = {"api_keys": {"keys": {"ann": {"key": "key-of-ann"}}}}
# Each key of the table `gateway`, two values, and what is seen of them.
ROWS: list[tuple[str, Any, Any, Callable[[Any], Any] | None, Any, Any]] = [
    ("name", "a", "b", None, "a", "b"),
    ("version", "1", "2", None, "1", "2"),
    ("title", "A", "B", None, "A", "B"),
    ("description", "A", "B", None, "A", "B"),
    ("website_url", "https://a.example", "https://b.example", None, "https://a.example", "https://b.example"),
    ("icons", [{"src": "https://a.example/i"}], [], lambda found: len(found), 1, 0),
    ("instructions", "A", "B", None, "A", "B"),
    ("strict", True, False, None, True, None),
    ("stale", True, False, None, True, None),
    ("ping", True, False, None, None, False),
    ("auth", AUTH, AUTH | {"scopes": ["read"]}, lambda found: set(found.scopes), set(), {"read"}),
    ("local_principal", {"subject": "a"}, {"subject": "b"}, lambda found: found.subject, "a", "b"),
    ("policy", {"timeout": 1}, {"timeout": 2}, lambda found: found.timeout, 1, 2),
    ("limits", {"line": 1000}, {"line": 2000}, lambda found: found.line, 1000, 2000),
    (
        "audit",
        {"path": "a", "key": SECRET * 2},
        {"logger": "b", "key": SECRET * 2, "required": False},
        lambda found: found.required,
        True,
        False,
    ),
    ("metrics", True, {"token": "t"}, lambda found: found is True, True, False),
    ("tracing", True, False, None, True, None),
    ("stores", "a.db", "redis://localhost:1/0", lambda found: type(found).__name__, "SqliteStores", "RedisStores"),
    ("secret", SECRET, [SECRET, SECRET * 2], lambda found: len(found), 1, 2),
    ("credentials", {"a": {"kind": "none"}}, {"b": {"kind": "none"}}, list, ["a"], ["b"]),
    ("directory", "a", "b", lambda found: Path(found).name, "a", "b"),
    (
        "capabilities",
        {"experimental": {"a": {}}},
        {"experimental": {}},
        None,
        {"experimental": {"a": {}}},
        {"experimental": {}},
    ),
    ("page_size", 1, 2, None, 1, 2),
    ("cache", {"ttl_ms": 1}, {"ttl_ms": 2}, lambda found: found.ttl_ms, 1, 2),
    ("search", {"mode": "auto"}, {"mode": "always", "pinned": ["a"]}, lambda found: found.mode, "auto", "always"),
    ("schema_profile", "nullable", "portable", None, "nullable", None),
    ("debug", True, False, None, True, None),
]


@pytest.mark.parametrize(("key", "first", "second", "look", "seen", "seen_then"), ROWS, ids=[row[0] for row in ROWS])
def test_keys_of_the_gateway_take_effect(
    key: str, first: Any, second: Any, look: Callable[[Any], Any] | None, seen: Any, seen_then: Any, tmp_path: Path
) -> None:
    for value, expected in ((first, seen), (second, seen_then)):
        found = options_of(key, value, tmp_path).get(key)
        assert (found if look is None or found is None else look(found)) == expected


def test_every_key_of_the_gateway_has_a_row() -> None:
    assert {row[0] for row in ROWS} == set(t.GatewayTable.__struct_fields__)


def back_of(member: str, value: Any, folder: Path, kind: str = "url") -> Mapping[str, Any]:
    entry = {"url": "http://localhost:1/mcp"} if kind == "url" else {"command": "program"}
    file = folder / "gateway.json"
    file.write_bytes(msgspec.json.encode({"mcpServers": {"back": {**entry, member: value}}}))
    return back_options(read_gateway_file(file), "back")


BACK_ROWS: list[tuple[str, Any, Any, Callable[[Any], Any] | None, Any, Any]] = [
    ("prefix", "", "x_", None, "", "x_"),
    ("timeout", 1, 2.5, None, 1, 2.5),
    ("revision", "2025-11-25", "2026-07-28", None, "2025-11-25", "2026-07-28"),
    ("list_timeout", 1, 2, None, 1, 2),
    ("trust", True, False, None, True, None),
    ("views", False, True, None, False, None),
    ("lazy", True, False, None, True, None),
    ("breaker", False, {}, lambda found: found is False, True, False),
    ("health", {"every": 5}, {"every": 6}, lambda found: found.every, 5, 6),
    ("max_calls", 1, 2, None, 1, 2),
    ("max_calls_per_caller", 1, 2, None, 1, 2),
    ("queue", 1, 2, None, 1, 2),
    ("queue_seconds", 1, 2, None, 1, 2),
    ("isolation", "shared", "conversation", None, "shared", "conversation"),
    ("max_processes", 1, 2, None, 1, 2),
    ("idle_seconds", 1, 2, None, 1, 2),
    ("credentials", {"kind": "none"}, {"kind": "user_secret"}, lambda kind: kind.is_per_user, False, True),
    ("list_credentials", {"kind": "none"}, {"kind": "static_secret", "secret": "x"}, repr, None, "StaticSecret(...)"),
    ("credential_variable", "A", "B", None, "A", "B"),
    ("forward_headers", ["x-a"], ["x-b"], None, ["x-a"], ["x-b"]),
    ("policy", {"timeout": 1}, {"timeout": 2}, lambda policy: policy.timeout, 1, 2),
]
HERE = "http://localhost:1/mcp"
TARGET_ROWS: list[tuple[str, str, Any, Any, int | str, Any, Any]] = [
    ("command", "args", ["a"], ["b", "c"], 0, ["program", "a"], ["program", "b", "c"]),
    ("command", "env", {"A": "1"}, {"B": "2"}, 2, {"A": "1"}, {"B": "2"}),
    ("command", "cwd", "/a", "/b", 3, "/a", "/b"),
    ("command", "inherit_env", True, False, 5, True, False),
    ("command", "command", "other", "third", 0, ["other"], ["third"]),
    ("url", "url", "http://a/mcp", "http://b/mcp", 0, "http://a/mcp", "http://b/mcp"),
    ("url", "urls", ["http://a/mcp"], ["http://b/mcp"], 0, [HERE, "http://a/mcp"], [HERE, "http://b/mcp"]),
    ("url", "headers", {"A": "1"}, {"B": "2"}, "headers", {"A": "1"}, {"B": "2"}),
    ("url", "proxy", "http://a:1", "http://b:1", "proxy", "http://a:1", "http://b:1"),
    ("url", "type", "http", "sse", 0, "http://localhost:1/mcp", "http://localhost:1/mcp"),
    ("url", "transport", "http", "sse", 0, "http://localhost:1/mcp", "http://localhost:1/mcp"),
]


@pytest.mark.parametrize(
    ("key", "first", "second", "look", "seen", "seen_then"), BACK_ROWS, ids=[row[0] for row in BACK_ROWS]
)
def test_keys_of_a_server_take_effect(
    key: str, first: Any, second: Any, look: Callable[[Any], Any] | None, seen: Any, seen_then: Any, tmp_path: Path
) -> None:
    for value, expected in ((first, seen), (second, seen_then)):
        found = back_of(key, value, tmp_path).get(key)
        assert expected is None or (found if look is None or found is None else look(found)) == expected


#: Keys of a server's shape: two values, and the names of the tools, prompts and resources that come through.
SHAPE_ROWS: dict[str, tuple[Any, Any, Any, Any]] = {
    "allow": (["add"], ["b*"], ["add"], ["book"]),
    "deny": (["[!a]*"], ["[!w]*"], ["add"], ["words"]),
    "allow_prompts": (["no"], ["*"], [], ["brief"]),
    "deny_prompts": (["*"], ["no"], [], ["brief"]),
    "allow_resources": (["no"], ["note://today"], [], ["note://today"]),
    "deny_resources": (["*"], ["no"], [], ["note://today"]),
    "allow_extensions": ([], ["*"], [], ["com.example/notes"]),
    "deny_extensions": (["com.*"], ["no.*"], [], ["com.example/notes"]),
    "tools": ({"add": {"rename": "plus"}}, {"add": {"rename": "sum"}}, "plus", "sum"),
    "prompts": ({"brief": {"rename": "one"}}, {"brief": {"rename": "two"}}, ["one"], ["two"]),
    "resources": ({"note://today": {"title": "One"}}, {"note://today": {"title": "Two"}}, "One", "Two"),
    "scopes": ("a", ["b"], frozenset({"a"}), frozenset({"b"})),
    "visible_to": (["a"], "b", frozenset({"a"}), frozenset({"b"})),
    "result_budget": (2048, 4096, 2048, 4096),
    "pins": (True, {"approve_first": False}, 0, 6),
}


@pytest.mark.covers("GW-8.1", "GW-8.2")
@pytest.mark.parametrize("key", SHAPE_ROWS)
async def test_keys_of_a_shape_take_effect(key: str, tmp_path: Path) -> None:
    first, second, seen, seen_then = SHAPE_ROWS[key]
    for value, expected in ((first, seen), (second, seen_then)):
        shape = back_of(key, value, tmp_path)["shape"]
        back = everything()
        back.extension("com.example/notes")
        gateway = Gateway("front")
        gateway.add("back", back, prefix="", shape=shape)
        async with Client(gateway):
            mount = gateway.catalog.mounts[0]
            tools = {tool.name: tool for tool in gateway.tools}
            found: dict[str, Any] = {
                "allow": list(tools),
                "deny": list(tools),
                "prompts": [each.name for each in gateway.prompts],
                "resources": [each.title for each in gateway.resources],
                "tools": "sum" if "sum" in tools else "plus" if "plus" in tools else None,
                "scopes": mount.scopes,
                "visible_to": None if mount.visible_to is None else mount.visible_to.scopes,
                "result_budget": next(iter(tools.values())).result_budget if tools else None,
                "pins": len(gateway.backs["back"].quarantined),
            }
            found["allow_prompts"] = found["deny_prompts"] = found["prompts"]
            found["allow_resources"] = found["deny_resources"] = [each.uri for each in gateway.resources]
            extensions = [each for each in gateway.catalog.all_extensions() if each.startswith("com.")]
            found["allow_extensions"] = found["deny_extensions"] = extensions
        if key == "resources":
            assert expected in found[key]
        else:
            assert found[key] == expected


@pytest.mark.parametrize(
    ("kind", "key", "first", "second", "place", "seen", "seen_then"), TARGET_ROWS, ids=[row[1] for row in TARGET_ROWS]
)
def test_keys_of_a_target_take_effect(
    kind: str,
    key: str,
    first: Any,
    second: Any,
    place: int | str,
    seen: Any,
    seen_then: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def target(*words: Any, **named: Any) -> Mapping[int | str, Any]:
        return {**dict(enumerate(words)), **named}

    monkeypatch.setattr(making, "CommandTarget", target)
    monkeypatch.setattr(making, "SeveralUrls", target)
    monkeypatch.setattr(making, "HttpTarget", target)
    for value, expected in ((first, seen), (second, seen_then)):
        assert back_of(key, value, tmp_path, kind)["target"][place] == expected


def test_certificates(tmp_path: Path) -> None:
    """`tls` names files beside the configuration."""
    with pytest.raises(ServerError, match=r"mcpServers.back: .*No such file"):
        back_of("tls", {"ca": "gone.pem"}, tmp_path)
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ServerError, match=r"mcpServers\.back"):
        back_of("tls", {"ca": "ca.pem"}, tmp_path)
    with pytest.raises(ServerError, match="is a command, which has no tls"):
        back_of("tls", {}, tmp_path, "command")


def test_every_key_of_a_server_has_a_row() -> None:
    rows = {row[0] for row in BACK_ROWS} | {row[1] for row in TARGET_ROWS} | {"tls", "disabled"} | SHAPE_ROWS.keys()
    rows |= {"openapi", "lock", "api"}  # tests/gateway/test_apis.py
    assert rows == set(t.BackEntry.__struct_fields__)


HTTP_ROWS: dict[str, tuple[Any, Any]] = {
    "host": ("0.0.0.0", "localhost"),
    "port": (1, 2),
    "path": ("/a", "/b"),
    "workers": (2, 3),
    "public_url": ("https://a.example", "https://b.example"),
    "allowed_hosts": (["a"], ["b"]),
    "allowed_origins": (["https://a.example"], ["*"]),
    "allow_unauthenticated": (True, False),
    "stateless": (True, False),
    "sse": (True, False),
    "access_log": (True, False),
    "trusted_proxies": (["10.0.0.0/8"], ["::1"]),
    "log_level": ("info", "error"),
    "stores_wait": (1, 0),
}


@cases("key", t.HttpTable.__struct_fields__)
def test_keys_of_http_take_effect(key: str) -> None:
    for value in HTTP_ROWS[key]:
        options = read_gateway_file({"mcpServers": {"back": BACK}, "http": {key: value}}).http_options()
        expected = tuple(value) if isinstance(value, list) else value
        assert options.get(key, False) == expected
        assert msgspec.convert({**options}, Options)


def test_values_are_hidden_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADDRESS", "ftp://s3cret.example")
    for url in ("${ADDRESS}", {"env": "ADDRESS"}):
        with pytest.raises(ServerError, match="is not the URL of a server") as caught:
            make_gateway(read_gateway_file({"mcpServers": {"back": {"url": url}}}))
        assert "s3cret" not in str(caught.value)
