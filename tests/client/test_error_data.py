"""Errors whose `data` has another shape than the specification gives it: the caller gets the error of the server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer

from toolwire.client import Client
from toolwire.gateway import Gateway, list_pace
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.revisions import MODERN
from toolwire.testing import outcomes

#: The members of `data` that something here reads, by the code of the error.
MEMBERS = {
    -32002: "uri",
    -32020: "supported",
    -32021: "requiredCapabilities",
    -32022: "supported",
    -32042: "elicitations",
    -32602: "uri",
    -32603: "retryAfterMs",
}
SHAPES: list[Any] = [
    5,
    True,
    10**400,
    "elicitation",
    None,
    [{}],
    [[]],
    [5],
    {"elicitation": 5, "extensions": 5},
    {"extensions": {"io.modelcontextprotocol/tasks": 5}},
]


def failing(code: int, sent: list[Any]) -> FakeServer:
    """Return a server with the tool `run`, whose answers are this error with the last data of `sent`."""

    def fail(request: Any, outlet: Any) -> Any:
        raise ProtocolError(code, "no", sent[-1])

    page = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    return FakeServer(
        {"tools/call": fail, "resources/read": fail, "tools/list": lambda request, outlet: {**page}},
        capabilities={"tools": {}, "resources": {}},
    )


@pytest.mark.parametrize("is_gateway", [False, True], ids=["direct", "gateway"])
@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
@cases("code", MEMBERS)
async def test_error_with_data_of_any_shape_is_an_error_of_the_library(
    revision: str, is_gateway: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A gateway reads the lists again after an error that may come from outdated ones.
    monkeypatch.setattr(list_pace, "READINGS_A_SECOND", 1000)
    sent: list[Any] = []
    target: Any = failing(code, sent)
    if is_gateway:
        gateway = Gateway("front")
        gateway.add("up", target, prefix="")
        target = gateway
    async with Client(target, revision=revision, timeout=5) as client:
        for shape in SHAPES:
            for data in (shape, {MEMBERS[code]: shape}):
                sent.append(data)
                try:
                    failed = await client.call_tool("run")
                    assert failed.is_error and "Internal error" not in failed.text, data
                except ToolwireError as error:
                    assert "Internal error" not in str(error), data
                with pytest.raises(ToolwireError, match=r"^(?!Internal error)"):
                    await client.read_resource("x:y")


@cases(("milliseconds", "seconds"), [(5, 0.005), *((shape, None) for shape in SHAPES[1:])])
async def test_outcome_of_an_error_with_a_malformed_pause_is_the_error(
    milliseconds: Any, seconds: float | None
) -> None:
    async with Client(failing(-32603, [{"retryAfterMs": milliseconds}])) as client:
        assert (await outcomes.outcome_of(client.call_tool("run"))).retry_after == seconds
