"""Rewrite what the author of a message chose, and keep what belongs to the protocol.

The place of a member in its message decides, never its name alone or the names beside it:

    base64, ids, cursors, times, fixed words   the protocol's own: kept
    text that is none of these in its place    the author's: rewritten
    numbers of a wire type, names of members   the protocol's own: kept, except priorities
    ids in `_meta`                             kept only in messages that the protocol gives them to
    any other text of a wire type              the author's: rewritten
    members without a type, unknown members    the author's: rewritten, with their names

The wire types say what stands where. A member called `data` is base64 in an image block and free everywhere else.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec import Struct, inspect

from toolwire.protocol import types as t
from toolwire.protocol.errors import MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION, URL_ELICITATION_REQUIRED
from toolwire.protocol.methods import METHODS

#: Rewrites a JSON value that the author of a message chose.
Rewrite: TypeAlias = Callable[[Any], Any]

# Text members of wire types that a peer sends back or compares.
_HANDLES: Final = frozenset(
    {
        "taskId",
        "requestState",
        "nextCursor",
        "elicitationId",
        "progressToken",
        "id",
        "toolUseId",
    }
)
# Members of wire types with words of the protocol, which it leaves open. Any other text in their place is the author's.
_WORDS: Final[dict[str, frozenset[str]]] = {
    "resultType": frozenset({"complete", "input_required", "task"}),
    "cacheScope": frozenset({"public", "private"}),
    "mode": frozenset({"form", "url", "auto", "required", "none"}),
    "includeContext": frozenset({"none", "thisServer", "allServers"}),
}
# Names in `_meta` whose values a peer compares, and the messages that have them. In all other messages, as in the
# results of calls and in blocks of content, a handler may have written any text there.
_META_HANDLES: Final[dict[str, tuple[type[t.Wire], ...]]] = {
    # 2026-07-28 subscriptions: on each notification of a listen stream, and on its end.
    t.SUBSCRIPTION_ID_KEY: (t.NotificationParams, t.SubscriptionsListenResult),
    # Progress: "When a party wants to receive progress updates for a request", in the params of that request.
    t.PROGRESS_TOKEN_KEY: (t.RequestParams,),
    # 2025-11-25 tasks, related task metadata: on what belongs to a task, and on the answer to `tasks/result`.
    t.RELATED_TASK_KEY: (t.RequestParams, t.NotificationParams, t.GetTaskPayloadResult),
}
# The members of wire types that are times.
_TIMES: Final = frozenset({"createdAt", "lastUpdatedAt", "lastModified"})
# A time as ISO 8601 has it. Any other text in the place of a time is the author's.
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_NUMBERS: Final = (inspect.IntType, inspect.FloatType)
_RESULTS: Final = {row.name: row.result for row in METHODS if row.result is not None}
_NOTICES: Final = {row.name: row.params for row in METHODS if row.kind == "notification"}
# The errors whose data has a form of its own.
_ERROR_DATA: Final[dict[int, type[t.Wire]]] = {
    UNSUPPORTED_PROTOCOL_VERSION: t.UnsupportedProtocolVersionErrorData,
    MISSING_CLIENT_CAPABILITY: t.MissingRequiredClientCapabilityErrorData,
    URL_ELICITATION_REQUIRED: t.URLElicitationRequiredErrorData,
}


def find_result_type(method: str, members: Any) -> type[t.Wire]:
    """Return the wire type of a result or task notification, by method and `resultType`."""
    members = members if isinstance(members, dict) else {}
    match members.get("resultType"):
        case "input_required":
            return t.InputRequiredResult
        case "task":
            return t.TaskCreatedResult
    if method == "tasks/result":
        return t.GetTaskPayloadResult
    if method in ("tasks/get", "tasks/cancel"):
        return t.GetTaskResult if "ttl" in members else t.DetailedTaskResult  # The two dialects of tasks.
    if method == "notifications/tasks":
        return t.TaskNotificationParams
    if method == "tools/call" and "content" not in members and isinstance(members.get("task"), dict):
        return t.CreateTaskResult
    return _RESULTS.get(method, t.Result)


def find_notification_type(method: str) -> type[t.Wire]:
    """Return the wire type of the params of a notification."""
    return _NOTICES.get(method, t.NotificationParams)


def find_error_type(code: int) -> type[t.Wire] | None:
    """Return the wire type of an error's data; None for data without a form."""
    return _ERROR_DATA.get(code)


def rewrite_members(type_: type[t.Wire], value: Any, rewrite: Rewrite) -> Any:
    """Rewrite all parts of a message that its author chose. Return the new JSON."""
    if type_ is t.GetTaskPayloadResult and isinstance(value, dict):
        # The members of this result are those of the call that made the task.
        own = {"_meta": _rewrite_meta(type_, value["_meta"], rewrite)} if "_meta" in value else {}
        return {**rewrite_members(t.CallToolResult, value, rewrite), **own}
    return _rewrite(_type_info(type_), value, rewrite)


@lru_cache(maxsize=256)
def _type_info(type_: type[Struct]) -> inspect.Type:
    return inspect.type_info(type_)


@lru_cache(maxsize=256)
def _fields(type_: type[Struct]) -> dict[str, inspect.Type]:
    info = _type_info(type_)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def _rewrite(info: inspect.Type, value: Any, rewrite: Rewrite) -> Any:
    if isinstance(info, inspect.UnionType):
        found = _find_member(info, value)
        return rewrite(value) if found is None else _rewrite(found, value, rewrite)
    if isinstance(value, dict):
        if isinstance(info, inspect.StructType):
            return _rewrite_struct(info.cls, value, rewrite)
        if isinstance(info, inspect.DictType) and isinstance(info.value_type, inspect.UnionType | inspect.StructType):
            # The keys of `inputRequests` are those of the answers.
            return {key: _rewrite(info.value_type, item, rewrite) for key, item in value.items()}
    elif isinstance(value, list):
        if isinstance(info, inspect.ListType):
            return [_rewrite(info.item_type, item, rewrite) for item in value]
    elif isinstance(value, str):
        if isinstance(info, inspect.BytesType):
            return _rewrite_base64(value, rewrite)
        if isinstance(info, inspect.LiteralType) and value in info.values:
            return value
    elif isinstance(info, _NUMBERS):
        return value
    return rewrite(value)


def _rewrite_base64(value: str, rewrite: Rewrite) -> str:
    """Keep base64. Rewrite other text in its place, as base64 of the new text."""
    try:
        binascii.a2b_base64(value.encode(), strict_mode=True)
    except ValueError:
        clean = rewrite(value)
        return value if clean == value else binascii.b2a_base64(str(clean).encode(), newline=False).decode()
    return value


def _rewrite_struct(type_: type[Struct], value: dict[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    fields, tag = _fields(type_), type_.__struct_config__.tag_field
    own: dict[str, Any] = {}
    free: dict[str, Any] = {}
    for name, item in value.items():
        if name == tag or (name in _HANDLES and name in fields):
            own[name] = item if isinstance(item, str | int) else rewrite(item)
        elif name in _WORDS and name in fields:
            own[name] = item if isinstance(item, str) and item in _WORDS[name] else rewrite(item)
        elif name == "_meta":
            own[name] = _rewrite_meta(type_, item, rewrite)
        elif name in _TIMES and name in fields:
            own[name] = item if isinstance(item, str) and _TIME.fullmatch(item) else rewrite(item)
        elif name == "priority" and type_ is t.Annotations:
            own[name] = rewrite(item)
        elif name == "result" and issubclass(type_, t.DetailedTask):
            own[name] = rewrite_members(find_result_type("tools/call", item), item, rewrite)
        elif name == "requestedSchema" and type_ is t.ElicitRequestParams and isinstance(item, dict):
            own[name] = _rewrite_form(item, rewrite)
        elif name in fields:
            own[name] = _rewrite(fields[name], item, rewrite)
        else:
            free[name] = item
    return {**rewrite(free), **own} if free else own


def _rewrite_meta(type_: type[Struct], meta: Any, rewrite: Rewrite) -> Any:
    if not isinstance(meta, dict):
        return rewrite(meta)
    own: dict[str, Any] = {}
    for name in _META_HANDLES.keys() & meta.keys():
        item = meta[name]
        if not issubclass(type_, _META_HANDLES[name]):
            continue
        if name == t.RELATED_TASK_KEY and isinstance(item, dict):
            own[name] = rewrite_members(t.RelatedTaskMetadata, item, rewrite)
        elif name != t.RELATED_TASK_KEY and isinstance(item, str | int):
            own[name] = item
    return {**rewrite({name: item for name, item in meta.items() if name not in own}), **own}


def _rewrite_form(schema: dict[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    """Rewrite the texts of a form. Keep its limits and its type."""
    own = {name: item for name, item in schema.items() if name == "type"}
    free = {name: item for name, item in schema.items() if name not in ("type", "properties")}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        # A name that is rewritten must not replace another one, so that all of them are rewritten together.
        names = list(rewrite(dict.fromkeys(properties)))
        fields = [_rewrite_field(field, rewrite) for field in properties.values()]
        own["properties"] = dict(zip(names, fields, strict=True))
    return {**rewrite(free), **own}


def _rewrite_field(field: Any, rewrite: Rewrite) -> Any:
    if not isinstance(field, dict):
        return rewrite(field)
    own = {name: item for name, item in field.items() if name == "type" and isinstance(item, str)}
    return {**rewrite_members(t.PrimitiveSchemaDefinition, field, rewrite), **own}


def _find_member(union: inspect.UnionType, value: Any) -> inspect.Type | None:
    """Return the type of a union that fits a value; None for an unknown one."""
    for each in union.types:
        if isinstance(value, dict) and isinstance(each, inspect.StructType):
            config = each.cls.__struct_config__
            if config.tag_field is None or value.get(config.tag_field) == config.tag:
                return each
        if isinstance(value, str) and isinstance(each, inspect.StrType | inspect.BytesType | inspect.LiteralType):
            return each
        if isinstance(value, list) and isinstance(each, inspect.ListType):
            return each
        if isinstance(value, int | float) and isinstance(each, _NUMBERS):
            # A number beside texts, as the default of a form, is the author's.
            return None if any(isinstance(other, inspect.StrType) for other in union.types) else each
    return None
