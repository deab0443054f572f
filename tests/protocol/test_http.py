"""The HTTP binding of modern exchanges, without any HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.cases import cases

from toolwire.protocol import types as t
from toolwire.protocol.http import (
    DUPLICATE,
    Acknowledged,
    Rejection,
    accepts,
    classify,
    decode_value,
    encode_value,
    is_modern_post,
    render_argument,
    repeated_name,
    status_of,
)
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle
from toolwire.protocol.revisions import LEGACY

META = {t.PROTOCOL_VERSION_KEY: "2026-07-28", t.CLIENT_CAPABILITIES_KEY: {}}


class Offer:
    implementation = t.Implementation("offer", "1")
    instructions = UNSET

    def capabilities(self, revision: str) -> dict[str, Any]:
        return {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}

    def extension_method(self, method: str) -> None:
        return None

    def repeat(self, text: str) -> str:
        return text


def lifecycle() -> ServerLifecycle:
    made = ServerLifecycle(Offer())
    made.era = "modern"
    return made


def post(
    method: str = "tools/list",
    params: dict[str, Any] | None = None,
    *,
    meta: Any = META,
    headers: Any = None,
    **changes: Any,
) -> Any:
    """Classify a request that is correct but for what is given."""
    params = dict(params or {})
    if meta is not None:
        params["_meta"] = meta
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **changes}
    sent = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    for member in ("name", "uri"):
        if member in params:
            sent["mcp-name"] = params[member]
    sent.update(headers or {})
    sent = {name: value for name, value in sent.items() if value is not None}
    return classify(sent, json.dumps(message).encode(), lifecycle(), lambda tool: PATHS.get(tool, {}))


PATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "route": {"Region": ("region",), "Shard": ("target", "shard"), "Count": ("count",), "Dry": ("dry",)}
}


def refused(verdict: Any) -> tuple[int, int, Any]:
    assert isinstance(verdict, Rejection)
    body = json.loads(verdict.body)
    return verdict.status, body["error"]["code"], body.get("id")


def test_a_correct_request_is_accepted_with_its_terms() -> None:
    verdict = post("tools/call", {"name": "echo", "arguments": {"a": 1}})
    assert isinstance(verdict, Incoming)
    assert (verdict.id, verdict.method, verdict.revision) == (7, "tools/call", "2026-07-28")


@pytest.mark.covers("HTTP-8")
def test_a_notification_is_acknowledged() -> None:
    body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    assert isinstance(classify({}, body, lifecycle(), lambda tool: {}), Acknowledged)


@cases(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b"\xff", -32700),
    ],
)
def test_what_is_no_request_is_400(body: bytes, code: int) -> None:
    status, found, _ = refused(classify({"mcp-method": "tools/list"}, body, lifecycle(), lambda tool: {}))
    assert (status, found) == (400, code)


@cases(
    "meta",
    [None, {}, {t.PROTOCOL_VERSION_KEY: "2026-07-28"}, {t.CLIENT_CAPABILITIES_KEY: {}}, {t.PROTOCOL_VERSION_KEY: 5}],
)
def test_missing_metadata_is_400_and_invalid_params(meta: Any) -> None:
    assert refused(post(meta=meta)) == (400, -32602, 7)


@pytest.mark.covers("HDR-4")
@cases("version", [None, "2025-11-25", "2026-07-28" + DUPLICATE + "2026-07-28", "2026-07-28x"])
def test_the_version_header_must_equal_the_body(version: str | None) -> None:
    assert refused(post(headers={"mcp-protocol-version": version})) == (400, -32020, 7)


def test_a_contradiction_is_told_before_an_unsupported_version() -> None:
    meta = {**META, t.PROTOCOL_VERSION_KEY: "v999.0.0"}
    assert refused(post(meta=meta)) == (400, -32020, 7)
    verdict = post(meta=meta, headers={"mcp-protocol-version": "v999.0.0"})
    assert refused(verdict) == (400, -32022, 7)
    data = json.loads(verdict.body)["error"]["data"]
    assert data["requested"] == "v999.0.0"
    assert "2026-07-28" in data["supported"]


@pytest.mark.covers("HDR-1", "HDR-4")
@cases("method", [None, "TOOLS/LIST", "prompts/list", "tools/list" + DUPLICATE + "tools/list"])
def test_the_method_header_must_equal_the_body(method: str | None) -> None:
    assert refused(post(headers={"mcp-method": method})) == (400, -32020, 7)


@pytest.mark.covers("HDR-1")
def test_blanks_around_a_header_value_are_not_part_of_it() -> None:
    headers = {"mcp-method": "  tools/call ", "mcp-name": "\techo  ", "mcp-protocol-version": " 2026-07-28 "}
    assert isinstance(post("tools/call", {"name": "echo"}, headers=headers), Incoming)


@pytest.mark.covers("HDR-3", "HDR-4")
@cases(
    ("method", "params"),
    [("tools/call", {"name": "échø"}), ("prompts/get", {"name": " x"}), ("resources/read", {"uri": "memo://ü"})],
)
def test_a_name_is_compared_after_decoding(method: str, params: dict[str, str]) -> None:
    name = next(iter(params.values()))
    assert isinstance(post(method, params, headers={"mcp-name": encode_value(name)}), Incoming)
    assert refused(post(method, params, headers={"mcp-name": "other"})) == (400, -32020, 7)
    assert refused(post(method, params, headers={"mcp-name": None})) == (400, -32020, 7)


@pytest.mark.parametrize("meta", [5, {t.PROTOCOL_VERSION_KEY: 5}])
def test_metadata_that_cannot_be_read_does_not_spare_the_name_its_check(meta: Any) -> None:
    assert refused(post("tools/call", {"name": "echo"}, meta=meta, headers={"mcp-name": "other"})) == (400, -32020, 7)
    assert refused(post("tools/call", {"name": "echo"}, meta=meta))[1] == -32602


@cases("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "unknown/method"])
def test_removed_and_unknown_methods_are_404(method: str) -> None:
    assert refused(post(method)) == (404, -32601, 7)


def test_a_method_of_an_undeclared_family_is_404() -> None:
    verdict = post(
        "completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}
    )
    assert refused(verdict) == (404, -32601, 7)


def test_params_that_do_not_fit_are_400() -> None:
    assert refused(post("tools/call", {"name": 5})) == (400, -32602, 7)
    assert refused(post("tools/list", {"cursor": 5})) == (400, -32602, 7)


@pytest.mark.covers("XMH-5", "XMH-6")
@cases(
    ("arguments", "headers", "accepted"),
    [
        ({}, {}, True),
        ({"region": None}, {}, True),
        ({"region": "eu"}, {"mcp-param-region": "eu"}, True),
        ({"region": "eu"}, {}, False),
        ({"region": "eu"}, {"mcp-param-region": "us"}, False),
        ({"region": "eu"}, {"mcp-param-region": "eu" + DUPLICATE + "eu"}, False),
        ({}, {"mcp-param-region": "eu"}, False),
        ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8=?="}, True),
        ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8?="}, False),
        ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVs!!!bG8=?="}, False),
        ({"region": "=?base64?SGVsbG8="}, {"mcp-param-region": "=?base64?SGVsbG8="}, True),
        ({"region": ""}, {"mcp-param-region": ""}, True),
        ({"target": {"shard": "s1"}}, {"mcp-param-shard": "s1"}, True),
        ({"target": {"shard": "s1"}}, {"mcp-param-shard": "s2"}, False),
        ({"target": "s1"}, {}, True),
        ({"count": 42}, {"mcp-param-count": "42"}, True),
        ({"count": 42}, {"mcp-param-count": "42.0"}, True),
        ({"count": 42}, {"mcp-param-count": "43"}, False),
        ({"count": 42}, {"mcp-param-count": "many"}, False),
        ({"count": 42}, {"mcp-param-count": "4.2e1"}, True),
        ({"count": -42}, {"mcp-param-count": "-42"}, True),
        ({"count": 42}, {"mcp-param-count": "4_2"}, False),
        ({"count": 42}, {"mcp-param-count": "=?base64?IDQy?="}, False),
        ({"count": 42}, {"mcp-param-count": "=?base64?2aTZog==?="}, False),
        ({"count": 42}, {"mcp-param-count": "1e999"}, False),
        ({"count": 2**53}, {"mcp-param-count": str(2**53 + 1)}, False),
        ({"count": 42}, {"mcp-param-count": "4" * 5000}, False),
        ({"dry": True}, {"mcp-param-dry": "true"}, True),
        ({"dry": True}, {"mcp-param-dry": "True"}, False),
        ({"dry": False}, {"mcp-param-dry": "false"}, True),
    ],
)
def test_parameter_headers(arguments: dict[str, Any], headers: dict[str, str], accepted: bool) -> None:
    verdict = post("tools/call", {"name": "route", "arguments": arguments}, headers=headers)
    if accepted:
        assert isinstance(verdict, Incoming)
    else:
        assert refused(verdict) == (400, -32020, 7)


@pytest.mark.covers("XMH-3")
@cases(
    ("value", "header"),
    [
        ("eu-1", "eu-1"),
        (-7, "-7"),
        (True, "true"),
        (False, "false"),
        ("naïve", "=?base64?bmHDr3Zl?="),
        (" x", "=?base64?IHg=?="),
        ("a b", "a b"),
        ("a\tb", "=?base64?YQli?="),
        ("=?base64?QQ==?=", "=?base64?PT9iYXNlNjQ/UVE9PT89?="),
    ],
)
def test_values_in_headers(value: Any, header: str) -> None:
    assert encode_value(render_argument(value)) == header
    assert decode_value(header) == render_argument(value)


@given(st.text())
def test_any_text_survives_a_header(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    encoded = encode_value(text)
    assert encoded.isascii()
    assert decode_value(encoded) == text


@pytest.mark.covers("XMH-6")
@cases("header", ["=?base64?QQ=?=", "=?base64?Q Q==?=", "=?base64?/w==?=", "caf\u00e9", "=?base64?QR==?="])
def test_values_that_must_be_refused(header: str) -> None:
    assert decode_value(header) is None


@pytest.mark.covers("ERA-2", "ERA-3")
def test_the_era_of_a_post() -> None:
    modern = json.dumps({"params": {"_meta": META}}).encode()
    for revision in LEGACY:
        assert not is_modern_post({"mcp-protocol-version": revision}, b"{}")
        assert is_modern_post({"mcp-protocol-version": revision}, modern)
        assert not is_modern_post({"mcp-protocol-version": revision, "mcp-session-id": "x"}, modern)
    assert is_modern_post({"mcp-protocol-version": "2026-07-28"}, b"{}")
    assert is_modern_post({"mcp-protocol-version": "v999"}, b"{}")
    assert is_modern_post({}, modern)
    assert not is_modern_post({}, b'{"params":{"_meta":{"progressToken":1}}}')
    # The key inside some other value is no evidence.
    assert not is_modern_post({}, json.dumps({"params": {"text": t.PROTOCOL_VERSION_KEY}}).encode())
    assert not is_modern_post({}, b"not JSON " + t.PROTOCOL_VERSION_KEY.encode())


@cases(
    ("code", "before", "after"),
    [
        (-32700, 400, 200),
        (-32600, 400, 200),
        (-32601, 404, 404),
        (-32602, 400, 200),
        (-32603, 200, 200),
        (-32020, 400, 400),
        (-32021, 400, 400),
        (-32022, 400, 400),
    ],
)
def test_the_status_of_an_error(code: int, before: int, after: int) -> None:
    assert status_of(code, handled=False) == before
    assert status_of(code, handled=True) == after


@cases("value", ["\x1f", "\x7f", "a\tb", "\t", " a", "a ", "é"])
def test_what_a_header_cannot_carry_travels_as_base64(value: str) -> None:
    assert encode_value(value).startswith("=?base64?")
    assert decode_value(encode_value(value)) == value


@cases("header", ["=?base64?=", "=?base64?", "?=", "=?BASE64?YQ==?=", "=?base64?YQ=="])
def test_what_is_no_whole_marker_is_a_text(header: str) -> None:
    assert decode_value(header) == header


def test_nothing_may_travel_as_base64() -> None:
    assert decode_value("=?base64??=") == ""


@cases("value", ["", "~", "a b", "!~"])
def test_what_a_header_can_carry_travels_as_it_is(value: str) -> None:
    assert encode_value(value) == value


# --- what a client takes ---


@cases(
    ("header", "json", "stream"),
    [
        (None, True, True),
        ("*/*", True, True),
        ("application/json", True, False),
        ("application/json, text/event-stream", True, True),
        ("Text/Event-Stream;q=0.5 , application/json; charset=utf-8", True, True),
        (f"application/json{DUPLICATE}text/event-stream", True, True),
        ("application/*", True, False),
        ("text/*;q=0.1", False, True),
        ("text/html, image/*", False, False),
        ("", False, False),
        (";application/json", False, False),
    ],
)
def test_the_types_that_a_client_takes(header: str | None, json: bool, stream: bool) -> None:
    headers = {} if header is None else {"accept": header}
    assert accepts(headers, "application/json") is json
    assert accepts(headers, "text/event-stream") is stream


@cases(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "a", "taskId": "b"}, "a"),
        ("resources/read", {"uri": "a", "name": "b"}, "a"),
        ("tasks/get", {"taskId": "a", "name": "b"}, "a"),
        ("tools/list", {"name": "a"}, None),
    ],
)
def test_header_repeats_the_name_in_plain_params(method: str, params: dict[str, str], name: str | None) -> None:
    assert repeated_name(method, params) == name
