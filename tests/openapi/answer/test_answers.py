"""Answers of an API: statuses, problems, published schemas, and answers that contradict the description."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cases import cases
from tests.http.modernclient import ModernClient, text_of
from tests.openapi.descriptions import api as described_api
from tests.openapi.descriptions import tool_of
from tests.openapi.operations import calling, define, parameter
from tests.openapi.stub_api import BREAKS_INSIDE, Reply, json_reply, stub_api

from toolwire import schemas
from toolwire.openapi.model import OperationSettings, Output
from toolwire.protocol.revisions import REVISIONS

PET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
TRUE_PET = {**PET, "required": ["id", "name"], "additionalProperties": False}
PROBLEM = {
    "type": "https://example.com/probs/out-of-credit",
    "title": "You do not have enough credit.",
    "detail": "Your current balance is 30, but that costs 50.",
    "errors": [{"pointer": "#/age", "detail": "must be a positive integer"}],
    "internal": "not for the model",
}

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "description": "The number."},
        "total": {"type": "number"},
        "count": {"type": "integer"},
        "state": {"type": "string", "enum": ["NEW", "OLD"]},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}}},
        "paid": {"type": "boolean"},
    },
}
ORDERS = {
    "type": "object",
    "properties": {"orders": {"type": "array", "items": {"$ref": "#/components/schemas/Order"}}},
}


CUT = "…\n[The answer is longer. The rest is left out.]"


def problem(status: int) -> Reply:
    return Reply(status, json.dumps(PROBLEM).encode(), "application/problem+json; charset=utf-8")


@pytest.mark.covers("OA-5.2")
@cases("status", [400, 404, 409, 412, 422, 500])
async def test_a_problem_is_told_in_its_words(status: int) -> None:
    async with stub_api() as api, calling(api.url, define("POST", "/pets")) as call:
        api.answers(problem(status))
        result = await call()
        assert result.is_error
        first, second = result.text.splitlines()
        assert first.startswith(f"things answered {status} ")
        assert first.endswith("You do not have enough credit.: Your current balance is 30, but that costs 50.")
        assert second == 'errors: [{"pointer":"#/age","detail":"must be a positive integer"}]'
        assert len(api.arrived) == 1


@pytest.mark.covers("OA-5.2")
@cases(
    ("reply", "text"),
    [
        (Reply(400, b"no such pet", "text/plain"), "things answered 400 Bad Request: no such pet"),
        (Reply(409, b'{"message": "taken"}'), 'things answered 409 Conflict: {"message": "taken"}'),
        (Reply(412, b"etag differs", None), "things answered 412 Precondition Failed: etag differs"),
        (Reply(400, b"x" * 3000, "text/plain"), "things answered 400 Bad Request: " + "x" * 1000 + CUT),
        (Reply(500, b"<html><b>stack trace</b></html>", "text/html"), "things answered 500 Internal Server Error"),
        (Reply(500, b" <!DOCTYPE html><p>", "text/plain"), "things answered 500 Internal Server Error"),
        (Reply(502, b"", None), "things answered 502 Bad Gateway"),
        (Reply(599, b"\x00\x01", "application/octet-stream"), "things answered 599"),
        (Reply(400, b"\x1b[31mred", "text/plain"), "things answered 400 Bad Request: \\x1b[31mred"),
        (
            Reply(400, b'{"title": "a\\u0000\\u202e", "errors": {"k\\u200b": 1}}', "application/problem+json"),
            'things answered 400 Bad Request: a\\x00\\u202e\nerrors: {"k\\u200b":1}',
        ),
        (Reply(400, b"[1]", "application/problem+json"), "things answered 400 Bad Request: [1]"),
        (Reply(400, b"{", "application/problem+json"), "things answered 400 Bad Request: {"),
        (Reply(400, b"gr\xfc\xdf", "text/plain; charset=iso-8859-1"), "things answered 400 Bad Request: grüß"),
        (Reply(400, b"x", "text/plain; charset=unicode_escape"), "things answered 400 Bad Request: x"),
    ],
)  # fmt: skip
async def test_other_failures_are_told_by_the_beginning_of_their_text(reply: Reply, text: str) -> None:
    async with stub_api() as api, calling(api.url, define("POST", "/pets")) as call:
        api.answers(reply)
        result = await call()
        assert result.is_error
        assert result.text == text
        is_hidden = not text.partition(": ")[2] and reply.body
        assert (result.meta or {}).get("io.toolwire/left-out") == ([""] if CUT in text or is_hidden else None)


async def test_long_problem_is_cut_with_a_sign() -> None:
    async with stub_api() as api, calling(api.url, define("POST", "/pets")) as call:
        for size in (2_000, 70_000):
            api.answers(Reply(422, json.dumps({"errors": ["x" * size]}).encode(), "application/problem+json"))
            cut = await call()
            assert cut.text.endswith(CUT) and cut.meta["io.toolwire/left-out"] == [""]


@pytest.mark.covers("OA-6.6")
@pytest.mark.parametrize("status", [401, 403])
async def test_the_sign_in_of_the_api_is_not_ours(status: int) -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(json_reply({"message": "who are you?"}, status, www_authenticate="Bearer realm=api"))
        answer = await ModernClient(call.server.http_app()).call("things")
    assert answer.status == 200 and "www-authenticate" not in answer.headers
    assert answer.json()["result"]["isError"] is True
    text = text_of(answer.json())
    assert f"answered {status}" in text and "who are you?" in text and "the API" in text


async def test_an_answer_that_breaks_off_is_told() -> None:
    async with stub_api() as api, calling(api.url, define("POST", "/pets")) as call:
        api.answers(BREAKS_INSIDE)
        result = await call()
        assert result.is_error and result.text.startswith("things answered 200, but the connection broke")
        assert len(api.arrived) == 1


# -- What was published -----------------------------------------------------------------------------------------------

CONTRADICTIONS: list[tuple[str, Reply, Any]] = [
    ("missing required", json_reply({"id": 1}), {"id": 1}),
    ("null", json_reply({"id": 1, "name": None}), {"id": 1}),
    ("null alone", json_reply(None), {"result": None}),
    ("extra", json_reply({"id": 1, "name": "Rex", "more": [1]}), {"id": 1, "name": "Rex", "more": [1]}),
    ("wrong type", json_reply({"id": "1", "name": "Rex"}), {"name": "Rex"}),
    ("wrong type of an item", json_reply({"id": 1, "tags": ["a", 2, "b", None]}), {"id": 1, "tags": ["a", "b"]}),
    ("another type", json_reply([1, 2]), {"result": [1, 2]}),
    ("HTML", Reply(200, b"<html>hello</html>", "text/html"), {"result": "<html>hello</html>"}),
    ("no JSON", Reply(200, b"{oops", "application/json"), {"result": "{oops"}),
    ("JSON called text", Reply(200, b'{"id": 1}', "text/plain"), {"id": 1}),
    ("JSON after a mark", Reply(200, b'\xef\xbb\xbf{"id": 1}', "application/json"), {"id": 1}),
    ("nothing", Reply(200, b"", "application/json"), {}),
    ("bytes", Reply(200, b"\xff\xfe", "application/json"), {"result": "\ufffd\ufffd"}),
]  # fmt: skip


@pytest.mark.covers("OA-11.5", "OA-5.9")
@cases("revision", REVISIONS)
async def test_answers_that_contradict_the_description_are_usable(revision: str) -> None:
    """The client checks structured content against the published schema, and would raise."""
    one = define(output=PET, true_output=TRUE_PET)
    async with stub_api() as api, calling(api.url, one, revision=revision) as call:
        await call.client.list_tools()
        for label, reply, structured in CONTRADICTIONS:
            api.answers(reply)
            result = await call()
            assert not result.is_error, label
            body = reply.body.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
            assert result.content[0].text.removeprefix("\ufeff") == body or not body, label
            if revision >= "2025-06-18":
                assert result.structured == structured, label
            else:
                assert not result.has_structured, label


@pytest.mark.covers("OA-11.5", "OA-5.9")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_values_that_contradict_the_description_are_in_the_structured_content(revision: str) -> None:
    """Scalars of another type, nulls, and lists in place of objects: everything that the API answered."""
    content = {"application/json": {"schema": ORDERS}}
    operation = {"responses": {"200": {"description": "", "content": content}}}
    described = tool_of(described_api(operation, schemas={"Order": ORDER}))
    answer = {
        "orders": [
            {"id": "A-17", "total": "12.50", "count": "2", "state": "NEW", "buyer": [], "paid": None},
            {"id": 18, "total": 3, "count": 1, "state": 5, "buyer": {"name": 7}, "paid": "yes", "more": {"a": [1]}},
        ]
    }
    async with stub_api() as stub, calling(stub.url, described, revision=revision) as call:
        (tool,) = await call.client.list_tools()
        stub.answers(json_reply(answer))
        result = await call(described.name)
        assert result.structured == json.loads(result.text) == answer
        assert schemas.compile(tool.output_schema, what="the output").fits(answer)
        assert result.meta["io.toolwire/drift"][:3] == ["/orders/0/id", "/orders/0/total", "/orders/0/count"]
        assert "io.toolwire/left-out" not in result.meta
        stub.answers(json_reply({"orders": [{"id": 1, "total": 1.5}]}))
        assert "io.toolwire/drift" not in (await call(described.name)).meta
        assert list(call.drift.counts.values()) == [1]


@pytest.mark.covers("OA-11.5")
async def test_parts_that_a_locked_schema_refuses_are_named() -> None:
    async with stub_api() as api, calling(api.url, define(output=PET)) as call:
        api.answers(json_reply({"id": "1", "name": "Rex", "tags": [1, "a", None, "b"], "a/b": 1}))
        result = await call()
        assert result.structured == {"name": "Rex", "tags": ["a", "b"], "a/b": 1}
        assert result.meta["io.toolwire/left-out"] == ["/id", "/tags/0", "/tags/2"]
        assert result.content[1].text == (
            "[Left out of the structured content, which cannot carry it: /id, /tags/0, /tags/2.]"
        )
        # Many differences: nothing is taken apart.
        many = {"tags": list(range(300)), "name": "Rex"}
        api.answers(json_reply(many))
        result = await call()
        assert result.structured == {"result": many}
        assert "io.toolwire/left-out" not in result.meta


async def test_no_more_than_fifty_parts_are_named() -> None:
    async with stub_api() as api, calling(api.url, define(output=PET)) as call:
        api.answers(json_reply({"tags": list(range(120))}))
        result = await call()
        assert result.meta["io.toolwire/left-out"] == [f"/tags/{at}" for at in range(50)]
        assert result.meta["io.toolwire/left-out-more"] is True
        assert "and more" in result.content[1].text


@pytest.mark.covers("OA-5.13")
@cases("revision", REVISIONS)
@cases("schema", [None, {"type": "array", "items": {"type": "integer"}}])
async def test_json_that_is_no_object_is_wrapped_for_older_revisions(revision: str, schema: Any) -> None:
    async with stub_api() as api, calling(api.url, define(output=schema), revision=revision) as call:
        await call.client.list_tools()
        api.answers(Reply(200, b" [1, 2]\n"))
        result = await call()
        assert result.text.strip() == "[1, 2]"
        if revision == "2026-07-28":
            assert result.structured == [1, 2]
        elif revision >= "2025-06-18":
            assert result.structured == {"result": [1, 2]}
        else:
            assert not result.has_structured


@pytest.mark.covers("OA-5.10")
async def test_drift_is_logged_once_for_an_operation_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    one = define("GET", "/a", output=PET, true_output=TRUE_PET, name="one")
    two = define("GET", "/b", output=PET, true_output=TRUE_PET, name="two")
    async with stub_api() as api, calling(api.url, one, two) as call:
        api.answers(json_reply({"id": 1, "name": "Rex"}))
        await call("one")
        assert call.drift.counts == {}
        api.answers(json_reply({"id": 1}))
        for _ in range(3):
            await call("one")
        api.answers(Reply(200, b"<p>", "text/html"))
        await call("two")
        assert call.drift.counts == {"one": 3, "two": 1}
    told = [each.getMessage() for each in caplog.records if each.name == "toolwire.openapi"]
    assert len(told) == 2
    assert told[0].startswith('the answers of one differ from its description: Missing member "name"')


@pytest.mark.covers("OA-5.10")
@cases(
    ("output", "published", "reply", "is_error", "structured"),
    [
        ("strict", TRUE_PET, {"id": 1, "name": "Rex"}, False, {"id": 1, "name": "Rex"}),
        ("strict", TRUE_PET, {"id": 1}, True, None),
        ("none", None, {"id": 1}, False, {"id": 1}),
    ],
)
async def test_other_ways_to_publish(
    output: Output, published: Any, reply: Any, is_error: bool, structured: Any
) -> None:
    one = define(output=published, true_output=TRUE_PET, settings=OperationSettings(output=output))
    async with stub_api() as api, calling(api.url, one) as call:
        api.answers(json_reply(reply))
        result = await call()
        assert (result.is_error, result.structured) == (is_error, structured)
        if is_error:
            assert result.text.splitlines()[:2] == [
                "The answer of things does not fit its description.",
                'Missing member "name": expected a string',
            ]
            assert result.text.endswith('{"id": 1}')
        assert call.drift.counts == ({"things": 1} if is_error or output == "none" else {})


@pytest.mark.covers("OA-5.12")
async def test_several_bodies_of_a_success() -> None:
    other = {"type": "object", "properties": {"job": {"type": "string"}}, "required": ["job"]}
    either = {"type": "object", "anyOf": [TRUE_PET, other]}
    one = define(output=either, true_output=either)
    async with stub_api() as api, calling(api.url, one) as call:
        await call.client.list_tools()
        for status, value in ((200, {"id": 1, "name": "Rex"}), (201, {"job": "x"})):
            api.answers(json_reply(value, status))
            assert (await call()).structured == value
        assert call.drift.counts == {}


async def test_json_is_sent_on_byte_for_byte() -> None:
    """Nothing here rewrites a number that Python would write differently."""
    body = b'{"big": 12345678901234567890123, "small": 1.10, "exact": 1e2}'
    async with stub_api() as api, calling(api.url, define(output={"type": "object"})) as call:
        api.answers(Reply(200, body))
        assert (await call()).text == body.decode()


async def test_a_schema_that_cannot_be_compiled_compares_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = define("GET", "/a", parameter("q", "query"), true_output={"type": "nonsense"})
    async with stub_api() as api, calling(api.url, one) as call:
        for _ in range(2):
            assert not (await call()).is_error
    assert len([each for each in caplog.records if "are not compared" in each.getMessage()]) == 1
