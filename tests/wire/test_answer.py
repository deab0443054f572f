"""The answer to a request whose handler raised: one ladder for all transports."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.protocol.pair import Offer, modern

from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.jsonrpc import Request, decode, encode_answer
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle
from toolwire.wire.answer import encode_failure

INTERNAL = {"code": -32603, "message": "Internal error"}


def incoming() -> Incoming:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": modern(name="x")}
    request = decode(json.dumps(message).encode())
    assert isinstance(request, Request)
    accepted = ServerLifecycle(Offer()).accept(request)
    assert isinstance(accepted, Incoming)
    return accepted


async def answer_to(raised: BaseException, **options: Any) -> Any:
    data = encode_failure(incoming(), raised, 1000, **options)
    return None if data is None else json.loads(data)


@pytest.mark.parametrize(
    ("raised", "error", "logged"),
    [
        (ProtocolError(-32602, "no", {"why": 1}), {"code": -32602, "message": "no", "data": {"why": 1}}, False),
        (asyncio.CancelledError(), INTERNAL, False),
        (RuntimeError("secret"), INTERNAL, True),
        (SystemExit("secret"), INTERNAL, True),
        (KeyboardInterrupt("secret"), INTERNAL, True),
        (GeneratorExit("secret"), INTERNAL, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_every_failure_has_its_answer(
    raised: BaseException, error: Any, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answer_to(raised) == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert ("the answer to tools/call could not be formed" in caplog.text) == logged
    assert ("secret" in caplog.text) == logged


@pytest.mark.parametrize(("may_be_cancelled", "error"), [(True, None), (False, INTERNAL)])
async def test_a_cancelled_task_is_answered_only_where_the_transport_did_not_cancel_it(
    may_be_cancelled: bool, error: Any
) -> None:
    async def cancelled() -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as raised:
            return await answer_to(raised, may_be_cancelled=may_be_cancelled)

    answer = await asyncio.create_task(cancelled())
    assert (answer and answer["error"]) == error


def test_a_coroutine_that_is_thrown_away_with_its_loop_is_not_answered() -> None:
    with pytest.raises(GeneratorExit):
        encode_failure(incoming(), GeneratorExit(), 1000)


def test_a_result_over_the_limit_is_an_error() -> None:
    size = len(encode_answer(7, {}, 1000))
    assert json.loads(encode_answer(7, {}, size))["result"] == {}
    error = json.loads(encode_answer(7, {}, size - 1))["error"]
    assert error == {"code": -32603, "message": f"The result is over the limit of {size - 1} bytes"}


async def test_error_over_the_limit_is_shortened() -> None:
    answer = await answer_to(ProtocolError(-32050, "m" * 900, {"rows": "z" * 900}))
    assert answer["error"]["code"] == -32050
    assert answer["error"].keys() == {"code", "message"}
    assert answer["error"]["message"].startswith("m" * 200 + " [The error has ")
    assert answer["error"]["message"].endswith("and 1000 are allowed. The rest is left out.]")


async def test_shortened_error_has_no_code_that_needs_data() -> None:
    answer = await answer_to(ProtocolError(-32042, "open a page", {"elicitations": ["x" * 2000]}))
    assert answer["error"]["code"] == -32603
