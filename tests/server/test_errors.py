"""What a client learns when something goes wrong, and what stays in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated, Any, Literal

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Argument, Limits, ProtocolError, Server, ToolError

SECRET = "hunter2"


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def broken() -> None:
    raise RuntimeError(f"could not log in with {SECRET}")


async def strict(
    count: Annotated[int, "How many."], mode: Literal["fast", "good"] = "fast", tags: list[str] | None = None
) -> str:
    return "called"


@pytest.mark.covers("E16")
@cases("revision", REVISIONS)
@cases("checked", [True, False])
async def test_a_tool_may_check_its_arguments_itself(revision: str, checked: bool) -> None:
    server = Server("s")
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "unit": {"type": "string", "default": "m"}},
        "required": ["n"],
    }

    @server.tool(input_schema=schema, validate_input=checked)
    async def by_schema(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    described = [Argument(name="n", type="integer", required=True), Argument(name="unit", default="m")]

    @server.tool(parameters=described, validate_input=checked)
    async def by_parameters(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    async with connect(server, revision) as client:
        for name in ("by_schema", "by_parameters"):
            assert json.loads((await client.call(name, {"n": 3}))["content"][0]["text"]) == {"n": 3, "unit": "m"}
            result = await client.call(name, {"n": "three", "other": 1})
            assert result.get("isError", False) is checked
            if not checked:
                assert json.loads(result["content"][0]["text"]) == {"n": "three", "other": 1, "unit": "m"}
        for tool in (await client.result("tools/list"))["tools"]:
            assert tool["inputSchema"]["required"] == ["n"]


@pytest.mark.covers("R9", "R10", "E8")
@cases("revision", REVISIONS)
async def test_an_exception_is_a_result_the_model_can_see(revision: str) -> None:
    async with connect(Server("s", tools=broken), revision) as client:
        result = await client.call("broken")
    assert result["isError"] is True
    assert text(result).startswith("Internal error in the tool broken (error id ")


@pytest.mark.covers("R9")
@cases("revision", REVISIONS)
@cases("name", ["nope", "Broken", "", "x" * 5000])
async def test_an_unknown_tool_is_a_protocol_error_that_names_it(revision: str, name: str) -> None:
    async with connect(Server("s", tools=broken), revision) as client:
        error = await client.error("tools/call", {"name": name, "arguments": {}})
    assert error["code"] == -32602
    assert name[:100] in error["message"]
    assert len(error["message"]) < 500


@pytest.mark.covers("R19", "E44")
async def test_the_cause_is_logged_in_full_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with connect(Server("s", tools=broken), MODERN) as client:
        result = await client.call("broken")
    assert SECRET not in json.dumps(result)
    identifier = text(result).rpartition("error id ")[2].rstrip(")")
    (record,) = [each for each in caplog.records if identifier in each.getMessage()]
    assert (record.name, record.levelno) == ("toolwire.server", logging.ERROR)
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])


@pytest.mark.covers("R19")
async def test_two_failures_have_two_ids() -> None:
    async with connect(Server("s", tools=broken), MODERN) as client:
        assert text(await client.call("broken")) != text(await client.call("broken"))


async def test_debug_says_more() -> None:
    async with connect(Server("s", tools=broken, debug=True), MODERN) as client:
        assert f"RuntimeError: could not log in with {SECRET}" in text(await client.call("broken"))


@pytest.mark.covers("E44", "E6", "S19")
async def test_a_tool_error_reaches_the_model_word_for_word() -> None:
    async def pay() -> None:
        raise ToolError("The account is locked. Ask the owner to unlock it.")

    async with connect(Server("s", tools=pay), MODERN) as client:
        result = await client.call("pay")
    assert (result["isError"], text(result)) == (True, "The account is locked. Ask the owner to unlock it.")


@pytest.mark.covers("R9", "J63")
@cases("revision", REVISIONS)
async def test_a_protocol_error_of_a_handler_is_sent_as_such(revision: str) -> None:
    async def refuse() -> None:
        raise ProtocolError(-31001, "Out of paper")

    async with connect(Server("s", tools=refuse), revision) as client:
        assert await client.error("tools/call", {"name": "refuse"}) == {"code": -31001, "message": "Out of paper"}


@pytest.mark.covers("E16", "E18", "T-18", "R14")
@cases("revision", REVISIONS)
async def test_bad_arguments_are_explained_to_the_model_before_the_handler_runs(revision: str) -> None:
    async with connect(Server("s", tools=strict), revision) as client:
        for arguments, expected in [
            ({}, "count"),
            ({"count": "many"}, "count"),
            ({"count": 1, "mode": "slow"}, "fast"),
            ({"count": 1, "tags": [1]}, "tags"),
            ({"count": 1, "mod": "fast"}, "mode"),
            ({"cnt": 1}, "count"),
        ]:
            result = await client.call("strict", arguments)
            assert result["isError"] is True
            assert expected in text(result)


@pytest.mark.covers("R14")
async def test_sizes_and_ranges_are_enforced() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 3},
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
            "items": {"type": "array", "maxItems": 2},
        },
    }
    server = Server("s")

    @server.tool(input_schema=schema)
    async def bounded(arguments: dict[str, Any]) -> str:
        return "called"

    async with connect(server, MODERN) as client:
        assert text(await client.call("bounded", {"name": "abc", "n": 9, "items": [1, 2]})) == "called"
        for wrong in ({"name": "abcd"}, {"n": 0}, {"n": 10}, {"items": [1, 2, 3]}):
            assert (await client.call("bounded", wrong))["isError"] is True


@cases("arguments", [[], "text", 7])
async def test_arguments_that_are_no_object(arguments: Any) -> None:
    async with connect(Server("s", tools=strict), MODERN) as client:
        response = await client.request("tools/call", {"name": "strict", "arguments": arguments})
    assert response.get("error", {}).get("code") == -32602 or response["result"]["isError"] is True


@cases("params", [{}, {"name": 7}, {"name": None}, {"arguments": {}}])
async def test_a_call_without_a_name_is_a_protocol_error(params: dict[str, Any]) -> None:
    async with connect(Server("s", tools=strict), MODERN) as client:
        assert (await client.error("tools/call", params))["code"] == -32602


@pytest.mark.covers("R19")
async def test_failures_leave_the_connection_and_other_calls_alone() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        await go.wait()
        return "fine"

    async with connect(Server("s", tools=[broken, wait]), MODERN) as client:
        waiting = client.start("tools/call", {"name": "wait"})
        await started.wait()
        await client.call("broken")
        go.set()
        assert text((await waiting)["result"]) == "fine"


@pytest.mark.covers("R19")
@cases("raised", [SystemExit(3), asyncio.CancelledError()])
@cases("kind", ["async", "def"])
async def test_what_is_no_exception_does_not_end_the_server(raised: BaseException, kind: str) -> None:
    server = Server("s")

    @server.tool(name="async")
    async def in_loop() -> None:
        raise raised

    @server.tool(name="def")
    def in_thread() -> None:
        raise raised

    async with connect(server, MODERN) as client:
        assert (await client.call(kind))["isError"] is True
        await client.result("tools/list")


@pytest.mark.covers("R17")
async def test_a_result_over_the_limit_is_an_error() -> None:
    async def long() -> str:
        return "x" * 2000

    async with connect(Server("s", tools=long, limits=Limits(result=1000)), MODERN) as client:
        error = await client.error("tools/call", {"name": "long"})
    assert error["code"] == -32603
    assert "1000 bytes" in error["message"]


@pytest.mark.covers("E8")
async def test_an_exception_group_with_one_tool_error_is_that_error() -> None:
    async def many() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    async def fails() -> None:
        raise ToolError("one of several")

    async with connect(Server("s", tools=many), MODERN) as client:
        assert text(await client.call("many")) == "one of several"
