"""Operations that continue after a 202 answer, with an address for their state.

The call waits for the end, and looks as often as the API asks for. As a task it may wait for as long as tasks may run:
a call that may become a task becomes one when the API says 202. Any other call waits within its time. After that its
result says where to look.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from toolwire.openapi.access.signing import OutgoingRequest
from toolwire.openapi.answer.answers import ApiAnswers
from toolwire.openapi.answer.pagination import join_link
from toolwire.openapi.calling import ApiExchange
from toolwire.openapi.model import OperationObject
from toolwire.printable import printable
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.util.backoff import Backoff
from toolwire.util.json_pointer import at_pointer, unescape_token

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: How many seconds lie between two looks: at first, at most, and at least.
FIRST_SECONDS: Final = 1.0
MAX_SECONDS: Final = 30.0
LEAST_SECONDS: Final = 0.2
#: No API is left alone for longer, whatever it asks for.
LONGEST_SECONDS: Final = 600.0
# How much of an answer that tells a state is read, and how much of a message is shown.
_MAX_BYTES: Final = 256 * 1024
_SHOWN: Final = 500
_ADDRESSES: Final = ("operation-location", "azure-asyncoperation", "location")
# The members that tell a state, and the words for it, without case and punctuation.
_STATES: Final = ("status", "state", "provisioningState", "jobStatus", "runState")
_RUNNING: Final = frozenset(
    {
        "accepted",
        "active",
        "created",
        "creating",
        "deleting",
        "executing",
        "inprogress",
        "new",
        "notstarted",
        "pending",
        "processing",
        "provisioning",
        "queued",
        "running",
        "scheduled",
        "started",
        "starting",
        "submitted",
        "updating",
        "waiting",
        "working",
    }
)
_FAILED: Final = frozenset(
    {"aborted", "canceled", "cancelled", "error", "errored", "expired", "failed", "failure", "rejected", "timedout"}
)
_PERCENT: Final = ("percentComplete", "percent_complete", "progress", "percentage")
_LETTERS: Final = re.compile(r"[^a-z]")
# A runtime expression of OpenAPI, as far as a link of a 202 needs it.
_EXPRESSION: Final = re.compile(r"\$response\.(?:body#(?P<pointer>(?:/[^{}]*)?)|header\.(?P<header>[\w-]+))")
_SEGMENT: Final = re.compile(r"\{([^{}]+)\}")


def is_long_running(operation: OperationObject) -> bool:
    """Return whether an operation says that it may go on after its answer."""
    return "202" in operation.responses


class LongRunning:
    """The waiting for the end of one operation."""

    def __init__(self, answers: ApiAnswers, operation: OperationObject, paths: Mapping[str, str] | None = None) -> None:
        """`paths` are the templates of GET operations by id, because links name operations so."""
        self._answers = answers
        self._operation = operation
        self._paths = paths or {}

    async def read(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a result of a 202: that of the end, where it comes in time."""
        call = exchange.call
        accepted = exchange.answer
        data, _ = await exchange.read(_MAX_BYTES)
        told = _decoded(data)
        url = self._address(exchange, told)
        if url is None:
            return self._answers.preview(told if told is not None else data.decode(errors="replace"))
        if call.task_run is not None and not call.is_task:
            try:
                await call.task_run.detach()
                call.asking = None  # From here on questions are those of the task, also for a call inside another one.
            except ProtocolError as error:
                log.warning("a call could not become a task, and continues as a call: %s", error.message)
        pauses = Backoff(first=FIRST_SECONDS, longest=MAX_SECONDS, jitter=False)
        pause = _pause(accepted.retry_after, pauses.after(None))
        looks = 0
        while True:
            spare = call.spare_time
            if spare is not None and pause >= spare:
                return self._not_yet(url, told, pause)
            await asyncio.sleep(pause)
            looks += 1
            await exchange.send(OutgoingRequest(method="GET", url=url, headers={"accept": "application/json, */*"}))
            answer = exchange.answer
            if exchange.request.url != url or answer.status not in (200, 201, 202):
                # A redirect (303) led to what the operation made, or the API refuses to say more.
                return await self._answers.read(exchange)
            pause = _pause(answer.retry_after, pauses.after(None))
            data, is_whole = await exchange.read(_MAX_BYTES)
            told = _decoded(data) if is_whole else None
            state = state_of(told)
            if answer.status == 202 or state == "running":
                _report(exchange, looks, told)
                url = self._address(exchange, told) or url
            elif state == "failed":
                return _failed(self._answers, told)
            else:
                return await self._ended(exchange, data, told)

    async def _ended(self, exchange: ApiExchange, data: bytes, told: Any) -> t.CallToolResult:
        """Make the result of an operation that succeeded.

        If the answer names what was made, that is read.
        """
        made = exchange.answer.header("location")
        if made is None and isinstance(told, dict):
            made = told.get("resourceLocation") if isinstance(told.get("resourceLocation"), str) else None
        if made is not None and (url := join_link(exchange.request.url, made)) not in (None, exchange.request.url):
            await exchange.send(OutgoingRequest(method="GET", url=url, headers={"accept": "application/json, */*"}))
            return await self._answers.read(exchange)
        return self._answers.preview(told if told is not None else data.decode(errors="replace"))

    def _not_yet(self, url: str, told: Any, pause: float) -> t.CallToolResult:
        parts = urlsplit(url)
        # The query may hold a credential.
        where = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        text = (
            f"[{self._answers.operation.name} was accepted and is not done yet. Its state is at {printable(where)}. "
            f"Look again in {max(round(pause), 1)} seconds or later. Do not call it again: that would start it twice.]"
        )
        return self._answers.preview(told if told is not None else {}, [t.TextContent(text)])

    # --- addresses ---

    def _address(self, exchange: ApiExchange, told: Any) -> str | None:
        """Return where the end can be seen; None where the API does not say it."""
        answer = exchange.answer
        for name in _ADDRESSES:
            if (location := answer.header(name)) is not None:
                return join_link(answer.url, location)
        response = self._operation.responses.get(str(answer.status))
        for link in () if response is None else response.links.values():
            if (found := self._linked(exchange, link, told)) is not None:
                return found
        return None

    def _linked(self, exchange: ApiExchange, link: Any, told: Any) -> str | None:
        """Return the address of a Link Object.

        None unless its operation is a GET with values for its path.
        """
        if not isinstance(link, dict):
            return None
        template = self._paths.get(str(link.get("operationId"))) or _path_in(link.get("operationRef"))
        parameters = link.get("parameters")
        if template is None:
            return None
        values: dict[str, str] = {}
        for name, expression in parameters.items() if isinstance(parameters, dict) else ():
            value = _evaluated(exchange, expression, told)
            if value is not None:
                values[str(name).removeprefix("path.")] = value
        if any(name not in values or values[name] in (".", "..", "") for name in _SEGMENT.findall(template)):
            return None
        path = _SEGMENT.sub(lambda found: quote(values[found[1]], safe=""), template)
        parts = urlsplit(exchange.request.url)
        # The path of the server stands before that of the operation, which has as many segments as its template.
        own = self._operation.path.count("/")
        base = "/".join(parts.path.split("/")[:-own]) if own else parts.path
        return urlunsplit((parts.scheme, parts.netloc, base + path, "", ""))


def _path_in(reference: Any) -> str | None:
    """Return the path template of a GET in the same document that an `operationRef` names."""
    if not isinstance(reference, str) or not reference.startswith("#/paths/") or not reference.endswith("/get"):
        return None
    return unescape_token(unquote(reference.removeprefix("#/paths/").removesuffix("/get")))


def _evaluated(exchange: ApiExchange, expression: Any, told: Any) -> str | None:
    """Return the value of a link parameter: a runtime expression or a constant."""
    if not isinstance(expression, str) or not expression.startswith("$"):
        return str(expression) if isinstance(expression, str | int) else None
    found = _EXPRESSION.fullmatch(expression)
    if found is None:
        return None
    if found["header"] is not None:
        return exchange.answer.header(found["header"])
    value = at_pointer(told, found["pointer"] or "")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


# --- states -----------------------------------------------------------------------------------------------------------


def state_of(told: Any) -> str | None:
    """Return `running`, `failed` or `done`, if an answer has a state; otherwise None."""
    if not isinstance(told, dict):
        return None
    if isinstance(told.get("done"), bool):
        # Google's long-running operations.
        return "running" if not told["done"] else "failed" if told.get("error") else "done"
    properties = told.get("properties")
    for holder in (told, properties if isinstance(properties, dict) else {}):
        for name in _STATES:
            if isinstance(holder.get(name), str):
                word = _LETTERS.sub("", holder[name].lower())
                return "running" if word in _RUNNING else "failed" if word in _FAILED else "done"
    return None


def _report(exchange: ApiExchange, looks: int, told: Any) -> None:
    members = told if isinstance(told, dict) else {}
    state = next((members[name] for name in _STATES if isinstance(members.get(name), str)), "running")
    percent = next((members[name] for name in _PERCENT if type(members.get(name)) in (int, float)), None)
    message = printable(state[:_SHOWN])
    if percent is not None and 0 < percent <= 100:
        exchange.call.tell_progress(percent, 100, message)
    else:
        exchange.call.tell_progress(looks, None, message)


def _failed(answers: ApiAnswers, told: Any) -> t.CallToolResult:
    """Make the error of an operation that was accepted and failed."""
    error = told.get("error") or told.get("errors") or told.get("message") or told
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    text = error if isinstance(error, str) else msgspec.json.encode(error).decode(errors="replace")
    told_text = f"{answers.operation.name} was accepted and then failed: {printable(text[:_SHOWN])}"
    return t.CallToolResult(content=[t.TextContent(told_text)], is_error=True)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _pause(asked: float | None, usual: float) -> float:
    return min(max(usual if asked is None else asked, LEAST_SECONDS), LONGEST_SECONDS)
