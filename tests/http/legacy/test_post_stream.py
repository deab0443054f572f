"""The memory of the answer to one legacy POST."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from toolwire.http.legacy.post_stream import PostStream
from toolwire.http.unsent_answers import PacedSend, UnsentAnswers

REVISIONS = ("2025-03-26", "2025-11-25")
freed: list[int] = []


class Answer(bytes):
    """An answer that notes when it is freed. Bytes have no weak references."""

    def __del__(self) -> None:
        freed.append(len(self))


class Streams:
    """The other streams of the process: none, and no log."""

    events: Any = None
    process = "here"

    async def lease(self) -> str:
        return ""

    def woken(self, session: str, stream: str, carrier: str) -> None:
        """Ignore events."""

    def over(self, stream: PostStream) -> None:
        """Ignore the end."""


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Free only what has no references left."""
    gc.disable()
    freed.clear()
    yield
    gc.enable()


async def _receive() -> Any:
    await asyncio.Event().wait()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("is_batch", [False, True])
async def test_answer_is_freed_when_it_is_sent(revision: str, is_batch: bool) -> None:
    sizes: list[int] = []

    async def send(message: Any) -> None:
        sizes.append(len(message.get("body", b"")))

    paced = PacedSend(send, UnsentAnswers(0.25), "a")
    stream = PostStream(Streams(), "session", "post", revision, _receive, paced, [], [] if is_batch else None)
    stream.expect(1)
    stream.waits()
    await asyncio.sleep(0)
    stream.settle(1, Answer(b'{"id":1}'))
    await stream.serve()
    assert sum(sizes) >= 8
    assert freed == [8], "also while the stream exists"


@pytest.mark.usefixtures("without_collections")
async def test_stream_is_freed_after_its_answer_without_a_collection() -> None:
    class Marked(PostStream):
        def __del__(self) -> None:
            freed.append(-1)

    async def send(message: Any) -> None:
        """Take the answer."""

    paced = PacedSend(send, UnsentAnswers(0.25), "a")
    stream = Marked(Streams(), "session", "post", "2025-11-25", _receive, paced, [])
    stream.expect(1)
    stream.waits()
    await asyncio.sleep(0)
    stream.settle(1, b"{}")
    await stream.serve()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del stream
    assert freed == [-1]
