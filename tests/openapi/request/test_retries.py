"""Requests that are repeated, redirected or lost, and the credentials that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.openapi.descriptions import api as api_of
from tests.openapi.descriptions import operation_in
from tests.openapi.operations import READ, calling, define, parameter
from tests.openapi.stub_api import BREAKS_BEFORE, GARBAGE, Reply, json_reply, stub_api

from toolwire.auth.client.signing import ProofKey
from toolwire.auth.vault.vault import Credential
from toolwire.errors import OutcomeUnknown, ToolError
from toolwire.openapi.access import security
from toolwire.openapi.access.signing import OutgoingRequest, SignedRequest
from toolwire.openapi.definition.tool_definitions import ToolDefiner
from toolwire.openapi.model import OperationSettings, ToolDefinition
from toolwire.openapi.request import retries
from toolwire.openapi.request.retries import Sender
from toolwire.printable import is_printable
from toolwire.protocol import types as t

BUSY = Reply(429, b"slow down", "text/plain", {"retry-after": "0"})
DONE = json_reply({"done": True})


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time passes at once; the pauses are noted."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(retries, "_sleep", sleep)
    return pauses


# -- Retry-After ------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.6")
@pytest.mark.parametrize("status", [429, 503])
async def test_a_read_waits_as_long_as_the_api_asks(status: int, slept: list[float]) -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(Reply(status, headers={"retry-after": "7"}), DONE)
        result = await call()
        assert not result.is_error and len(api.arrived) == 2
        assert slept == [7.0]


async def test_a_read_waits_a_few_times_only() -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(BUSY)
        assert (await call()).is_error
        assert len(api.arrived) == 1 + retries.MAX_WAITS


@pytest.mark.covers("OA-5.6")
@pytest.mark.parametrize(
    ("method", "later"), [("GET", "3600"), ("POST", "3600"), ("POST", "0"), ("GET", None), ("GET", "soon")]
)
async def test_otherwise_the_model_is_told(method: str, later: str | None, slept: list[float]) -> None:
    """A wait beyond the deadline, a write, or no time that could be waited for."""
    async with stub_api() as api, calling(api.url, define(method, "/a"), timeout=30.0) as call:
        api.answers(Reply(429, b"slow down", "text/plain", {} if later is None else {"retry-after": later}))
        result = await call()
        assert result.is_error and len(api.arrived) == 1 and slept == []
        lines = ["things answered 429 Too Many Requests: slow down"]
        if later is not None and later.isdigit():
            lines.append(f"Try again in {later} seconds.")
            assert result.meta["toolwire/retryAfterMs"] == int(later) * 1000
        assert result.text.splitlines() == lines


async def test_a_post_that_a_person_calls_a_read_is_repeated() -> None:
    search = define("POST", "/search", annotations=READ, is_decided_read=True)
    async with stub_api() as api, calling(api.url, search) as call:
        api.answers(BUSY, BREAKS_BEFORE, DONE)
        assert not (await call()).is_error
        assert len(api.arrived) == 3


async def test_post_is_not_repeated_because_of_a_hint_in_the_document() -> None:
    written = {"x-mcp": {"annotations": {"readOnlyHint": True}}, "operationId": "things"}
    described = api_of(written, at="post /pay")
    decided = OperationSettings(annotations=t.ToolAnnotations(read_only_hint=True))
    for settings, sent in ((None, 1), (decided, 2)):
        made = ToolDefiner(described).define(operation_in(described), settings)
        assert isinstance(made, ToolDefinition)
        assert made.annotations.read_only_hint is True
        async with stub_api() as api, calling(api.url, made) as call:
            api.answers(BREAKS_BEFORE, DONE)
            assert (await call()).is_error is (settings is None)
            assert len(api.arrived) == sent


async def test_retry_after_of_too_many_digits_is_a_long_time() -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(Reply(429, b"slow down", "text/plain", {"retry-after": "9" * 5_000}))
        text = (await call()).text
        assert text == "things answered 429 Too Many Requests: slow down\nTry again in 999999999999999 seconds."


# -- Lost connections -------------------------------------------------------------------------------------------------


async def test_a_lost_read_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(BREAKS_BEFORE, BREAKS_BEFORE, DONE)
        assert not (await call()).is_error
        assert len(api.arrived) == 3
        api.answers(BREAKS_BEFORE)
        result = await call()
        assert result.is_error and "Try again" in result.text and "127.0.0.1" not in result.text
        # The pool itself repeats a request that crossed the closing of an idle connection.
        assert len(api.arrived) == 2 + retries.MAX_LOST
    assert "things failed: " in caplog.text


async def test_read_is_not_sent_again_after_a_malformed_response() -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(GARBAGE)
        result = await call()
        assert result.is_error and result.text == "things failed: the answer of the API cannot be read."
        assert len(api.arrived) == 1


@pytest.mark.covers("OA-5.7")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_the_outcome_of_a_lost_write_is_unknown(method: str) -> None:
    async with stub_api() as api, calling(api.url, define(method, "/pets")) as call:
        for _ in range(2):
            api.answers(DONE)
            await call()
            api.answers(BREAKS_BEFORE, DONE)
            result = await call()
            assert result.is_error and result.text.startswith("The outcome of things is unknown")
            assert len(api.arrived) == 1


def test_code_can_tell_a_lost_write_from_other_failures() -> None:
    assert issubclass(retries.WriteOutcomeUnknown, OutcomeUnknown)
    assert issubclass(retries.WriteOutcomeUnknown, ToolError)


async def test_an_api_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    async with stub_api() as api:
        url = api.url
    async with calling(url, define("POST", "/pets")) as call:
        result = await call()
        assert result.is_error and result.text == "things failed: the API cannot be reached now. Try again later."


# -- Idempotency keys -------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-5.7")
async def test_a_write_with_a_key_is_repeated_under_the_same_key() -> None:
    settings = OperationSettings(idempotency_header="Idempotency-Key")
    async with stub_api() as api, calling(api.url, define("POST", "/pets", settings=settings)) as call:
        api.answers(BREAKS_BEFORE, BUSY, DONE)
        assert not (await call()).is_error
        first = {each.headers["idempotency-key"] for each in api.arrived}
        assert len(api.arrived) == 3 and len(first) == 1
        api.answers(DONE)
        await call()
        assert first != {api.last.headers["idempotency-key"]}


@pytest.mark.covers("OA-5.7")
@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Idempotency-Key", "idempotency_key"])
@pytest.mark.parametrize("lost", [BREAKS_BEFORE, BUSY])
async def test_declared_key_header_alone_does_not_repeat_a_write(header: str, lost: Any) -> None:
    declared = parameter(header, "header", required=True)
    write = define("POST", "/pets")
    write = replace(write, operation=replace(write.operation, parameters=(declared,)))
    async with stub_api() as api, calling(api.url, write) as call:
        api.answers(lost, DONE)
        assert (await call()).is_error
        (sent,) = api.arrived
        assert str(UUID(sent.headers[header.lower()])) == sent.headers[header.lower()]
    named = replace(write, settings=OperationSettings(idempotency_header=header))
    async with stub_api() as api, calling(api.url, named) as call:
        api.answers(lost, DONE)
        assert not (await call()).is_error
        assert len(api.arrived) == 2 and len({each.headers[header.lower()] for each in api.arrived}) == 1
    without = replace(write, settings=OperationSettings(idempotency_header=""))
    async with stub_api() as api, calling(api.url, without) as call:
        api.answers(lost, DONE)
        assert (await call()).is_error
        assert len(api.arrived) == 1 and header.lower() not in api.last.headers


async def test_a_read_has_no_key() -> None:
    settings = OperationSettings(idempotency_header="Idempotency-Key")
    async with stub_api() as api, calling(api.url, define(settings=settings)) as call:
        await call()
        assert "idempotency-key" not in api.last.headers


# -- Redirects --------------------------------------------------------------------------------------------------------


class Tokens:
    """A signer with a token in a header and a key in the query; the tokens are used up one by one."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def sign(self, call: Any, request: OutgoingRequest) -> SignedRequest:
        return Signed(self, request, self.tokens[0])


class Signed:
    def __init__(self, home: Tokens, before: OutgoingRequest, token: str) -> None:
        self.home, self.before = home, before
        mark = "&" if "?" in before.url else "?"
        headers = {**before.headers, "authorization": token}
        self.request = replace(before, url=f"{before.url}{mark}key=secret", headers=headers)

    def repeated(self) -> SignedRequest:
        return self

    async def again(self, status: int, headers: Mapping[str, str]) -> SignedRequest | None:
        del self.home.tokens[0]
        return Signed(self.home, self.before, self.home.tokens[0]) if self.home.tokens else None


class BoundToken:
    """A source of a token that is bound to a key."""

    def __init__(self) -> None:
        self.credential = Credential("api", "owner", "token", proof_key=ProofKey())

    async def obtain(self, call: Any, scopes: Any) -> Credential:
        return self.credential


async def test_each_attempt_has_a_proof_of_its_own() -> None:
    """A server takes each proof once (RFC 9449)."""
    part = cast("Any", SimpleNamespace(source=BoundToken(), put=security._bearer, scopes=frozenset()))
    signer = security.RequirementSigner([part], ())
    async with stub_api() as api, calling(api.url, define(), signer=signer) as call:
        for answers in ((BREAKS_BEFORE, DONE), (BREAKS_BEFORE, BUSY, DONE)):
            api.answers(*answers)
            assert not (await call()).is_error
            proofs = [each.headers["dpop"] for each in api.arrived]
            assert len(set(proofs)) == len(proofs) == len(answers)


def redirect(target: str, status: int = 302) -> Reply:
    return Reply(status, headers={"location": target})


async def test_reads_are_redirected_within_the_origin() -> None:
    one = define("GET", "/a", parameter("X-Thing", "header"))
    async with stub_api() as api, calling(api.url, one, signer=Tokens("t1")) as call:
        for status in (301, 302, 303, 307, 308):
            api.answers(redirect("/b?x=1", status), DONE)
            assert not (await call(**{"X-Thing": "v"})).is_error
            assert [each.target for each in api.arrived] == ["/a?key=secret", "/b?x=1&key=secret"]
            assert [each.headers["authorization"] for each in api.arrived] == ["t1", "t1"]
            assert api.last.headers["x-thing"] == "v"


@pytest.mark.covers("OA-5.8")
async def test_credentials_are_dropped_across_origins() -> None:
    one = define("GET", "/a", parameter("X-Thing", "header"), parameter("c", "cookie"))
    async with (
        stub_api() as api,
        stub_api() as other,
        calling(api.url, one, signer=Tokens("t1"), origins=frozenset({other.url})) as call,
    ):
        api.answers(redirect(f"{other.url}/b"))
        other.answers(redirect("/c"), DONE)
        assert not (await call(**{"X-Thing": "v", "c": "d"})).is_error
        assert [each.target for each in other.arrived] == ["/b", "/c"]
        for arrived in other.arrived:
            assert not {"authorization", "x-thing", "cookie"} & arrived.headers.keys()

        # Another server does not choose what is asked for with the credentials.
        api.answers(redirect(f"{other.url}/b"), redirect("/d"), DONE)
        other.answers(redirect(f"{api.url}/c"))
        assert not (await call(**{"X-Thing": "v", "c": "d"})).is_error
        assert [each.target for each in api.arrived] == ["/a?key=secret", "/c", "/d"]
        for arrived in api.arrived[1:]:
            assert not {"authorization", "x-thing", "cookie"} & arrived.headers.keys()


@pytest.mark.covers("OA-5.8")
async def test_request_to_another_permitted_origin_is_not_signed() -> None:
    home, other = "https://api.example", "https://files.example"
    operation: Any = SimpleNamespace(name="read", method="GET", is_read=True)
    unused: Any = None
    sender = Sender(operation, unused, home, frozenset({other}), signer=Tokens("t1"))
    request = OutgoingRequest(method="GET", url=f"{other}/next", headers={}, body=None)
    exchange: Any = SimpleNamespace(request=request, call=None, credentials="of the page before", signed=None)
    await sender.sign(exchange)
    assert exchange.signed is request and exchange.credentials is None
    assert request.headers == {}


@pytest.mark.covers("OA-5.8")
@pytest.mark.parametrize(
    "target", ["{other}/b", "//{host}/b", "https://[", "javascript:alert(1)", "file:///etc/passwd"]
)
async def test_no_redirect_leaves_the_permitted_origins(target: str) -> None:
    async with stub_api() as api, stub_api() as other, calling(api.url, define()) as call:
        api.answers(redirect(target.format(other=other.url, host=other.url.removeprefix("http://"))))
        assert (await call()).is_error
        assert len(api.arrived) == 1 and other.arrived == []


@pytest.mark.parametrize("hidden", ["\x9b31m", "\xad", "\u202e", "\u3164"])
async def test_invisible_characters_of_a_redirect_are_shown_by_their_numbers(hidden: str) -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(redirect(f"https://e{hidden}vil.example/"))
        result = await call()
        assert result.is_error and "where this API may not be called" in result.text
        assert is_printable(result.text)


@pytest.mark.parametrize("hidden", ["\x00", "\x1b[31m", "\r\nWARNING", "\u202e", "\u3164"])
async def test_invisible_characters_of_a_failure_are_logged_by_their_numbers(
    hidden: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        async def send(self, *request: Any) -> Any:
            raise OutcomeUnknown(f"it said {hidden}")

    operation: Any = SimpleNamespace(name="pay", method="POST", is_read=False)
    pool: Any = Failing
    sender = Sender(operation, pool, "https://api.example", frozenset())
    request = OutgoingRequest(method="POST", url="https://api.example/pay", headers={}, body=None)
    exchange: Any = SimpleNamespace(request=request, call=None, credentials=None, signed=request)
    with pytest.raises(OutcomeUnknown):
        await sender.send(exchange, is_read=False)
    (line,) = caplog.messages
    assert line.startswith("pay failed: it said \\") and is_printable(line)


@pytest.mark.covers("OA-5.8")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_writes_are_not_redirected(method: str, status: int) -> None:
    async with stub_api() as api, calling(api.url, define(method, "/a")) as call:
        api.answers(redirect("/b", status), DONE)
        result = await call()
        assert result.is_error and "not followed for a write" in result.text
        assert len(api.arrived) == 1


async def test_redirects_end() -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(redirect("/a"))
        assert (await call()).is_error
        assert len(api.arrived) == 1 + retries.MAX_REDIRECTS


async def test_a_read_by_post_keeps_its_body_only_where_the_status_says_so() -> None:
    one = define("POST", "/search", members=("q",), annotations=READ, is_decided_read=True)
    async with stub_api() as api, calling(api.url, one) as call:
        api.answers(redirect("/b", 307), DONE)
        assert not (await call(q="x")).is_error
        assert [(each.method, each.json) for each in api.arrived] == [("POST", {"q": "x"})] * 2
        api.answers(redirect("/b", 302), DONE)
        assert (await call(q="x")).is_error


# -- Credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_replaced_while_there_are_others(method: str, status: int) -> None:
    async with stub_api() as api, calling(api.url, define(method, "/a"), signer=Tokens("t1", "t2", "t3")) as call:
        api.answers(json_reply({}, status), DONE)
        assert not (await call()).is_error
        assert [each.headers["authorization"] for each in api.arrived] == ["t1", "t2"]
        api.answers(json_reply({}, status))
        result = await call()
        assert result.is_error and f"answered {status}" in result.text
        assert [each.headers["authorization"] for each in api.arrived] == ["t2", "t3"]


class Elsewhere(Tokens):
    async def sign(self, call: Any, request: OutgoingRequest) -> SignedRequest:
        signed = Signed(self, request, "t")
        signed.request.url = "http://elsewhere.example/"
        return signed


async def test_signing_cannot_change_the_origin() -> None:
    async with stub_api() as api, calling(api.url, define(), signer=Elsewhere()) as call:
        result = await call()
        assert result.is_error and "another origin" in result.text
        assert api.arrived == []


async def test_an_error_of_the_signer_is_the_answer() -> None:
    class Missing(Tokens):
        async def sign(self, call: Any, request: OutgoingRequest) -> SignedRequest:
            raise ToolError("Connect your account first")

    async with stub_api() as api, calling(api.url, define(), signer=Missing()) as call:
        assert (await call()).text == "Connect your account first"
        assert api.arrived == []


async def test_the_end_of_each_call_is_told() -> None:
    told: list[tuple[str, str, str, int | None, int]] = []

    def ended(exchange: Any, status: int | None) -> None:
        operation = exchange.operation
        told.append((operation.name, operation.method, operation.path, status, exchange.received))

    one = define("GET", "/pets/{id}", parameter("id", "path"), name="pet")
    async with stub_api() as api, calling(api.url, one, ended=ended) as call:
        await call("pet", id="secret")
        api.answers(Reply(404, b"none", "text/plain"))
        await call("pet", id="secret")
        api.answers(BREAKS_BEFORE)
        await call("pet", id="secret")
    assert told == [
        ("pet", "GET", "/pets/{id}", 200, 2),
        ("pet", "GET", "/pets/{id}", 404, 4),
        ("pet", "GET", "/pets/{id}", None, 0),
    ]
