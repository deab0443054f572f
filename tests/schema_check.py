"""Is this message what the official schema of its revision says it is?

A conversation reads the messages of one connection in order. It picks the definition of each by its method and
direction, and the definition of a result by the method of the request that it answers. With `closed=True` a message may
also carry no member that its definition does not name: the schemas themselves allow any, for the sake of later ones.
"""

from __future__ import annotations

import copy
import json
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import jsonschema_rs
from tests.spec import OFFICIAL, definitions, schema_file

if TYPE_CHECKING:
    from tests.foreign_reader import ForeignConversation

Direction = Literal["→", "←"]
Message = dict[str, Any]

# These hold what somebody else defines: a JSON Schema, metadata, or the data of an error.
OPEN = {"_meta", "inputSchema", "outputSchema", "metadata", "experimental", "data"}


def conversation(revision: str, *, closed: bool = False) -> OfficialConversation | ForeignConversation:
    """The judge of the messages of one connection: the official schemas, or the foreign reader without them."""
    if OFFICIAL:
        return OfficialConversation(revision, closed=closed)
    from tests.foreign_reader import ForeignConversation

    return ForeignConversation(revision, closed=closed)


class OfficialConversation:
    """The messages of one connection, as the client sees them: "→" goes to the server, "←" comes from it."""

    def __init__(self, revision: str, *, closed: bool = False) -> None:
        self.revision = revision
        self.closed = closed
        self._asked: dict[tuple[Direction, str | int], Message] = {}

    def problems(self, direction: Direction, message: Message | list[Message]) -> list[str]:
        """What is wrong with the next message; an empty list when nothing is."""
        if isinstance(message, list):
            # Only 2025-03-26 has batches (JSONRPCBatchRequest, JSONRPCBatchResponse).
            found = [] if self.revision == "2025-03-26" and message else ["a batch"]
            return found + [problem for each in message for problem in self.problems(direction, each)]
        if "method" in message and "id" in message:
            self._asked[direction, message["id"]] = message
        return [
            f"{name}: {problem}"
            for name, part in self._parts(direction, message)
            for problem in _mismatches(self.revision, name, part, self.closed)
        ]

    def _parts(self, direction: Direction, message: Message) -> list[tuple[str, Any]]:
        """The definitions a message has to satisfy, each with the part of the message that it describes."""
        envelope: list[tuple[str, Any]] = [("JSONRPCMessage", message)]
        if "method" in message:
            name = _methods(self.revision, "id" in message).get(message["method"])
            if name is None:
                return [*envelope, (f"no method {message['method']}", message)]
            return [*envelope, (name, _described(self.revision, name, message))]
        if "error" in message:
            name = _ERRORS.get((self.revision, message["error"].get("code")))
            return envelope if name is None else [*envelope, (name, message)]
        asked = self._asked.pop(("←" if direction == "→" else "→", message.get("id", "")), None)
        if asked is None:
            return [*envelope, ("an answer to nothing", message)]
        return [*envelope, *self._result_parts(asked, message)]

    def _result_parts(self, asked: Message, message: Message) -> list[tuple[str, Any]]:
        known = definitions(self.revision)
        request = _methods(self.revision, True).get(asked["method"], "")
        response = request.removesuffix("Request") + "ResultResponse"
        if response in known:
            return [(response, message)]
        result = request.removesuffix("Request") + "Result"
        return [(result if result in known else "EmptyResult", message["result"])]


_ERRORS = {
    ("2025-11-25", -32042): "URLElicitationRequiredError",
    ("2026-07-28", -32020): "HeaderMismatchError",
    ("2026-07-28", -32021): "MissingRequiredClientCapabilityError",
    ("2026-07-28", -32022): "UnsupportedProtocolVersionError",
}


@lru_cache
def _methods(revision: str, requests: bool) -> dict[str, str]:
    """The definition of each request, or of each notification, by its method."""
    suffix = "Request" if requests else "Notification"
    return {
        definition["properties"]["method"]["const"]: name
        for name, definition in definitions(revision).items()
        if name.endswith(suffix) and "const" in definition.get("properties", {}).get("method", {})
    }


def _described(revision: str, name: str, message: Message) -> Message:
    """Up to 2025-06-18 a request is defined without its envelope."""
    if "jsonrpc" in definitions(revision)[name]["properties"]:
        return message
    return {key: value for key, value in message.items() if key not in ("jsonrpc", "id")}


def _mismatches(revision: str, name: str, part: Any, closed: bool) -> list[str]:
    if name not in definitions(revision):
        return [f"{revision} has no such definition"]
    # What is closed is the definition of the message; the envelope is the same for all of them.
    validator = _validator(revision, name, closed and name != "JSONRPCMessage")
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(part)]


@cache
def _validator(revision: str, name: str, closed: bool) -> Any:
    schema = dict(_closed_schema(revision) if closed else _schema(revision))
    keyword = "$defs" if "$defs" in schema else "definitions"
    # In draft-07 whatever stands beside a `$ref` is ignored.
    schema["allOf"] = [{"$ref": f"#/{keyword}/{name}"}]
    kind = jsonschema_rs.Draft202012Validator if keyword == "$defs" else jsonschema_rs.Draft7Validator
    return kind(schema)


@lru_cache
def _schema(revision: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(schema_file(revision).read_text(encoding="utf-8"))
    return schema


@lru_cache
def _closed_schema(revision: str) -> dict[str, Any]:
    schema = copy.deepcopy(_schema(revision))
    known = schema.get("$defs") or schema["definitions"]
    if revision == "2025-11-25":
        # EXT-1: capability objects are open sets, and extensions are declared there from this revision on.
        for name in ("ClientCapabilities", "ServerCapabilities"):
            known[name]["properties"]["extensions"] = {"type": "object"}
    for name, definition in known.items():
        _close(definition, "_meta" if name.endswith("MetaObject") else "")
    return schema


def _close(schema: Any, name: str = "") -> None:
    """Forbid what an object schema does not name, here and inside. Parts of an `allOf` describe the same object."""
    if name in OPEN or not isinstance(schema, dict):
        return
    for branch in ("anyOf", "oneOf"):
        for each in schema.get(branch, ()):
            _close(each)
    _close(schema.get("items"))
    _close(schema.get("additionalProperties"))
    named = schema.get("properties")
    if not named:
        return
    for key, each in named.items():
        _close(each, key)
    schema["additionalProperties"] = False
    if name == "params":
        # Every request and notification may carry it; before 2025-06-18 only their base definitions say so.
        named.setdefault("_meta", {"type": "object"})
