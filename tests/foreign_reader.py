"""The wire types of another library, `mcp-types`, as a judge of our messages where the official schemas are missing.

Its models are generated from the official schemas of 2025-11-25 and 2026-07-28. For the revisions before 2025-11-25 it
knows the methods, and reads their messages with the models of 2025-11-25: it does not notice a member that is too new.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal

from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCMessage
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from tests.spec import EXACT

Direction = Literal["→", "←"]
Message = dict[str, Any]

# EXT-1: capability objects are open sets, and extensions are declared there from 2025-11-25 on.
OPEN: Final = {("/capabilities", "extensions"), ("/params/capabilities", "extensions")}


@cache
def definitions(revision: str) -> dict[str, Any]:
    """The named definitions of a revision in `EXACT`, as the models describe them."""
    opening = ("initialize", revision) if revision == EXACT[0] else ("server/discover", revision)
    module = sys.modules[methods.CLIENT_REQUESTS[opening].__module__]
    models = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, BaseModel) and each.__module__ == module.__name__
    ]
    _, schema = models_json_schema([(each, "validation") for each in models], by_alias=True)
    found: dict[str, Any] = schema["$defs"]
    return found


def sent_by(side: Literal["Client", "Server"], revision: str) -> set[str]:
    """The methods of the requests and notifications that a side may send on a revision."""
    tables: dict[str, tuple[Any, ...]] = {
        "Client": (methods.CLIENT_REQUESTS, methods.CLIENT_NOTIFICATIONS),
        "Server": (methods.SERVER_REQUESTS, methods.SERVER_NOTIFICATIONS),
    }
    return {method for table in tables[side] for method, known in table if known == revision}


class ForeignConversation:
    """The messages of one connection, read in order by the other library."""

    def __init__(self, revision: str, *, closed: bool = False) -> None:
        """With `closed`, a member that the models do not name is a problem too."""
        self.revision = revision
        self.closed = closed
        self._asked: dict[tuple[Direction, str | int], str] = {}

    def problems(self, direction: Direction, message: Message | list[Message]) -> list[str]:
        """What is wrong with the next message; an empty list when nothing is."""
        if isinstance(message, list):
            # Only 2025-03-26 has batches.
            found = [] if self.revision == "2025-03-26" and message else ["a batch"]
            return found + [problem for each in message for problem in self.problems(direction, each)]
        return [*_mismatches(JSONRPCMessage, message, closed=False), *self._body_problems(direction, message)]

    def _body_problems(self, direction: Direction, message: Message) -> Iterator[str]:
        if "method" in message:
            method = message["method"]
            if "id" in message:
                self._asked[direction, message["id"]] = method
            requests = methods.CLIENT_REQUESTS if direction == "→" else methods.SERVER_REQUESTS
            notices = methods.CLIENT_NOTIFICATIONS if direction == "→" else methods.SERVER_NOTIFICATIONS
            model: Any = (requests if "id" in message else notices).get((method, self.revision))
            if model is None:
                yield f"no method {method}"
            else:
                envelope = {"jsonrpc": "2.0", "id": 0} if "id" in message else {"jsonrpc": "2.0"}
                yield from _mismatches(model, {**envelope, **message}, self.closed)
        elif "result" in message:
            asked = self._asked.pop(("←" if direction == "→" else "→", message.get("id", "")), None)
            results: Any = methods.CLIENT_RESULTS if direction == "→" else methods.SERVER_RESULTS
            if asked is None:
                yield "an answer to nothing"
            elif (asked, self.revision) not in results:
                yield f"no result of {asked}"
            else:
                yield from _mismatches(results[asked, self.revision], message["result"], self.closed)


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _mismatches(model: Any, part: Any, closed: bool) -> Iterator[str]:
    adapter = _adapter(model)
    try:
        read = adapter.validate_python(part, by_name=False)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            yield f"{'/'.join(map(str, each['loc']))}: {each['msg']}"
        return
    if closed:
        # What a model does not name it drops.
        kept = adapter.dump_python(read, by_alias=True, mode="json", exclude_unset=True)
        if isinstance(read, BaseModel) and type(read).__name__ in ("Result", "EmptyResult"):
            # An empty result is open in the models, so that it drops nothing.
            kept = {name: value for name, value in kept.items() if name in ("_meta", "resultType")}
        yield from _lost(part, kept, "")


def _lost(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after and (place, key) in OPEN:
                continue
            if key not in after:
                yield f"{place}/{key}: not named"
            else:
                yield from _lost(value, after[key], f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _lost(old, new, f"{place}/{number}")
