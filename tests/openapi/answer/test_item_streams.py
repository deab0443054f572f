"""Streams of items: the bytes of each kind, in pieces of any size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from tests.cases import cases

from toolwire.http1.response import HttpResponse
from toolwire.openapi.answer.item_streams import read_items
from toolwire.openapi.answer.large_answers import AnswerLimits
from toolwire.openapi.request.media_types import STREAMS
from toolwire.server.call import Call

LINES = b'{"n":1}\n\n{"n":2}\r\nno json\n[3]'
SEQUENCE = b'\x1e{"n":1}\n\x1e{"n":2}\n\x1eno json\n\x1e[3]\n'
EVENTS = (
    b': hello\n\ndata: {"n":1}\n\ndata: {"n":\ndata: 2}\nid: 7\n\ndata: no json\n\n'
    b"event: x\ndata: [3]\n\ndata: [DONE]\n\n"
)
VALUES = [{"n": 1}, {"n": 2}, "no json", [3]]


class Body(HttpResponse):
    """A response with a given body."""

    def __init__(self, media_type: str, chunks: Sequence[bytes], endless: bool = False) -> None:
        self.status, self.url = 200, "https://api.example/stream"
        self._type, self._chunks, self._endless = media_type, chunks, endless
        self.closed = False

    def header(self, name: str) -> str | None:
        return self._type if name == "content-type" else None

    @property
    def headers(self) -> Mapping[str, str]:
        return {"content-type": self._type}

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._endless:
            await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


class Reports:
    """A call, as far as reading needs it."""

    def __init__(self, times: Sequence[float | None] = (None,)) -> None:
        self.told: list[tuple[float, Any]] = []
        self._times = list(times)

    def tell_progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        self.told.append((progress, message))
        return True

    @property
    def spare_time(self) -> float | None:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


def body_of(media_type: str) -> bytes:
    return EVENTS if media_type == "text/event-stream" else SEQUENCE if "seq" in media_type else LINES


@cases("size", [1, 3, 1_000])
@cases("media_type", sorted(STREAMS))
async def test_each_item_is_progress_and_all_are_the_result(media_type: str, size: int) -> None:
    data = body_of(media_type)
    reports = Reports()
    response = Body(media_type + "; charset=utf-8", [data[at : at + size] for at in range(0, len(data), size)])
    items = await read_items(cast("Call", reports), response, AnswerLimits())
    assert (items.values, items.stopped) == (VALUES, None)
    assert [number for number, _ in reports.told] == [1, 2, 3, 4]
    assert [message for _, message in reports.told] == ['{"n":1}', '{"n":2}', "no json", "[3]"]


async def test_events_with_their_fields() -> None:
    items = await read_items(
        cast("Call", Reports()), Body("text/event-stream", [EVENTS]), AnswerLimits(), whole_events=True
    )
    assert items.values == [
        {"data": '{"n":1}'},
        {"data": '{"n":\n2}', "id": "7"},
        {"data": "no json", "id": "7"},
        {"data": "[3]", "event": "x", "id": "7"},
        {"data": "[DONE]", "id": "7"},
    ]


@cases("media_type", ["text/event-stream", "application/jsonl", "application/json-seq"])
async def test_the_list_is_capped_in_number_and_bytes(media_type: str) -> None:
    response = Body(media_type, [body_of(media_type)] * 3, endless=True)
    items = await read_items(cast("Call", Reports()), response, AnswerLimits(), max_items=3)
    assert (items.values, items.stopped) == (VALUES[:3], "it has 3 items or more")
    assert response.closed
    response = Body(media_type, [body_of(media_type)] * 3, endless=True)
    items = await read_items(cast("Call", Reports()), response, AnswerLimits(max_bytes=20))
    assert items.stopped == "it has more than 20 bytes"
    assert response.closed


async def test_a_stream_without_an_end_stops_before_the_time_is_over() -> None:
    # The time grows, as when the call becomes a task, and is over after that.
    reports = Reports([0.0, 0.001, 0.0, 0.001, 0.0])
    response = Body("application/jsonl", [b'{"n":1}\n'], endless=True)
    items = await read_items(cast("Call", reports), response, AnswerLimits())
    assert (items.values, items.stopped) == ([{"n": 1}], "its time was over")
    assert response.closed
