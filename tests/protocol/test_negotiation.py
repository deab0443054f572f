"""How a client finds the revision to speak, step by step, against scripted and real servers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases
from tests.protocol.pair import CLIENT_CAPABILITIES, SERVER_CAPABILITIES, Offer, Pair

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.jsonrpc import encode_request
from toolwire.protocol.lifecycle import SUPPORTED, Incoming
from toolwire.protocol.lifecycle.negotiation import Agreement, Ask, NoCommonRevision, Outcome, negotiate
from toolwire.protocol.peer import Answer
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS

CLIENT = t.Implementation("someone", "1", title="Some One")


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def discovered(*versions: str, **more: Any) -> Raw:
    identity = {t.SERVER_INFO_KEY: {"name": "srv", "version": "2"}}
    result = {"resultType": "complete", "supportedVersions": versions, "capabilities": {"tools": {}}, "_meta": identity}
    return raw(result | {"ttlMs": 0, "cacheScope": "private"} | more)


def initialized(version: str, **more: Any) -> Raw:
    identity = {"name": "old", "version": "1"}
    return raw({"protocolVersion": version, "capabilities": {"prompts": {}}, "serverInfo": identity} | more)


def unsupported(*versions: Any, code: int = -32022) -> ProtocolError:
    return ProtocolError(code, "Unsupported protocol version", {"supported": list(versions), "requested": MODERN})


def play(*outcomes: Outcome, revision: str | None = None) -> tuple[list[Ask], Agreement]:
    """Carry a negotiation out with these answers; what was asked, and what came of it."""
    steps = negotiate(CLIENT, lambda revision: CLIENT_CAPABILITIES, revision)
    asked = [next(steps)]
    try:
        for outcome in outcomes:
            ask = steps.send(outcome)
            asked.append(ask)
    except StopIteration as end:
        return asked, end.value
    raise AssertionError(f"it still asks {asked[-1].method}")


def fail(*outcomes: Outcome, revision: str | None = None) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        play(*outcomes, revision=revision)
    return caught.value


def names(asked: list[Ask]) -> list[tuple[str, str]]:
    return [(ask.method, ask.revision) for ask in asked]


# --- modern ---


@pytest.mark.covers("ERA-6", "META-1", "META-4")
def test_the_first_question_is_a_probe_with_full_metadata() -> None:
    ask = next(negotiate(CLIENT, lambda revision: {"seen": revision}))
    assert (ask.method, ask.revision) == ("server/discover", MODERN)
    sent = msgspec.to_builtins(ask.params)["_meta"]
    assert sent == {
        t.PROTOCOL_VERSION_KEY: MODERN,
        t.CLIENT_CAPABILITIES_KEY: {"seen": MODERN},
        t.CLIENT_INFO_KEY: {"name": "someone", "version": "1", "title": "Some One"},
    }


@pytest.mark.parametrize("revision", [None, MODERN])
def test_a_server_that_is_discovered_is_spoken_to_in_modern_terms(revision: str | None) -> None:
    asked, agreement = play(discovered(MODERN, "2025-11-25", instructions="Hi"), revision=revision)
    assert names(asked) == [("server/discover", MODERN)]
    assert agreement.revision == MODERN
    assert agreement.capabilities == {"tools": {}}
    assert agreement.server == t.Implementation("srv", "2")
    assert agreement.instructions == "Hi"
    assert agreement.supported == (MODERN, "2025-11-25")


def test_a_server_may_leave_out_its_name() -> None:
    _, agreement = play(discovered(MODERN, _meta={}))
    assert agreement.server is UNSET
    assert agreement.instructions is UNSET
    result = {"supportedVersions": [MODERN], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}
    assert play(raw(result))[1].server is UNSET


@pytest.mark.covers("ERA-8", "VER-2")
def test_a_client_that_insists_on_the_modern_revision_probes_and_gives_up() -> None:
    for outcome in (None, ProtocolError(-32601, "Method not found"), raw({}), raw([])):
        error = fail(outcome, revision=MODERN)
        assert isinstance(error, NoCommonRevision)
        assert (error.message, error.supported) == ("The server does not speak 2026-07-28", ())
        assert error.code == -32022
    error = fail(discovered("2025-11-25", "2025-06-18"), revision=MODERN)
    assert isinstance(error, NoCommonRevision)
    assert error.supported == ("2025-11-25", "2025-06-18")
    assert error.data == {"supported": ["2025-11-25", "2025-06-18"]}
    assert error.message == "No common protocol revision: the server speaks 2025-11-25, 2025-06-18"


# --- the fall-back ---


@pytest.mark.covers("ERA-7", "1.3.2.1")
@cases("code", [-32601, -32602, -32600, -32700, -32603, -32000, -32002, -32023, -1, 0, 400])
def test_any_error_that_is_not_modern_leads_to_the_handshake(code: int) -> None:
    asked, agreement = play(ProtocolError(code, "?"), initialized("2025-11-25"))
    assert names(asked) == [("server/discover", MODERN), ("initialize", "2025-11-25")]
    assert agreement.revision == "2025-11-25"


@pytest.mark.covers("ERA-7")
@cases("outcome", [None, raw({}), raw(None), raw([1]), raw({"supportedVersions": "all"})])
def test_silence_and_nonsense_lead_to_the_handshake(outcome: Outcome) -> None:
    asked, _ = play(outcome, initialized("2025-06-18"))
    assert names(asked) == [("server/discover", MODERN), ("initialize", "2025-11-25")]


@pytest.mark.covers("ERA-7", "1.3.1.1", "1.3.2.1")
def test_a_discovery_of_legacy_revisions_alone_leads_to_the_handshake() -> None:
    asked, agreement = play(discovered("2025-06-18", "2024-11-05"), initialized("2025-06-18", instructions="Hm"))
    assert names(asked)[1] == ("initialize", "2025-11-25")
    params = msgspec.to_builtins(asked[1].params)
    assert params["protocolVersion"] == "2025-11-25"
    assert params["clientInfo"] == {"name": "someone", "version": "1", "title": "Some One"}
    assert params["capabilities"] == CLIENT_CAPABILITIES
    assert agreement.revision == "2025-06-18"
    assert agreement.capabilities == {"prompts": {}}
    assert agreement.server == t.Implementation("old", "1")
    assert agreement.instructions == "Hm"
    assert agreement.supported == ()


@pytest.mark.covers("T-49")
def test_the_handshake_says_only_what_its_revision_knows() -> None:
    asked, _ = play(initialized("2024-11-05"), revision="2024-11-05")
    params = msgspec.to_builtins(asked[0].params)
    assert params["clientInfo"] == {"name": "someone", "version": "1"}
    assert "elicitation" not in params["capabilities"]


@pytest.mark.covers("1.3.2.1")
@cases("revision", LEGACY)
def test_a_pinned_legacy_revision_is_offered_without_a_probe(revision: str) -> None:
    asked, agreement = play(initialized(revision), revision=revision)
    assert names(asked) == [("initialize", revision)]
    assert asked[0].params.protocol_version == revision  # type: ignore[attr-defined]
    assert agreement.revision == revision


@pytest.mark.covers("1.3.2.3", "T-2")
@cases("answer", ["2099-01-01", MODERN, "2024-10-07", ""])
def test_an_answer_that_cannot_be_spoken_ends_the_negotiation(answer: str) -> None:
    error = fail(initialized(answer), revision="2025-11-25")
    assert isinstance(error, NoCommonRevision)
    assert error.supported == (answer,)
    assert "No common protocol revision" in error.message


@pytest.mark.covers("1.3.2.3")
@cases("answer", LEGACY)
def test_another_legacy_revision_than_the_one_offered_is_taken(answer: str) -> None:
    assert play(None, initialized(answer))[1].revision == answer


@pytest.mark.covers("1.3.2.4")
def test_a_version_error_to_initialize_is_shown_with_what_is_supported() -> None:
    refusal = ProtocolError(-32602, "Unsupported protocol version", {"supported": ["2024-11-05"], "requested": "x"})
    error = fail(None, refusal)
    assert error is refusal
    assert error.data["supported"] == ["2024-11-05"]


def test_silence_to_the_handshake_too_is_a_failure() -> None:
    error = fail(None, None)
    assert isinstance(error, NoCommonRevision)
    assert error.message == "The server answered neither server/discover nor initialize"
    assert error.supported == ()


@cases("result", [raw({}), raw({"protocolVersion": 5}), raw([]), Raw(b"{")])
def test_a_broken_answer_to_initialize_is_a_failure(result: Raw) -> None:
    error = fail(None, result)
    assert error.code == -32602
    assert error.message.startswith("The server's answer to initialize is broken: ")


# --- version errors of modern servers ---


@pytest.mark.covers("VER-2")
def test_a_version_error_that_names_our_version_is_retried_once() -> None:
    asked, agreement = play(unsupported(MODERN), discovered(MODERN))
    assert names(asked) == [("server/discover", MODERN)] * 2
    assert agreement.revision == MODERN
    error = fail(unsupported(MODERN), unsupported(MODERN))
    assert isinstance(error, NoCommonRevision)
    assert error.supported == (MODERN,)


@pytest.mark.covers("VER-2")
def test_a_version_error_that_names_legacy_revisions_leads_to_the_newest_of_them() -> None:
    asked, _ = play(unsupported("2024-11-05", "2025-06-18", "2099-01-01"), initialized("2025-06-18"))
    assert names(asked) == [("server/discover", MODERN), ("initialize", "2025-06-18")]
    asked, _ = play(unsupported(MODERN), unsupported("2025-03-26"), initialized("2025-03-26"))
    assert names(asked)[-1] == ("initialize", "2025-03-26")


@pytest.mark.covers("VER-2")
def test_without_a_common_version_the_failure_names_what_the_server_speaks() -> None:
    error = fail(unsupported("2099-01-01", 7))
    assert isinstance(error, NoCommonRevision)
    assert error.supported == ("2099-01-01",)
    assert error.message == "No common protocol revision: the server speaks 2099-01-01"
    for data in (UNSET, None, [], {"supported": "2026-07-28"}, {}):
        error = fail(ProtocolError(-32022, "no", data))
        assert isinstance(error, NoCommonRevision)
        assert error.supported == ()
        assert error.message == "No common protocol revision: the server speaks none it names"


@pytest.mark.covers("VER-2")
def test_a_pinned_modern_client_never_falls_back() -> None:
    error = fail(unsupported("2025-11-25"), revision=MODERN)
    assert isinstance(error, NoCommonRevision)
    assert error.supported == ("2025-11-25",)
    asked, _ = play(unsupported(MODERN), discovered(MODERN), revision=MODERN)
    assert len(asked) == 2


@pytest.mark.parametrize("code", [-32020, -32021])
def test_other_modern_errors_are_reported_and_never_answered_by_a_handshake(code: int) -> None:
    refusal = ProtocolError(code, "no")
    assert fail(refusal) is refusal


@pytest.mark.parametrize("code", [-32603, -32601, 7])
def test_error_of_a_modern_server_is_not_hidden_by_the_handshake(code: int) -> None:
    failure = ProtocolError(code, "Internal error in the request")
    assert fail(failure, unsupported(MODERN)) is failure
    # Neither of these says that the server speaks the modern revision.
    for refusal in (unsupported("2024-01-01"), unsupported(), ProtocolError(-32602, "no", {"supported": [MODERN]})):
        assert fail(failure, refusal) is refusal
    refusal = unsupported(MODERN)
    assert fail(None, refusal) is refusal


def test_internal_error_is_shown_to_a_client_that_insists_on_the_modern_revision() -> None:
    error = fail(ProtocolError(-32603, "Internal error in the request"), revision=MODERN)
    assert isinstance(error, NoCommonRevision)
    assert error.message == (
        "The server does not speak 2026-07-28, or failed to answer server/discover: Internal error in the request"
    )


# --- against a real server's lifecycle ---


def agree(pair: Pair, revision: str | None = None) -> Agreement:
    """Carry a negotiation out with the peers of a pair; the handler of discover is played here."""
    steps = negotiate(CLIENT, lambda revision: CLIENT_CAPABILITIES, revision)
    ask = next(steps)
    while True:
        identifier = pair.client.next_id()
        (event,) = pair.to_server(pair.client.request(identifier, ask.method, ask.params, "waiter"))
        if isinstance(event, Incoming):
            assert event.method == "server/discover"
            versions = [each for each in SUPPORTED if each in pair.terms.revisions]
            result = t.DiscoverResult(supported_versions=versions, capabilities=SERVER_CAPABILITIES)
            frame = pair.server.respond(identifier, result)
            assert frame is not None
            (event,) = pair.to_client(frame)
        assert isinstance(event, Answer)
        try:
            ask = steps.send(event.error or event.result)
        except StopIteration as end:
            agreement: Agreement = end.value
            pair.client_terms.revision = agreement.revision
            return agreement


@pytest.mark.covers("ERA-1", "1.3.2.2")
@cases("served", [(each,) for each in REVISIONS] + [tuple(reversed(LEGACY)), SUPPORTED, LEGACY[1::-1]])
def test_a_client_and_a_server_agree_on_the_newest_they_share(served: tuple[str, ...]) -> None:
    pair = Pair(Offer(), served)
    assert agree(pair).revision == served[0]
    assert pair.terms.era == ("modern" if served[0] == MODERN else "legacy")


@cases("revision", REVISIONS)
def test_a_pinned_revision_is_what_is_spoken(revision: str) -> None:
    assert agree(Pair(), revision).revision == revision


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.builds(ProtocolError, st.sampled_from([-32022, -32021, -32601, 5]), st.text(max_size=5), st.just(UNSET)),
            st.lists(st.sampled_from([*REVISIONS, "x"]), max_size=3).map(lambda found: unsupported(*found)),
            st.lists(st.sampled_from([*REVISIONS, "x"]), max_size=3).map(lambda found: discovered(*found)),
            st.sampled_from([*REVISIONS, "x"]).map(initialized),
            st.binary(max_size=5).map(Raw),
        ),
        min_size=4,
        max_size=4,
    ),
    st.sampled_from([None, *REVISIONS]),
)
def test_a_negotiation_ends_within_four_questions_whatever_is_answered(
    outcomes: list[Outcome], revision: str | None
) -> None:
    try:
        _, agreement = play(*outcomes, revision=revision)
    except ProtocolError:
        return
    assert agreement.revision in REVISIONS
    assert revision is None or revision != MODERN or agreement.revision == MODERN


def test_a_request_that_needs_no_probe_can_do_without() -> None:
    pair = Pair()
    meta = t.RequestMeta(protocol_version=MODERN, client_capabilities={})
    (event,) = pair.to_server(encode_request(1, "tools/list", t.RequestParams(meta=meta)))
    assert isinstance(event, Incoming)


@pytest.mark.covers("DIS-2")
def test_servers_of_one_name_are_kept_apart_and_a_name_changes_nothing() -> None:
    """Neither the name of a server nor one seen before has any part in what is agreed."""
    for name in ("same", "same", "other"):
        identity = {t.SERVER_INFO_KEY: {"name": name, "version": "1"}}
        for capabilities in ({"tools": {}}, {"prompts": {}}):
            _, modern = play(discovered(MODERN, capabilities=capabilities, _meta=identity))
            assert (modern.revision, modern.capabilities) == (MODERN, capabilities)
            answer = initialized("2025-06-18", capabilities=capabilities, serverInfo={"name": name, "version": "1"})
            _, legacy = play(None, answer)
            assert (legacy.revision, legacy.capabilities) == ("2025-06-18", capabilities)
