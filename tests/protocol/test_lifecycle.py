"""How a server learns the era of a connection, and under which terms it then serves each request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases
from tests.protocol.pair import CLIENT_CAPABILITIES, SERVER_CAPABILITIES, Offer, Pair, initialize, meta, modern, opened

from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.jsonrpc import Request, decode, encode_request
from toolwire.protocol.lifecycle import SUPPORTED, Incoming, ServerLifecycle, Unanswerable, decode_params
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.peer import Answer
from toolwire.protocol.revisions import LATEST_LEGACY, LEGACY, MODERN, REVISIONS

NOT_INITIALIZED = (
    "Send initialize first, or put io.modelcontextprotocol/protocolVersion and "
    "io.modelcontextprotocol/clientCapabilities into params._meta"
)


def extension(name: str = "org.example/do", kind: Any = "request", capability: str | None = None) -> dict[str, Method]:
    row = Method(name=name, kind=kind, sender="client", params=t.RequestParams, capability=capability)
    return {name: row}


# --- the legacy handshake ---


@pytest.mark.covers("1.3.1.1", "1.3.1.2", "1.3.2.2", "1.3.2.5")
@cases("revision", LEGACY)
def test_a_known_revision_is_echoed_with_what_the_server_is(revision: str) -> None:
    pair = Pair()
    result = pair.answered("initialize", initialize(revision))
    assert result["protocolVersion"] == revision
    known = set(SERVER_CAPABILITIES) - ({"completions"} if revision == "2024-11-05" else set())
    assert result["capabilities"] == {name: SERVER_CAPABILITIES[name] for name in known}
    assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("offer", "3")
    assert result["instructions"] == "Ask nicely."
    assert "resultType" not in result
    assert ("title" in result["serverInfo"]) is (revision in ("2025-06-18", "2025-11-25"))
    assert (pair.terms.era, pair.terms.revision) == ("legacy", revision)


@pytest.mark.covers("1.3.1.2")
def test_instructions_are_optional() -> None:
    offer = Offer()
    offer.instructions = UNSET
    assert "instructions" not in Pair(offer).answered("initialize", initialize("2025-11-25"))


@pytest.mark.covers("1.3.2.2", "1.3.2.4", "1.3.2.5", "T-1", "VER-5")
@cases("wanted", ["2024-10-07", "2025-12-31", MODERN, "2099-01-01", "", "latest", "x" * 1000])
def test_any_other_revision_is_answered_with_the_newest_never_an_error(wanted: str) -> None:
    assert Pair().answered("initialize", initialize(wanted))["protocolVersion"] == "2025-11-25"


@pytest.mark.covers("1.3.2.2")
def test_a_server_of_fewer_revisions_answers_with_its_own_newest() -> None:
    revisions = ("2025-06-18", "2024-11-05")
    assert Pair(revisions=revisions).answered("initialize", initialize("2025-11-25"))["protocolVersion"] == "2025-06-18"
    assert Pair(revisions=revisions).answered("initialize", initialize("2024-11-05"))["protocolVersion"] == "2024-11-05"


@pytest.mark.covers("J53", "J59")
@cases("missing", ["protocolVersion", "capabilities", "clientInfo"])
def test_what_a_careless_client_leaves_out_of_initialize_has_a_default(missing: str) -> None:
    pair = Pair()
    params = initialize("2025-06-18")
    del params[missing]
    result = pair.answered("initialize", params)
    assert result["protocolVersion"] == ("2025-11-25" if missing == "protocolVersion" else "2025-06-18")
    assert pair.terms.era == "legacy"
    if missing == "capabilities":
        assert pair.terms.capabilities == {}
    if missing == "clientInfo":
        assert pair.terms.client == t.Implementation("unknown", "")


@pytest.mark.covers("1.3.1.1")
@cases("wrong", ["protocolVersion", "capabilities", "clientInfo"])
def test_what_is_wrong_in_initialize_is_named(wrong: str) -> None:
    pair = Pair()
    error = pair.refused("initialize", {**initialize("2025-11-25"), wrong: 5})
    assert error.code == -32602
    assert wrong in error.message
    assert pair.terms.era == "open"
    pair.answered("initialize", initialize("2025-11-25"))  # It can be put right.


@pytest.mark.covers("1.3.1.7")
@cases("revision", LEGACY)
def test_a_second_initialize_is_refused_and_changes_nothing(revision: str) -> None:
    pair = opened(revision)
    other = "2024-11-05" if revision != "2024-11-05" else "2025-11-25"
    error = pair.refused("initialize", initialize(other, capabilities={}))
    text = "This connection is already initialized: open another one (over HTTP, without Mcp-Session-Id)"
    assert (error.code, error.message) == (-32600, text)
    assert pair.terms.revision == revision
    assert pair.terms.capabilities == CLIENT_CAPABILITIES


@pytest.mark.covers("1.3.1.5", "T-3")
def test_ping_is_answered_before_anything_else() -> None:
    pair = Pair()
    assert pair.answered("ping") == {}
    assert pair.answered("ping", {}) == {}
    assert pair.terms.era == "open"
    pair.answered("initialize", initialize("2025-06-18"))
    assert pair.answered("ping") == {}


@pytest.mark.covers("1.3.1.5")
@cases("method", ["tools/list", "tools/call", "resources/subscribe", "no/such", "server/discover"])
@cases("params", [UNSET, {}, {"_meta": {}}, {"_meta": {"progressToken": 1}}])
def test_any_other_request_before_initialize_is_told_how_to_begin(method: str, params: Any) -> None:
    pair = Pair()
    error = pair.refused(method, params)
    assert (error.code, error.message) == (-32600, NOT_INITIALIZED)
    assert pair.terms.era == "open"
    pair.answered("initialize", initialize("2025-11-25"))


def test_initialized_makes_the_connection_ready_once() -> None:
    pair = Pair()
    assert pair.notify_server("notifications/initialized") == []
    assert pair.terms.ready is False
    pair.answered("initialize", initialize("2025-11-25"))
    assert pair.terms.ready is False
    (event,) = pair.notify_server("notifications/initialized")
    assert isinstance(event, Notice)
    assert pair.terms.ready is True
    assert pair.notify_server("notifications/initialized") == []


def test_a_client_that_asks_is_ready_whether_it_said_so_or_not() -> None:
    pair = Pair()
    pair.answered("initialize", initialize("2025-11-25"))
    assert pair.answered("ping") == {}
    assert pair.terms.ready is False
    pair.served("tools/list")
    assert pair.terms.ready is True


@pytest.mark.covers("1.1.7", "CAP-3")
def test_the_terms_of_a_legacy_request_are_those_of_the_handshake() -> None:
    pair = opened("2025-06-18")
    event = pair.served("tools/call", {"name": "x", "_meta": {"progressToken": "tok", "org.example/k": 1}}, id="a")
    assert (event.id, event.method, event.revision, event.modern) == ("a", "tools/call", "2025-06-18", False)
    assert event.capabilities == CLIENT_CAPABILITIES
    assert event.capabilities["org.example/unknown"] == {"kept": [1]}
    assert event.client.name == "someone"  # type: ignore[union-attr]
    assert (event.progress_token, event.log_level) == ("tok", UNSET)
    assert event.row is methods("2025-06-18")["tools/call"]
    assert event.params.name == "x"
    assert isinstance(event.raw, Raw)
    assert event.principal is None
    assert event.headers is None
    assert pair.served("tools/list", id="b").progress_token is UNSET
    assert pair.served("tools/list", {"_meta": {}}, id="c").progress_token is UNSET


@pytest.mark.covers("1.3.2.6", "2.1.20", "DIS-1")
@cases("revision", REVISIONS)
@cases(
    ("capability", "method", "params"),
    [
        ("tools", "tools/list", {}),
        ("tools", "tools/call", {"name": "x"}),
        ("prompts", "prompts/list", {}),
        ("resources", "resources/list", {}),
        ("resources", "resources/read", {"uri": "a:b"}),
    ],
)
def test_a_method_behind_a_capability_that_is_not_declared_is_not_found(
    revision: str, capability: str, method: str, params: dict[str, Any]
) -> None:
    declared = {name: value for name, value in SERVER_CAPABILITIES.items() if name != capability}
    sent = modern(**params) if revision == MODERN else params
    error = opened(revision, Offer(declared)).refused(method, sent)
    assert (error.code, error.message) == (-32601, f"Method not found: {method}")
    assert opened(revision, Offer({capability: {}})).served(method, sent).method == method


@pytest.mark.covers("DIS-1")
@cases("revision", REVISIONS)
def test_a_method_that_is_not_offered_is_not_found_whatever_its_params(revision: str) -> None:
    broken = {"name": 5}
    sent = modern(**broken) if revision == MODERN else broken
    assert opened(revision, Offer({})).refused("tools/call", sent).code == -32601
    assert opened(revision, Offer({"tools": {}})).refused("tools/call", sent).code == -32602


@pytest.mark.covers("T-4")
def test_an_empty_capability_object_counts_as_declared() -> None:
    assert opened("2025-11-25", Offer({"tools": {}})).served("tools/list").method == "tools/list"
    opened("2025-11-25", Offer({"resources": {}})).refused("resources/subscribe", {"uri": "a:b"})
    declared = Offer({"resources": {"subscribe": True}})
    assert opened("2025-11-25", declared).served("resources/subscribe", {"uri": "a:b"}).params.uri == "a:b"


@pytest.mark.covers("T-5", "2.2.1")
def test_completion_needs_its_capability_except_on_2024_11_05() -> None:
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    assert opened("2024-11-05", Offer({})).served("completion/complete", params).method == "completion/complete"
    for revision in LEGACY[1:]:
        assert opened(revision, Offer({})).refused("completion/complete", params).code == -32601


@pytest.mark.covers("1.3.2.6")
@cases("method", ["roots/list", "sampling/createMessage", "elicitation/create", "notifications/progress"])
@cases("revision", LEGACY)
def test_a_client_cannot_ask_what_only_servers_ask_or_what_is_no_request(revision: str, method: str) -> None:
    error = opened(revision).refused(method, {})
    assert (error.code, error.message) == (-32601, f"Method not found: {method}")


@cases("revision", REVISIONS)
def test_an_unknown_method_is_named_but_not_at_any_length(revision: str) -> None:
    error = opened(revision).refused("m" * 500, modern() if revision == MODERN else UNSET)
    assert (error.code, error.message) == (-32601, "Method not found: " + "m" * 200)


@cases("revision", REVISIONS)
@cases("params", [{"name": 5}, {}, {"name": "x", "arguments": {}, "inputResponses": "soon"}])
def test_params_that_do_not_fit_are_refused_by_name(revision: str, params: dict[str, Any]) -> None:
    pair = opened(revision)
    error = pair.refused("tools/call", modern(**params) if revision == MODERN else params)
    assert error.code == -32602
    assert error.message.startswith("Invalid params for tools/call: ")
    assert "$" in error.message or "`name`" in error.message
    assert "toolwire" not in error.message


@cases("revision", LEGACY)
@cases("params", [[], "text", 5, [{"name": "x"}]])
def test_params_are_an_object(revision: str, params: Any) -> None:
    assert opened(revision).refused("tools/call", params).code == -32602


def test_params_that_cannot_be_read_reveal_nothing() -> None:
    row = methods(MODERN)["tools/call"]
    with pytest.raises(ProtocolError) as caught:
        decode_params(row, Raw(b'{"name":'))
    assert (caught.value.code, caught.value.message) == (-32602, "Invalid params for tools/call: they cannot be read")
    assert caught.value.__suppress_context__


# --- the modern era ---


@pytest.mark.covers("META-3", "VER-4")
def test_a_modern_request_is_served_without_a_handshake_and_without_client_info() -> None:
    event = Pair().served("tools/list", {"_meta": meta(info=None)})
    assert (event.revision, event.modern, event.client) == (MODERN, True, UNSET)


@pytest.mark.covers("META-2")
@cases("era", ["open", "modern"])
@cases("method", ["tools/list", "server/discover", "no/such", "initialize", "ping"])
@cases(("missing", "key"), [("version", "protocolVersion"), ("capabilities", "clientCapabilities")])
def test_a_request_that_lacks_a_required_key_is_refused(era: str, method: str, missing: str, key: str) -> None:
    pair = Pair()
    if era == "modern":
        pair.served("tools/list", modern())
    error = pair.refused(method, {"_meta": meta(**{missing: None})})
    assert error.code == -32602
    assert error.message == f"Missing io.modelcontextprotocol/{key} in params._meta"
    assert pair.terms.era == era


@pytest.mark.covers("META-2", "META-6")
@cases("params", [UNSET, {}, {"_meta": {}}, {"_meta": {"progressToken": 1}}])
@cases("method", ["tools/list", "server/discover", "no/such", "ping"])
def test_on_a_modern_connection_metadata_stays_required(method: str, params: Any) -> None:
    pair = Pair()
    pair.served("tools/list", modern())
    error = pair.refused(method, params)
    assert (error.code, error.message) == (-32602, "Missing io.modelcontextprotocol/protocolVersion in params._meta")


@pytest.mark.covers("META-2")
@cases(
    "changes", [{"version": 5}, {"capabilities": []}, {"capabilities": "all"}, {"info": "me"}, {"log_level": "loud"}]
)
@cases("method", ["tools/list", "no/such"])
def test_metadata_of_the_wrong_type_is_refused(method: str, changes: dict[str, Any]) -> None:
    error = Pair().refused(method, {"_meta": meta(**changes)})
    assert error.code == -32602
    assert error.message.startswith("Invalid params")


@pytest.mark.covers("META-2")
def test_metadata_is_judged_before_the_rest_of_the_params() -> None:
    assert "Missing" in Pair().refused("tools/call", {"_meta": meta(capabilities=None), "name": 5}).message
    unsupported = Pair().refused("tools/call", {"_meta": meta(version="2099-01-01"), "name": 5})
    assert unsupported.code == -32022
    assert Pair().refused("tools/call", {"name": 5}).code == -32600
    assert "`$.name`" in Pair().refused("tools/call", modern(name=5)).message


@pytest.mark.covers("VER-1", "VER-5")
@cases("version", ["2025-11-25", "2024-11-05", "2026-07-29", "2026-07-2", "", "zzz", "v999.0.0"])
@cases("method", ["tools/list", "server/discover", "no/such", "initialize"])
def test_a_version_that_is_not_served_is_refused_with_those_that_are(method: str, version: str) -> None:
    pair = Pair()
    error = pair.refused(method, {"_meta": meta(version=version)})
    assert (error.code, error.message) == (-32022, "Unsupported protocol version")
    assert error.data == {"supported": list(SUPPORTED), "requested": version}
    assert pair.terms.era == "open"  # A probe that failed decides nothing.
    pair.answered("initialize", initialize("2025-11-25"))


@pytest.mark.covers("VER-1")
def test_a_version_of_any_length_is_quoted_in_part() -> None:
    error = Pair().refused("tools/list", {"_meta": meta(version="9" * 5000)})
    assert error.data["requested"] == "9" * 200


@pytest.mark.covers("VER-1")
@cases("method", ["tools/list", "server/discover", "no/such"])
def test_a_version_that_is_known_but_not_served_is_refused(method: str) -> None:
    pair = Pair(revisions=("2025-11-25", "2025-06-18"))
    error = pair.refused(method, modern())
    assert error.code == -32022
    assert error.data == {"supported": ["2025-11-25", "2025-06-18"], "requested": MODERN}


def test_the_order_of_supported_versions_is_newest_first() -> None:
    assert SUPPORTED == (MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


@pytest.mark.covers("META-6", "STL-1", "STL-3")
def test_nothing_is_inferred_from_an_earlier_request() -> None:
    pair = Pair()
    rich = pair.served("tools/call", {"_meta": meta(token="t", log_level="debug"), "name": "x"})
    poor = pair.served("tools/call", {"_meta": meta(capabilities={}, info=None), "name": "x"})
    assert rich.capabilities == CLIENT_CAPABILITIES
    assert (poor.capabilities, poor.client, poor.progress_token, poor.log_level) == ({}, UNSET, UNSET, UNSET)
    again = pair.served("tools/call", {"_meta": meta(), "name": "x"})
    assert again.capabilities == CLIENT_CAPABILITIES


@pytest.mark.covers("META-10", "CAP-3")
def test_unknown_metadata_and_capabilities_never_fail_a_request() -> None:
    odd = {"io.modelcontextprotocol/future": [1], "org.example/x": None, "": 1, "traceparent": "00-0-0-00"}
    event = Pair().served("tools/list", {"_meta": meta(capabilities={"x": 1, "tasks": None}) | odd})
    assert event.capabilities == {"x": 1, "tasks": None}


@pytest.mark.covers("1.3.2.6")
@cases(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list"]
)
def test_methods_of_the_legacy_era_are_unknown_in_the_modern_one(method: str) -> None:
    error = Pair().refused(method, modern(uri="a:b", level="info"))
    assert (error.code, error.message) == (-32601, f"Method not found: {method}")


@pytest.mark.covers("VER-3")
def test_discover_is_served() -> None:
    assert Pair().served("server/discover", modern()).method == "server/discover"


# --- one era a channel ---


@pytest.mark.covers("ERA-1")
def test_the_first_request_decides_the_era() -> None:
    modern_first = Pair()
    modern_first.served("tools/list", modern())
    error = modern_first.refused("initialize", initialize("2025-11-25"))
    assert error.code == -32022
    assert error.message == "This connection speaks 2026-07-28, without initialize"
    assert error.data == {"supported": [MODERN], "requested": "initialize"}
    assert modern_first.terms.era == "modern"
    modern_first.served("tools/list", modern())


@pytest.mark.covers("ERA-1")
@cases("method", ["tools/list", "server/discover", "no/such"])
def test_a_modern_request_on_a_legacy_connection_is_refused(method: str) -> None:
    pair = opened("2025-06-18")
    error = pair.refused(method, modern())
    assert error.code == -32600
    assert error.message == "This connection was initialized with 2025-06-18; requests on it carry no protocol version"
    pair.served("tools/list")


@pytest.mark.covers("ERA-1")
def test_metadata_alone_makes_no_modern_request() -> None:
    pair = opened("2025-11-25")
    pair.served("tools/list", {"_meta": {"progressToken": 1, t.CLIENT_INFO_KEY: {"name": "a", "version": "b"}}})


def test_a_server_of_the_modern_era_alone_says_so_to_initialize() -> None:
    pair = Pair(revisions=(MODERN,))
    error = pair.refused("initialize", initialize("2025-11-25"))
    assert (error.code, error.data["supported"]) == (-32022, [MODERN])
    assert MODERN in error.message


@pytest.mark.covers("ERA-1")
def test_a_probe_that_was_refused_leaves_the_way_to_initialize_open() -> None:
    pair = Pair(revisions=("2025-11-25",))
    assert pair.refused("server/discover", modern()).code == -32022
    assert pair.answered("initialize", initialize("2025-11-25"))["protocolVersion"] == "2025-11-25"


def test_batches_belong_to_one_revision() -> None:
    assert [revision for revision in REVISIONS if opened(revision).terms.batches] == ["2025-03-26"]
    assert not Pair().terms.batches
    terms = ClientLifecycle(lambda revision: {})
    found = []
    for terms.revision in (None, *REVISIONS):
        found += [terms.revision] if terms.batches else []
    assert found == ["2025-03-26"]


# --- extensions ---


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_a_method_of_an_extension_is_served(revision: str) -> None:
    pair = opened(revision, Offer(extensions=extension()))
    params = {"_meta": meta(token=1, log_level="error") if revision == MODERN else {"progressToken": 1}}
    event = pair.served("org.example/do", params, id=9)
    assert (event.id, event.method, event.revision) == (9, "org.example/do", revision)
    assert event.capabilities == CLIENT_CAPABILITIES
    assert event.progress_token == 1
    assert event.client.name == "someone"  # type: ignore[union-attr]
    assert event.log_level == ("error" if revision == MODERN else UNSET)
    assert pair.terms.era == ("modern" if revision == MODERN else "legacy")


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_a_notification_of_an_extension_is_no_request_and_the_other_way_round(revision: str) -> None:
    pair = opened(revision, Offer(extensions=extension("org.example/told", "notification") | extension()))
    params = modern() if revision == MODERN else {}
    assert pair.refused("org.example/told", params).code == -32601
    (event,) = pair.notify_server("org.example/told", {})
    assert isinstance(event, Notice)
    assert pair.notify_server("org.example/do", {}) == []
    assert pair.sent[1:] == []


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
def test_a_method_of_an_extension_can_need_a_capability(revision: str) -> None:
    offer = Offer({"extensions": {"org.example/do": {}}}, extensions=extension(capability="extensions.org.example/do"))
    opened(revision, offer).served("org.example/do", modern() if revision == MODERN else UNSET)
    offer = Offer({}, extensions=extension(capability="extensions.org.example/do"))
    assert opened(revision, offer).refused("org.example/do", modern() if revision == MODERN else UNSET).code == -32601


def test_the_params_of_an_extension_are_checked() -> None:
    row = Method(name="e/x", kind="request", sender="client", params=t.ReadResourceRequestParams)
    error = opened(MODERN, Offer(extensions={"e/x": row})).refused("e/x", modern(uri=5))
    assert error.code == -32602
    assert error.message.startswith("Invalid params for e/x: ")


# --- notifications at the server ---


def test_notifications_are_those_that_clients_send() -> None:
    pair = opened("2025-11-25")
    assert pair.notify_server("notifications/tools/list_changed") == []
    assert pair.notify_server("notifications/message", {"level": "info", "data": 1}) == []
    (event,) = pair.notify_server("notifications/roots/list_changed")
    assert isinstance(event, Notice)
    assert opened(MODERN).notify_server("notifications/roots/list_changed") == []


# --- the client's side ---


@pytest.mark.covers("1.3.2.6")
@cases("revision", LEGACY)
def test_a_client_serves_what_it_declared(revision: str) -> None:
    pair = opened(revision)
    (event,) = pair.to_client(encode_request(1, "roots/list", {"_meta": {"progressToken": "p"}}))
    assert isinstance(event, Incoming)
    assert (event.id, event.revision, event.method, event.progress_token) == (1, revision, "roots/list", "p")
    assert event.row is methods(revision)["roots/list"]
    (event,) = pair.to_client(encode_request(2, "roots/list"))
    assert isinstance(event, Incoming)
    assert event.progress_token is UNSET


@pytest.mark.covers("1.3.2.6", "2.2.11")
def test_a_client_refuses_what_it_did_not_declare_or_does_not_know() -> None:
    terms = ClientLifecycle(lambda revision: {"roots": {}})
    terms.revision = "2025-11-25"
    for method in ("sampling/createMessage", "elicitation/create", "tools/list", "no/such", "notifications/message"):
        with pytest.raises(ProtocolError) as caught:
            terms.accept(Request(1, method, UNSET))
        assert (caught.value.code, caught.value.message) == (-32601, f"Method not found: {method}")
    with pytest.raises(ProtocolError, match=r"Method not found: m{200} "):
        terms.accept(Request(1, "m" * 300, UNSET))
    assert terms.accept(Request(1, "ping", UNSET)) == {}
    terms = ClientLifecycle(lambda revision: CLIENT_CAPABILITIES)
    terms.revision = "2025-03-26"
    with pytest.raises(ProtocolError, match="Method not found"):
        terms.accept(Request(1, "elicitation/create", UNSET))


@pytest.mark.covers("RPC-5")
@pytest.mark.parametrize("revision", [None, MODERN])
def test_before_an_agreement_and_on_the_modern_revision_nothing_is_answered(revision: str | None) -> None:
    terms = ClientLifecycle(lambda revision: CLIENT_CAPABILITIES)
    terms.revision = revision
    for method in ("ping", "roots/list"):
        with pytest.raises(Unanswerable):
            terms.accept(Request(1, method, UNSET))


def test_a_client_checks_the_params_of_what_it_is_asked() -> None:
    pair = opened("2025-11-25")
    pair.to_client(encode_request(1, "sampling/createMessage", {"messages": "none"}))
    assert pair.sent[-1]["error"]["code"] == -32602


def test_a_client_takes_notifications_that_servers_send() -> None:
    pair = opened("2025-11-25")
    (event,) = pair.notify_client("notifications/message", {"level": "info", "data": 1})
    assert isinstance(event, Notice)
    assert pair.notify_client("notifications/roots/list_changed") == []
    assert pair.notify_client("tools/list") == []
    assert pair.notify_client("no/such") == []
    assert pair.notify_client("notifications/message", {"level": "shout"}) == []
    fresh = ClientLifecycle(lambda revision: {})
    assert fresh.notice("notifications/message", Raw(b'{"level":"info","data":1}')) is not None


# --- properties ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
METAS = st.dictionaries(
    st.sampled_from([*sorted(t.MODERN_META_KEYS), "progressToken", "traceparent"]), JSON | st.just(MODERN)
)
PARAMS = st.just(UNSET) | JSON | st.fixed_dictionaries({}, optional={"_meta": METAS | JSON, "name": JSON, "uri": JSON})
METHODS = st.sampled_from(sorted({name for revision in REVISIONS for name in methods(revision)} | {"no/such"}))


@given(st.lists(st.tuples(METHODS, PARAMS), max_size=4), st.sampled_from([None, *REVISIONS]))
def test_every_request_is_served_or_refused_with_a_known_code(
    requests: list[tuple[str, Any]], revision: str | None
) -> None:
    pair = Pair() if revision is None else opened(revision)
    for number, (method, params) in enumerate(requests):
        (event,) = pair.ask(method, params, id=number)
        if isinstance(event, Answer) and event.error is not None:
            assert event.error.code in (-32600, -32601, -32602, -32022)
            assert "toolwire" not in event.error.message
        else:
            assert isinstance(event, Answer | Incoming)


@given(METHODS, PARAMS)
def test_a_lifecycle_raises_nothing_but_refusals(method: str, params: Any) -> None:
    request = decode(encode_request(1, method, params))
    assert isinstance(request, Request)
    terms = ServerLifecycle(Offer())
    try:
        terms.accept(request)
    except ProtocolError:
        assert terms.era == "open"
    terms.notice(method, request.params)


def test_the_newest_legacy_revision_is_what_a_client_offers() -> None:
    assert LATEST_LEGACY == LEGACY[-1] == "2025-11-25"


@cases("revision", LEGACY)
def test_a_connection_that_agreed_elsewhere_is_taken_up(revision: str) -> None:
    pair = Pair()
    pair.terms.adopt(revision, {"roots": {}})
    assert (pair.terms.era, pair.terms.revision, pair.terms.ready) == ("legacy", revision, True)
    event = pair.served("tools/list", id=1)
    assert (event.revision, event.capabilities) == (revision, {"roots": {}})
    assert pair.refused("initialize", initialize(revision)).code == -32600
    assert pair.notify_server("notifications/initialized") == []
    bare = Pair()
    bare.terms.adopt(revision)
    assert bare.served("tools/list").capabilities == {}
