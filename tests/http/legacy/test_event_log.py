"""Event ids, and what the log knows of the end of a stream."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.http.legacy import event_log
from toolwire.http.legacy.event_log import (
    END,
    LAST,
    MESSAGE,
    PRIMING,
    EventLog,
    Resume,
    StreamHeader,
    encode_header,
    event_id,
    header_of,
    parse_event_id,
    stream_name,
    unanswered,
)
from toolwire.stores import MemoryLog, PositionLost, StoreFailed, StoreFull

POSITIONS = st.one_of(
    st.none(), st.integers(0, 2**63), st.text(st.sampled_from("0123456789-"), min_size=1, max_size=40)
)


@pytest.mark.covers("3.4.4.1", "2.1.15")
@given(POSITIONS, st.sampled_from(["p", "g"]), st.integers(0, 99_999))
def test_an_event_id_names_its_stream_and_its_place(position: int | str | None, kind: str, ahead: int) -> None:
    name = stream_name("p" if kind == "p" else "g", os.urandom)
    assert parse_event_id(event_id(name, position, ahead)) == Resume(name, position, ahead)


@given(st.text(max_size=300))
def test_whatever_a_client_sends_as_an_id_is_read_or_refused(text: str) -> None:
    resume = parse_event_id(text)
    assert resume is None or event_id(resume.stream, resume.position).startswith(resume.stream)


async def test_the_first_end_of_a_stream_counts() -> None:
    events = EventLog(MemoryLog())
    await events.append("s", "pAAAAAAAAAAA", MESSAGE, b"1")
    assert [entry.is_end for entry in await events.kept("s", "pAAAAAAAAAAA")] == [False]
    for data in (b"2", b"3"):
        await events.append("s", "pAAAAAAAAAAA", LAST, data)
    await events.append("s", "pAAAAAAAAAAA", END, b"")
    assert [entry.data for entry in await events.kept("s", "pAAAAAAAAAAA")] == [b"1", b"2"]


async def test_the_last_header_of_a_stream_names_its_writer_and_requests() -> None:
    events = EventLog(MemoryLog())
    assert header_of(await events.kept("s", "pAAAAAAAAAAA")) is None
    header = StreamHeader("here", [1, "2", 3])
    for kind, data in (
        (PRIMING, b""),  # Of a version that had no headers.
        (PRIMING, encode_header(StreamHeader("elsewhere", []))),
        (PRIMING, encode_header(header)),
        (MESSAGE, b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}'),
        (MESSAGE, b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'),
        (MESSAGE, b'{"jsonrpc":"2.0","id":"2","result":{}}'),
        (MESSAGE, b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}'),
    ):
        await events.append("s", "pAAAAAAAAAAA", kind, data)
    kept = await events.kept("s", "pAAAAAAAAAAA")
    assert header_of(kept) == header
    assert unanswered(header, kept) == [1, 3]
    await events.append("s", "pAAAAAAAAAAA", PRIMING, b"something else")
    assert header_of(await events.kept("s", "pAAAAAAAAAAA")) is None


async def test_streams_of_other_sessions_are_not_there() -> None:
    events = EventLog(MemoryLog())
    position = await events.append("s", "pAAAAAAAAAAA", END, b"")
    with pytest.raises(PositionLost):
        await events.read("other", Resume("pAAAAAAAAAAA", position))


async def test_only_so_many_finished_streams_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_RETIRED", 2)
    store = MemoryLog()
    events = EventLog(store)
    for number in range(4):
        name = f"pAAAAAAAAAA{number}"
        await events.append("s", name, LAST, b"x")
        events.retire("s", name, 60.0 + number)
    await events.close()
    left = [number for number in range(4) if await events.read("s", Resume(f"pAAAAAAAAAA{number}", None))]
    assert left == [2, 3]


async def test_a_finished_stream_is_forgotten_in_time() -> None:
    events = EventLog(MemoryLog())
    await events.append("s", "pAAAAAAAAAAA", LAST, b"x")
    events.retire("s", "pAAAAAAAAAAA", 300.0)
    await events.append("s", "pBBBBBBBBBBB", LAST, b"x")
    events.retire("s", "pBBBBBBBBBBB", 0.0)
    while events._deleting or len(events._retired) == 2:
        await asyncio.sleep(0)
    assert await events.read("s", Resume("pBBBBBBBBBBB", None)) == []
    assert await events.read("s", Resume("pAAAAAAAAAAA", None)) != []
    await events.close()


class FailingLog(MemoryLog):
    async def append(self, stream: str, data: bytes) -> int:
        raise StoreFailed("It is not reached.")


async def test_what_waits_for_the_store_is_given_up_in_time() -> None:
    with pytest.raises(StoreFailed):
        await EventLog(FailingLog()).append_later("s", "p", None, LAST, b"answer", within=0.0)


async def test_what_waits_for_the_store_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_WAITING", 2 * event_log.LEAST_WAITING)
    events = EventLog(FailingLog())
    waiting = [
        asyncio.ensure_future(events.append_later("s", "p", None, LAST, b"answer", within=60.0)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(StoreFull):
        await events.append_later("s", "p", None, LAST, b"answer", within=60.0)
    events.hurry()
    assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [StoreFailed] * 2
    with pytest.raises(StoreFailed):
        await events.append_later("s", "p", None, LAST, b"answer", within=60.0)


async def test_an_end_that_was_taken_after_all_is_not_appended_twice() -> None:
    events = EventLog(MemoryLog())
    await events.append("s", "p", MESSAGE, b"under way")
    for _ in range(2):
        await events.append_later("s", "p", None, LAST, b"answer", within=60.0)
    assert [entry.data for entry in await events.read("s", Resume("p", None))] == [b"under way", b"answer"]
