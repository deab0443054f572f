"""The readers of an operation's answers, beside plain JSON and text.

They are chosen when its tool is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from toolwire.openapi.answer.answers import AnswerParts, ApiAnswers, text_of
from toolwire.openapi.answer.binary_answers import BinaryAnswers
from toolwire.openapi.answer.item_streams import read_items
from toolwire.openapi.answer.large_answers import AnswerLimits, LargeAnswers
from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.openapi.answer.long_running import LongRunning
from toolwire.openapi.answer.pagination import Pagination, follow, hint, items_in
from toolwire.openapi.answer.partial_answers import NothingSelected, selected
from toolwire.openapi.answer.response_cache import ResponseCache
from toolwire.openapi.calling import ApiExchange
from toolwire.openapi.model import MediaTypeObject, ToolDefinition
from toolwire.openapi.request.media_types import STREAMS, essence
from toolwire.openapi.request.parameters import is_json
from toolwire.openapi.request.uploads import uploads_of
from toolwire.protocol import types as t
from toolwire.server.call import Call
from toolwire.server.components.tools import error_result
from toolwire.server.kept_results import KeptResults


def answer_parts(
    answers: ApiAnswers,
    definition: ToolDefinition,
    kept: KeptResults,
    *,
    cache: ResponseCache | None = None,
    paths: Mapping[str, str] | None = None,
) -> AnswerParts:
    """Choose the readers of an operation.

    * `kept`: the place for what is too large for a result.
    * `cache`: the answers of the API that may be used again; None for none.
    * `paths`: the path templates of the API's GET operations by their ids, for links of a 202.
    """
    operation = definition.operation
    readers = _Readers(answers, definition, kept, cache)
    long_running = LongRunning(answers, operation, paths)
    is_kept = cache is not None and operation.method == "GET" and answers.operation.is_read
    is_forgotten = cache is not None and not answers.operation.is_read
    return AnswerParts(
        prepare=uploads_of(definition),
        before=readers.from_cache if is_kept else readers.forget_before if is_forgotten else None,
        statuses={202: long_running.read, 304: readers.not_modified} if is_kept else {202: long_running.read},
        media_types={
            **dict.fromkeys(STREAMS, readers.stream),
            "image/svg+xml": readers.picture_in_text,
            "image/*": readers.binary,
            "audio/*": readers.binary,
            "*/*": readers.binary,
        },
        json=readers.json,
        text=readers.text,
        too_large=readers.too_large,
        after=readers.forget_after if is_forgotten else None,
    )


class _Readers:
    """The readers of one operation."""

    def __init__(
        self, answers: ApiAnswers, definition: ToolDefinition, kept: KeptResults, cache: ResponseCache | None
    ) -> None:
        settings = definition.settings
        self._answers = answers
        self._tool = definition.name
        self._select = definition.select
        self._limits = AnswerLimits.from_settings(settings, answers.max_bytes)
        self._max_items = settings.max_items
        self._large = LargeAnswers(kept, self._limits, definition.name, definition.select)
        self._binary = BinaryAnswers(kept, self._limits, definition.name)
        self._pagination = Pagination.from_definition(definition) if answers.operation.is_read else None
        streams = [media for media in _success_media(definition) if essence(media.media_type) in STREAMS]
        self._has_whole_events = any(media.item_schema is not None for media in streams)
        self._cache = cache

    # --- JSON and text ---

    async def json(self, exchange: ApiExchange, data: bytes) -> t.CallToolResult:
        """Make a result of a JSON answer: the selected part, paged and not too large."""
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self.text(exchange, data)
        if self._cache is not None:
            self._cache.store(exchange, data)
        shown, notes, unread, lost = await self._pages(exchange, value)
        left_out = OmittedParts()
        if self._select is not None and (paths := exchange.arguments.get(self._select)):
            try:
                shown = selected(shown, paths, left_out)
            except NothingSelected as error:
                return error_result(str(error))
            if left_out:
                notes.append(
                    t.TextContent(f"[Left out, because `{self._select}` does not name it: {left_out.in_words()}.]")
                )
        if unread is not None:
            left_out.add((*unread, "-"))
        left_out.update(lost)
        text = data if shown is value else msgspec.json.encode(shown)
        if not self._large.fits(text):
            shown, more, cut = await self._large.fit_value(exchange.call, shown, text)
            left_out.update(cut)
            notes = [*more, *notes]
        return self._answers.json_result(
            exchange, data, value, shown=UNSET if shown is value else shown, notes=notes, left_out=left_out
        )

    async def _pages(
        self, exchange: ApiExchange, value: Any
    ) -> tuple[Any, list[Any], tuple[str, ...] | None, OmittedParts]:
        """Collect the items of further pages.

        Returns the answer, remarks, the path to a list that is not whole, and the members of earlier pages that the
        answer lacks. Without `max_items` an answer is one page, and is whole.
        """
        lost = OmittedParts()
        if self._pagination is None:
            return value, [], None, lost
        answer = exchange.answer
        following = self._pagination.next_page(exchange.arguments, value, answer.header("link"), exchange.request.url)
        if following is None:
            return value, [], None, lost
        notes: list[Any] = []
        unread: tuple[str, ...] | None = None
        if self._max_items is not None:
            followed = await follow(
                exchange, self._pagination, value, following, self._max_items, self._limits.max_bytes
            )
            found = items_in(value)
            value, following, lost = followed.value, followed.following, followed.left_out
            if lost:
                words = lost.in_words()
                notes.append(
                    t.TextContent(f"[Left out, because each page has another value: {words}. The last is shown.]")
                )
            if followed.stopped is not None:
                notes.append(t.TextContent(f"[Further pages were not read: {followed.stopped}.]"))
            if followed.stopped is not None or (following is not None and following.is_certain):
                unread = () if found is None else found.way
        if following is not None:
            notes.append(hint(following, _called(exchange.call, self._tool)))
        return value, notes, unread, lost

    async def text(self, exchange: ApiExchange, data: bytes) -> t.CallToolResult:
        """Make a result of a text that is not too large."""
        if self._cache is not None:
            self._cache.store(exchange, data)
        if self._large.fits(data):
            return self._answers.text_result(exchange, data)
        return self._answers.preview(
            *await self._large.fit_text(exchange.call, text_of(data, exchange.answer.header("content-type") or ""))
        )

    async def too_large(self, exchange: ApiExchange, beginning: bytes) -> t.CallToolResult:
        """Make a result of the beginning of a body. The rest is not read."""
        answer = exchange.answer
        exchange.close()
        return self._answers.preview(
            *await self._large.cut(
                exchange.call, beginning[: self._limits.max_bytes], is_json(answer.media_type), _size(exchange)
            )
        )

    # --- streams and bytes ---

    async def stream(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a result of the items of a stream."""
        items = await read_items(
            exchange.call,
            exchange.answer,
            self._limits,
            max_items=self._max_items,
            whole_events=self._has_whole_events,
        )
        exchange.received += items.size
        notes: list[Any] = []
        if items.stopped is not None:
            notes = [t.TextContent(f"[The stream was not read to its end: {items.stopped}.]")]
        shown, more, left_out = await self._large.fit_value(
            exchange.call, items.values, msgspec.json.encode(items.values)
        )
        if items.stopped is not None:
            left_out.add(("-",))
        return self._answers.preview(shown, [*more, *notes], left_out)

    async def binary(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a result of bytes."""
        answer = exchange.answer
        data, is_whole = await exchange.read(self._limits.max_bytes)
        if not data:
            return self._answers.text_result(exchange, b"")
        if not is_whole:
            exchange.close()
            return self._answers.preview("", content=self._binary.cut(answer.media_type, _size(exchange)))
        blocks = await self._binary.blocks(exchange.call, data, answer.media_type, answer.headers)
        return self._answers.preview("", content=blocks)

    async def picture_in_text(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a result of SVG, which models read and do not see."""
        data, is_whole = await exchange.read(self._limits.max_bytes)
        return await self.text(exchange, data) if is_whole else await self.too_large(exchange, data)

    # --- the cache ---

    async def from_cache(self, exchange: ApiExchange) -> t.CallToolResult | None:
        """Answer with a kept answer that is still fresh; otherwise make the request conditional."""
        assert self._cache is not None
        exchange.response = self._cache.fresh(exchange)
        return None if exchange.response is None else await self._answers.read(exchange)

    async def not_modified(self, exchange: ApiExchange) -> t.CallToolResult:
        """Answer with the answer that the API confirms."""
        assert self._cache is not None
        kept = self._cache.confirmed(exchange)
        if kept is not None:
            exchange.close()
            exchange.response = kept
        else:
            # It went meanwhile. The next request has no condition.
            request = exchange.request
            for name in ("if-none-match", "if-modified-since"):
                request.headers.pop(name, None)
            await exchange.send(request)
            if exchange.answer.status == 304:
                return error_result(f"{exchange.operation.name} answered 304, although nothing was kept of it.")
        return await self._answers.read(exchange)

    async def forget_before(self, exchange: ApiExchange) -> None:
        """Forget what was kept of an address, before something is written there."""
        assert self._cache is not None
        self._cache.forget(exchange.request.url)

    def forget_after(self, exchange: ApiExchange, result: t.CallToolResult) -> t.CallToolResult:
        """Forget what was read while the write ran."""
        assert self._cache is not None
        self._cache.forget(exchange.request.url)
        return result


def _called(call: Call, tool: str) -> str:
    """Return the name of the tool that the model knows.

    A prefix or a shape may have changed it. A bridge names operations as they are.
    """
    params = call.params
    return params.name if call.outer is None and isinstance(params, t.CallToolRequestParams) else tool


def _success_media(definition: ToolDefinition) -> list[MediaTypeObject]:
    responses = definition.operation.responses
    return [media for status, each in responses.items() if status.startswith("2") for media in each.content]


def _size(exchange: ApiExchange) -> int | None:
    """Return the length of the answer that the API declares.

    None where it says nothing, or where the answer is compressed.
    """
    answer = exchange.answer
    length = answer.header("content-length") or ""
    is_plain = answer.header("content-encoding") in (None, "identity")
    return int(length) if is_plain and length.isascii() and length.isdecimal() and len(length) < 16 else None
