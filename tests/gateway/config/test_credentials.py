"""Whose account acts at a server, as the file says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey
from tests.cases import cases

from toolwire.auth.client.grants import WorkloadIdentity
from toolwire.auth.vault import kinds
from toolwire.gateway.config import credentials, make_gateway, read_gateway_file
from toolwire.gateway.config.making import back_options
from toolwire.protocol.errors import ServerError

ISSUER = {"issuer": "https://login.example", "client_id": "gateway", "client_secret": "s3cret"}
KEY = {"key": ECKey.generate_key("P-256").as_pem(private=True).decode(), "key_id": "k"}
KINDS: list[tuple[dict[str, Any], type[Any]]] = [
    ({"kind": "none"}, kinds.NoCredential),
    ({"kind": "static_secret", "secret": "s3cret", "header": "X-Key", "scheme": ""}, kinds.StaticSecret),
    ({"kind": "user_secret", "hint": "Ask your admin"}, kinds.UserSecret),
    ({"kind": "user_oauth", **ISSUER, "scopes": ["read"], "dpop": True}, kinds.UserOAuth),
    ({"kind": "user_oauth"}, kinds.UserOAuth),
    ({"kind": "user_oauth", "issuer": "https://login.example", "client_id": "a", "client_key": KEY}, kinds.UserOAuth),
    (
        {"kind": "server_oauth", "issuer": "https://login.example",
         "grant": {"kind": "client_credentials", "client_id": "a", "secret": "s3cret"}},
        kinds.ServerOAuth,
    ),
    (
        {"kind": "server_oauth", "issuer": "https://login.example",
         "grant": {"kind": "client_credentials", "client_id": "a", "key": KEY}},
        kinds.ServerOAuth,
    ),
    (
        {"kind": "server_oauth", "grant": {"kind": "workload_identity", "client_id": "a", "assertion_file": "jwt"}},
        kinds.ServerOAuth,
    ),
    ({"kind": "server_oauth", **ISSUER, "operators": ["ann"]}, kinds.ServerOAuth),
    ({"kind": "token_exchange", **ISSUER, "audience": "api"}, kinds.TokenExchange),
    (
        {"kind": "identity_assertion", **ISSUER, "provider": "https://idp.example", "provider_client_id": "a",
         "provider_token_endpoint": "https://idp.example/token"},
        kinds.IdentityAssertion,
    ),
    ({"kind": "passthrough", "audience": "https://api.example"}, kinds.Passthrough),
]  # fmt: skip


def file_of(entry: dict[str, Any], **gateway: Any) -> dict[str, Any]:
    url = "https://back.example/mcp"
    return {"mcpServers": {"back": {"url": url, **entry}}, "gateway": {"secret": "0123456789abcdef", **gateway}}


@cases(("table", "kind"), KINDS, ids=lambda each: each["kind"] if isinstance(each, dict) else "")
def test_every_kind(table: dict[str, Any], kind: type[Any]) -> None:
    """Each kind can be given to a server, and to the tools of the gateway itself."""
    content = file_of({"credentials": table}, credentials={"service": table} if "issuer" in table else None)
    options = back_options(read_gateway_file(content), "back")
    assert type(options["credentials"]) is kind
    gateway = make_gateway(read_gateway_file(content))
    assert "back" in gateway.vault


def test_the_kinds_of_the_vault_have_tables() -> None:
    assert {kind for _, kind in KINDS} == set(kinds.KINDS)


def test_lists_are_read_with_another_account() -> None:
    account = {"kind": "static_secret", "secret": "s3cret"}
    gateway = make_gateway(
        read_gateway_file(file_of({"credentials": {"kind": "user_oauth"}, "list_credentials": account}))
    )
    assert "back (lists)" in gateway.vault


def test_a_command_finds_the_secret_in_a_variable() -> None:
    entry = {"command": "program", "credentials": {"kind": "user_secret"}, "credential_variable": "API_KEY"}
    gateway = make_gateway(read_gateway_file({"mcpServers": {"back": entry}}))
    assert gateway.vault.has_accounts


def test_the_token_of_a_platform_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform replaces the token, so that a copy of it is worthless soon."""
    given: list[Any] = []

    class Recorded(WorkloadIdentity):
        def __init__(self, client_id: str, assertion: Any, **options: Any) -> None:
            given.append(assertion)
            super().__init__(client_id, assertion, **options)

    monkeypatch.setattr(credentials, "WorkloadIdentity", Recorded)
    table = {"kind": "server_oauth", "grant": {"kind": "workload_identity", "client_id": "a", "assertion_file": "jwt"}}
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps(file_of({"credentials": table})))
    back_options(read_gateway_file(file), "back")
    for text in ("first", "second"):
        (tmp_path / "jwt").write_text(f"{text}\n")
        assert given[0]() == text


@cases(
    ("table", "text"),
    [
        ({"kind": "user_auth"}, "mcpServers.back.credentials.kind: it is one of none, static_secret"),
        ({}, "mcpServers.back.credentials.kind: it is one of"),
        ({"kind": "static_secret"}, "missing required field `secret`"),
        ({"kind": "static_secret", "secret": "a\nb"}, "mcpServers.back.credentials"),
        ({"kind": "user_oauth", "client_secret": "x"}, "need client_id="),
        ({"kind": "user_oauth", "scope": "x"}, "credentials.scope: .*'scopes'"),
        ({"kind": "server_oauth", **ISSUER}, "grant=, or the operators="),
        ({"kind": "user_oauth", "issuer": "x", "client_id": "a", "client_key": {"key": "no key"}}, "credentials"),
    ],
)
def test_mistakes(table: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make_gateway(read_gateway_file(file_of({"credentials": table})))
