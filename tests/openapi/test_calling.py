"""Tools that call an API: what arrives there, and what comes back."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.openapi.operations import calling, define, parameter
from tests.openapi.stub_api import Reply, json_reply, stub_api

from toolwire.openapi.model import MediaTypeObject, OperationSettings, ResponseObject

PET = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
TRUE_PET = {**PET, "required": ["id", "name"], "additionalProperties": False}


def operations() -> list[Any]:
    return [
        define(
            "GET",
            "/pets/{id}/toys",
            parameter("id", "path"),
            parameter("kind", "query"),
            parameter("X-Trace-Level", "header"),
            parameter("session", "cookie"),
            parameter("theme", "cookie"),
            name="toys",
            responses={
                "200": ResponseObject(
                    status="200",
                    content=(MediaTypeObject(media_type="text/csv"), MediaTypeObject(media_type="application/json")),
                )
            },
        ),
        define("POST", "/pets", members=("name", "tags"), name="add"),
        define("PUT", "/note", whole=True, name="note", media=MediaTypeObject(media_type="text/plain")),
        define("DELETE", "/pets/{id}", parameter("id", "path"), name="remove"),
    ]


async def test_arguments_arrive_where_the_description_says() -> None:
    async with stub_api() as api, calling(api.url, *operations()) as call:
        given = {"id": "a b/c", "kind": ["soft", "loud"], "X-Trace-Level": 3, "session": "x y", "theme": "dark"}
        result = await call("toys", **given)
        assert not result.is_error
        arrived = api.last
        assert (arrived.method, arrived.target) == ("GET", "/pets/a%20b%2Fc/toys?kind=soft&kind=loud")
        assert arrived.headers["x-trace-level"] == "3"
        assert arrived.headers["cookie"] == "session=x%20y; theme=dark"
        assert arrived.headers["accept"] == "application/json, text/csv;q=0.5, */*;q=0.1"
        assert "content-type" not in arrived.headers and arrived.body == b""

        await call("add", name="Rex", tags=["a"])
        assert (api.last.method, api.last.target) == ("POST", "/pets")
        assert api.last.headers["content-type"] == "application/json"
        assert api.last.json == {"name": "Rex", "tags": ["a"]}

        await call("note", body="grüß")
        assert (api.last.method, api.last.body.decode()) == ("PUT", "grüß")
        assert api.last.headers["content-type"] == "text/plain; charset=utf-8"

        await call("remove", id=7)
        assert (api.last.method, api.last.target) == ("DELETE", "/pets/7")


async def test_the_tool_shows_what_its_definition_says() -> None:
    one = define("GET", "/pets", name="pets", output=PET, settings=OperationSettings(task="optional"))
    async with stub_api() as api, calling(api.url, one) as call:
        (tool,) = await call.client.list_tools()
        assert (tool.name, tool.description, tool.output_schema) == ("pets", "GET /pets", PET)
        assert tool.annotations == one.annotations


async def test_arguments_are_checked_before_anything_is_sent() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    one = define("GET", "/pets", parameter("id", "query"), parameter("kind", "query"), input_schema=schema)
    async with stub_api() as api, calling(api.url, one) as call:
        assert (await call(id=1, others=2)).is_error
        assert (await call()).is_error
        assert api.arrived == []


async def test_null_for_an_argument_that_may_be_left_out_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}}}
    one = define("GET", "/pets", parameter("id", "query"), parameter("kind", "query"), input_schema=schema)
    async with stub_api() as api, calling(api.url, one) as call:
        for _ in range(2):
            assert not (await call(id=1, kind=None)).is_error
        assert [each.target for each in api.arrived] == ["/pets?id=1"] * 2
    told = [each for each in caplog.records if "null was sent" in each.getMessage()]
    assert len(told) == 1 and told[0].levelno == logging.WARNING


async def test_a_success_is_a_result() -> None:
    async with stub_api() as api, calling(api.url, define(output=PET, true_output=TRUE_PET)) as call:
        api.answers(json_reply({"id": 1, "name": "Rex"}))
        result = await call()
        assert not result.is_error
        assert result.structured == {"id": 1, "name": "Rex"}
        assert result.text == '{"id": 1, "name": "Rex"}'
        assert call.drift.counts == {}


@pytest.mark.covers("OA-5.12")
async def test_no_content_is_a_short_text() -> None:
    async with stub_api() as api, calling(api.url, define("DELETE", "/pets")) as call:
        api.answers(Reply(204, media_type=None))
        result = await call()
        assert not result.is_error and not result.has_structured
        assert result.text == "things succeeded (204), and the answer has no content."


async def test_an_answer_over_the_limit_is_not_read_to_its_end() -> None:
    async with stub_api() as api, calling(api.url, define(settings=OperationSettings(max_bytes=100))) as call:
        api.answers(json_reply(["x" * 1000]))
        result = await call()
        assert result.is_error and "more than 100 bytes" in result.text


async def test_bytes_that_nothing_reads_are_named() -> None:
    async with stub_api() as api, calling(api.url, define()) as call:
        api.answers(Reply(200, b"\x89PNG", "image/png"))
        assert "4 bytes of image/png" in (await call()).text
