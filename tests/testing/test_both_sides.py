"""A failure from both sides."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from toolwire import Context, Policy, Server, ToolError, testing
from toolwire.audit import AuditLog
from toolwire.auth import Principal

PASSWORD = "hunter2-hunter2"


def make_server(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    def broken(table: str) -> str:
        logging.getLogger("mine").warning("about to fail for %s", table)
        raise ConnectionError(f"postgres://app:{PASSWORD}@db/{table}")

    @server.tool
    def careless() -> str:
        raise ToolError(f"postgres://app:{PASSWORD}@db")

    @server.tool
    def good(ctx: Context) -> str:
        return "fine"

    @server.resource("row://{id}")
    def row(id: str) -> str:
        raise ConnectionError(PASSWORD)

    return server


@pytest.mark.covers("R32")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_the_caller_has_an_id_and_the_log_has_the_cause(over: testing.Over) -> None:
    lines: list[str] = []
    server = make_server(audit=AuditLog(lines.append, key="a key for the audit log of a test"))
    seen = await testing.both_sides(
        server,
        lambda client: client.call_tool("broken", {"table": "users"}),
        principal=Principal("ann"),
        over=over,
    )
    seen.check(PASSWORD, "postgres")
    assert seen.error_id is not None
    assert seen.outcome == testing.Outcome(
        "isError", f"Internal error in the tool broken (error id {seen.error_id})", None
    )
    assert isinstance(seen.cause, ConnectionError)
    assert PASSWORD in seen.log and "about to fail for users" in seen.log
    assert seen.log.count("Traceback") == 1
    (line,) = seen.audit
    assert (line["outcome"], line["errorId"], line["who"]) == ("failed", seen.error_id, {"subject": "ann"})
    assert any(seen.error_id in line for line in lines)
    # Nothing of the helper stays.
    assert "record" not in vars(server.kernel.audit)


async def test_resources_are_seen_from_both_sides_too() -> None:
    seen = await testing.both_sides(make_server(), lambda client: client.read_resource("row://1"))
    seen.check(PASSWORD)
    assert (seen.outcome.kind, seen.audit) == ("ProtocolError -32603", [])
    assert isinstance(seen.cause, ConnectionError)


@pytest.mark.covers("R32")
async def test_a_server_that_tells_too_much_is_found() -> None:
    async def check(server: Server, tool: str, arguments: dict[str, str] | None = None) -> None:
        (await testing.both_sides(server, lambda client: client.call_tool(tool, arguments))).check(PASSWORD)

    with pytest.raises(AssertionError, match=r"the caller was shown a secret \(hun…\)"):
        await check(make_server(), "careless")
    with pytest.raises(AssertionError, match="the caller was shown a secret"):
        await check(make_server(debug=True), "broken", {"table": "t"})
    with pytest.raises(AssertionError, match="the call did not fail"):
        await check(make_server(), "good")
    used_up = make_server(policy=Policy(rate="1/minute"))
    await used_up.call_tool("good")
    with pytest.raises(AssertionError, match="the call was refused before it could fail: Too many calls"):
        await check(used_up, "broken", {"table": "t"})
    logger = logging.getLogger("toolwire.server")
    logger.disabled = True
    try:
        with pytest.raises(AssertionError, match="the log says nothing of the error id"):
            await check(make_server(), "broken", {"table": "t"})
    finally:
        logger.disabled = False
