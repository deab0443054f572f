"""Values cut down to what one revision knows: a table of members, and a plan for each type compiled from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.revisions import (
    CARRY_EXTENSIONS,
    FROM_2025_03,
    FROM_2025_06,
    FROM_2025_11,
    FROM_2026_07,
    ONLY_2024_11,
    ONLY_2025_03,
    ONLY_2025_06,
    ONLY_2025_11,
    REVISIONS,
    UNTIL_2025_03,
    UNTIL_2025_06,
    UNTIL_2025_11,
    Revisions,
    is_modern,
    is_supported,
)

T = TypeVar("T")


# --- Members ---------------------------------------------------------------------------------------------------------

# Members that not every revision knows; whatever is not listed, all of them know. A rule holds for subclasses too.
MEMBERS: Mapping[type[t.Wire], Mapping[str, Revisions]] = MappingProxyType(
    {
        t.Implementation: {
            "title": FROM_2025_06,
            "description": FROM_2025_11,
            "website_url": FROM_2025_11,
            "icons": FROM_2025_11,
        },
        t.Annotations: {"last_modified": FROM_2025_06},
        t.RequestMeta: {
            "protocol_version": FROM_2026_07,
            "client_capabilities": FROM_2026_07,
            "client_info": FROM_2026_07,
            "log_level": FROM_2026_07,
            "related_task": ONLY_2025_11,
        },
        t.Result: {"result_type": FROM_2026_07},
        t.CacheableResult: {"ttl_ms": FROM_2026_07, "cache_scope": FROM_2026_07},
        t.RoundRequestParams: {"input_responses": FROM_2026_07, "request_state": FROM_2026_07},
        t.ClientCapabilities: {
            "elicitation": FROM_2025_06,
            "tasks": ONLY_2025_11,
            "extensions": FROM_2026_07,
        },
        t.ServerCapabilities: {
            "completions": FROM_2025_03,
            "tasks": ONLY_2025_11,
            "extensions": FROM_2026_07,
        },
        t.Block: {"meta": FROM_2025_06},
        t.ResourceContents: {"meta": FROM_2025_06},
        t.ResourceMetadata: {"title": FROM_2025_06, "icons": FROM_2025_11, "meta": FROM_2025_06},
        t.ProgressNotificationParams: {"message": FROM_2025_03},
        t.Tool: {
            "annotations": FROM_2025_03,
            "title": FROM_2025_06,
            "output_schema": FROM_2025_06,
            "meta": FROM_2025_06,
            "icons": FROM_2025_11,
            "execution": ONLY_2025_11,
        },
        t.CallToolRequestParams: {"task": ONLY_2025_11},
        t.CallToolResult: {"structured_content": FROM_2025_06},
        t.PromptArgument: {"title": FROM_2025_06},
        t.Prompt: {"title": FROM_2025_06, "meta": FROM_2025_06, "icons": FROM_2025_11},
        t.PromptReference: {"title": FROM_2025_06},
        t.CompleteRequestParams: {"context": FROM_2025_06},
        t.Root: {"meta": FROM_2025_06},
        t.ListRootsResult: {"meta": UNTIL_2025_11},
        t.SamplingMessage: {"meta": FROM_2025_11},
        t.CreateMessageRequestParams: {
            "tools": FROM_2025_11,
            "tool_choice": FROM_2025_11,
            "task": ONLY_2025_11,
            "meta": UNTIL_2025_11,
        },
        t.PrimitiveSchemaDefinition: {
            "one_of": FROM_2025_11,
            "items": FROM_2025_11,
            "min_items": FROM_2025_11,
            "max_items": FROM_2025_11,
        },
        t.ElicitRequestParams: {
            "mode": FROM_2025_11,
            "url": FROM_2025_11,
            "elicitation_id": ONLY_2025_11,
            "task": ONLY_2025_11,
            "meta": UNTIL_2025_11,
        },
        t.ElicitResult: {"meta": UNTIL_2025_11},
    }
)

# Members of the open capability objects that not every revision knows; unknown ones always pass (CAP-3).
_CLIENT_CAPABILITIES: Mapping[str, Revisions] = {
    "elicitation": FROM_2025_06,
    "elicitation.form": FROM_2025_11,
    "elicitation.url": FROM_2025_11,
    "sampling.tools": FROM_2025_11,
    "sampling.context": FROM_2025_11,
    "roots.listChanged": UNTIL_2025_11,
    "tasks": ONLY_2025_11,
    "extensions": CARRY_EXTENSIONS,
}
_SERVER_CAPABILITIES: Mapping[str, Revisions] = {
    "completions": FROM_2025_03,
    "tasks": ONLY_2025_11,
    "extensions": CARRY_EXTENSIONS,
}


def knows(type_: type[t.Wire], member: str, revision: str) -> bool:
    """Return whether `revision` knows the member (by its attribute name) of a wire type."""
    return all(
        revision in rules[member] for base, rules in MEMBERS.items() if issubclass(type_, base) and member in rules
    )


# --- Shape -----------------------------------------------------------------------------------------------------------


def shape(value: T, revision: str) -> T:
    """`value` as a peer of `revision` knows it: the same object if that is nothing new, else a copy.

    Members that the revision does not know are left out, at every level; content it does not know becomes text. What
    cannot be said at all in that revision is a `ValueError`. Raw JSON passes untouched.
    """
    if not isinstance(value, t.Wire):
        return value
    plan = _plan(type(value), revision)
    return value if plan is None else cast("T", plan(value))


_Convert: TypeAlias = Callable[[Any], Any]
_Steps: TypeAlias = tuple[tuple[str, _Convert], ...]


@lru_cache(maxsize=2048)
def _plan(type_: type[t.Wire], revision: str) -> _Convert | None:
    """Return the plan that shapes a value of `type_`; None when neither it nor anything inside needs shaping."""
    if not is_supported(revision):
        raise ValueError(f"unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")
    substitute = _substitute(type_, revision)
    if substitute is not None:
        return lambda value: shape(substitute(value), revision)
    adapt = _adapt(type_, revision)
    defaults = _defaults(type_, revision)
    steps = _steps(type_, revision)
    if adapt is None and not defaults and not steps:
        return None

    def apply(value: t.Wire) -> t.Wire:
        if adapt is not None:
            value = adapt(value)
        changes = {attribute: default for attribute, default in defaults if getattr(value, attribute) is UNSET}
        for attribute, convert in steps:
            old = getattr(value, attribute)
            if old is not UNSET:
                new = convert(old)
                if new is not old:
                    changes[attribute] = new
        return replace_members(value, **changes) if changes else value

    return apply


def _steps(type_: type[t.Wire], revision: str) -> _Steps:
    steps: list[tuple[str, _Convert]] = []
    hints = get_type_hints(type_)
    for attribute in type_.__struct_fields__:
        if not knows(type_, attribute, revision):
            has_view = attribute == "meta" and issubclass(type_, _OF_VIEWS)
            steps.append((attribute, _view_alone if has_view else _left_out))
            continue
        convert = _member_conversion(type_, attribute, hints[attribute], revision)
        if convert is not None:
            steps.append((attribute, convert))
    return tuple(steps)


def _left_out(_: Any) -> Any:
    return UNSET


# SEP-1865: a host finds views by `_meta` on every revision. Before 2025-06-18 these types have no `_meta`, but their
# schemas allow further members, so what belongs to views is sent there, and nothing else.
_OF_VIEWS = (t.Tool, t.ResourceMetadata, t.ResourceContents)


def _view_alone(meta: Any) -> Any:
    # Imported here because few servers have views and clients of these revisions.
    from toolwire.protocol.apps import VIEW_KEYS
    from toolwire.protocol.upstreams import UPSTREAM_KEY

    if not isinstance(meta, dict):
        return UNSET
    return {key: meta[key] for key in (*VIEW_KEYS, UPSTREAM_KEY) if key in meta} or UNSET


def _member_conversion(type_: type[t.Wire], attribute: str, hint: Any, revision: str) -> _Convert | None:
    if attribute in ("capabilities", "client_capabilities"):
        return _capability_conversion(type_, revision)
    if attribute == "content" and issubclass(type_, t.SamplingMessage | t.CreateMessageResult):
        return _sampling_content(revision)
    if attribute == "meta":
        return _meta_conversion(type_, revision)
    if any(_plan(inner, revision) is not None for inner in _wire_types(hint)):
        return lambda member: _shape_inside(member, revision)
    return None


def _wire_types(hint: Any) -> list[type[t.Wire]]:
    """The wire types that an annotation mentions."""
    if isinstance(hint, type) and issubclass(hint, t.Wire):
        return [hint]
    return [found for argument in get_args(hint) for found in _wire_types(argument)]


def _shape_inside(member: Any, revision: str) -> Any:
    """The same for a member that is a wire value, or a list or dict of them."""
    if isinstance(member, list):
        keyed: Iterable[tuple[Any, Any]] = enumerate(member)
    elif isinstance(member, dict):
        keyed = member.items()
    else:
        return shape(member, revision)
    changes = [(key, new) for key, old in keyed if (new := shape(old, revision)) is not old]
    if not changes:
        return member
    copy = member.copy()
    for key, new in changes:
        copy[key] = new
    return copy


def _defaults(type_: type[t.Wire], revision: str) -> tuple[tuple[str, Any], ...]:
    """Return the members that the revision requires and that a value of an older peer lacks."""
    if is_modern(revision) and issubclass(type_, t.CacheableResult):
        # CCH-1, with the values that promise nothing.
        return (("ttl_ms", 0), ("cache_scope", "private"))
    return ()


# --- `_meta` of messages ---------------------------------------------------------------------------------------------


def _meta_conversion(type_: type[t.Wire], revision: str) -> _Convert | None:
    if issubclass(type_, t.RequestParams):
        return lambda meta: _request_meta(meta, revision)
    # Definitions and content blocks never carry the keys of 2026-07-28, so only messages are searched for them.
    is_message = issubclass(type_, t.Result | t.NestedResult | t.NotificationParams)
    return None if is_modern(revision) or not is_message else _without_modern_keys


def _request_meta(meta: Any, revision: str) -> Any:
    shaped = shape(meta, revision)
    if shaped is meta or shaped.extra or any(getattr(shaped, name) is not UNSET for name in shaped.__struct_fields__):
        return shaped
    return UNSET


def _without_modern_keys(meta: Any) -> Any:
    if not isinstance(meta, dict) or t.MODERN_META_KEYS.isdisjoint(meta):
        return meta
    return {key: item for key, item in meta.items() if key not in t.MODERN_META_KEYS} or UNSET


# --- Capability objects ----------------------------------------------------------------------------------------------


def _capability_conversion(type_: type[t.Wire], revision: str) -> _Convert | None:
    from_client = issubclass(type_, t.RequestMeta | t.InitializeRequestParams)
    table = _CLIENT_CAPABILITIES if from_client else _SERVER_CAPABILITIES
    unknown = tuple(path for path, known in table.items() if revision not in known)
    return (lambda capabilities: _without_paths(capabilities, unknown)) if unknown else None


def _without_paths(capabilities: Any, paths: tuple[str, ...]) -> Any:
    if not isinstance(capabilities, dict):
        return capabilities
    result = capabilities
    if "elicitation.form" in paths and not t.has_capability(capabilities, "elicitation.form"):
        # 2025-06-18 knows only forms: a client that shows none has to stay silent (T-21).
        paths = (*paths, "elicitation")
    for path in paths:
        name, _, inner = path.partition(".")
        if not inner and name in result:
            result = {key: item for key, item in result.items() if key != name}
        elif inner and isinstance(result.get(name), dict) and inner in result[name]:
            result = {**result, name: {key: item for key, item in result[name].items() if key != inner}}
    return result


# --- Content that older revisions do not know ------------------------------------------------------------------------


def _substitute(type_: type[t.Wire], revision: str) -> _Convert | None:
    if type_ is t.AudioContent and revision in ONLY_2024_11:
        return _audio_as_text
    if type_ is t.ResourceLink and revision in UNTIL_2025_03:
        return _link_as_text
    if type_ in (t.ToolUseContent, t.ToolResultContent) and revision in UNTIL_2025_06:
        return _no_sampling_tools
    if type_ is t.InputRequiredResult and not is_modern(revision):
        return _no_rounds
    return None


def _audio_as_text(block: t.AudioContent) -> t.TextContent:
    return t.TextContent(f"[audio, {block.mime_type}, {len(block.data)} bytes]", annotations=block.annotations)


def _link_as_text(link: t.ResourceLink) -> t.TextContent:
    label = link.title if isinstance(link.title, str) else link.name
    return t.TextContent(f"{label}: {link.uri}", annotations=link.annotations)


def _no_sampling_tools(block: Any) -> Any:
    raise ValueError(f"a {block.type} block cannot be sent to a peer of this revision: sampling has no tools there")


def _no_rounds(_: Any) -> Any:
    raise ValueError("an input_required result cannot be sent before 2026-07-28: ask by a request there")


def _sampling_content(revision: str) -> _Convert:
    def one_block(content: Any) -> Any:
        if isinstance(content, list):
            if len(content) != 1:
                raise ValueError(f"sampling content has to be a single block on {revision}, got {len(content)} blocks")
            content = content[0]
        return shape(content, revision)

    # SEP-1577: arrays must not reach older revisions.
    return one_block if revision in UNTIL_2025_06 else lambda content: _shape_inside(content, revision)


# --- Members that move to another place ------------------------------------------------------------------------------


def _adapt(type_: type[t.Wire], revision: str) -> _Convert | None:
    if type_ is t.Tool and revision in ONLY_2025_03:
        return _title_as_annotation
    if type_ is t.ElicitRequestParams and revision in ONLY_2025_06:
        return _elicitation_for_2025_06
    return None


def _title_as_annotation(tool: t.Tool) -> t.Wire:
    """2025-03-26 shows a tool by `annotations.title`."""
    if tool.title is UNSET:
        return tool
    annotations = tool.annotations if isinstance(tool.annotations, t.ToolAnnotations) else t.ToolAnnotations()
    if annotations.title is not UNSET:
        return tool
    return replace_members(tool, annotations=replace_members(annotations, title=tool.title))


def _elicitation_for_2025_06(params: t.ElicitRequestParams) -> t.Wire:
    if params.mode == "url":
        raise ValueError("URL elicitation does not exist on 2025-06-18")
    if not isinstance(params.requested_schema, dict):
        return params
    schema = {key: item for key, item in params.requested_schema.items() if key != "$schema"}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["properties"] = {name: _field_for_2025_06(name, field) for name, field in properties.items()}
    return params if schema == params.requested_schema else replace_members(params, requested_schema=schema)


def _field_for_2025_06(name: str, field: Any) -> Any:
    """One property of a form in the words of 2025-06-18 (1.16.2 item 8)."""
    if not isinstance(field, dict):
        return field
    if field.get("type") == "array":
        raise ValueError(f"the form field {name!r} offers several choices, which 2025-06-18 cannot express")
    older = {key: item for key, item in field.items() if key != "oneOf"}
    if field.get("type") != "boolean":
        older.pop("default", None)
    if "oneOf" in field:
        options = msgspec.convert(field["oneOf"], list[t.EnumOption])
        older["enum"] = [option.const for option in options]
        older["enumNames"] = [option.title for option in options]
    return older
