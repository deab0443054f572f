"""The base of the wire types, and a codec that keeps what they do not know.

Plain `msgspec.json` drops members that a type does not have. `decode` and `encode` keep them, at every level, in
`Wire.extra`, and survive content blocks of an unknown type. A client or a proxy wants these (2026-07-28 basic, `_meta`:
never fail on what you do not implement).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw, inspect

from toolwire.protocol.surrogates import encode_readable

T = TypeVar("T")
W = TypeVar("W", bound="Wire")


class Wire(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", dict=True):
    """The base of every wire type."""

    @property
    def extra(self) -> dict[str, Any]:
        """The members of the JSON object that this type does not know, under their wire names.

        Filled by `decode`; written by `encode` and `to_dict`, not by the plain msgspec encoder. A copy made by
        `msgspec.structs.replace` starts without them.
        """
        return cast("dict[str, Any]", self.__dict__.setdefault("extra", {}))

    def to_dict(self) -> dict[str, Any]:
        """This value as a JSON-ready dict with the names of the wire."""
        return cast("dict[str, Any]", _to_json_value(self, keep_raw=False))


class UnknownContent(dict[str, Any]):
    """A content block of a type that no revision here knows, exactly as it came. Only `decode` makes these."""

    @property
    def type(self) -> str:
        return cast("str", self["type"])

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


class _OnlyMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")


_only_meta_decoder = msgspec.json.Decoder(_OnlyMeta)


def request_meta(params: bytes | Raw) -> dict[str, Any]:
    """All of `params._meta` as a dict, with the names that `RequestMeta` does not know."""
    return _only_meta_decoder.decode(params).meta


@lru_cache(maxsize=512)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


@overload
def decode(type_: type[T], data: bytes | str | Raw) -> T: ...


@overload
def decode(type_: Any, data: bytes | str | Raw) -> Any: ...


def decode(type_: Any, data: bytes | str | Raw) -> Any:
    """JSON to a value of `type_`, keeping what `type_` does not know.

    Unknown members end up in `Wire.extra`, content blocks of an unknown type become `UnknownContent`. Whatever does not
    fit, invalid base64 included, is a `msgspec.ValidationError`; what is no JSON is a `msgspec.DecodeError`.
    """
    try:
        tree = msgspec.json.decode(data)
    except UnicodeDecodeError:
        raise msgspec.DecodeError("JSON is malformed: text is not UTF-8") from None
    decoder = _decoder(type_)
    try:
        value = decoder.decode(data)
    except msgspec.ValidationError:
        stand_in = _without_unknown_blocks(_type_info(type_), tree)
        if stand_in is tree:
            raise
        value = decoder.decode(msgspec.json.encode(stand_in))
    return _restore(value, tree)


def with_unknown(value: W, data: bytes | str | Raw) -> W:
    """Give a value that was read by the plain decoder the members of its JSON that its type does not know."""
    return cast("W", _restore(value, msgspec.json.decode(data)))


def replace_members(value: W, **members: Any) -> W:
    """A copy with other members; unlike `msgspec.structs.replace` it keeps the members that the type does not know."""
    copy = cast("W", value.__copy__())  # type: ignore[attr-defined]
    copy.__dict__.update(value.__dict__)
    for attribute, member in members.items():
        setattr(copy, attribute, member)
    return copy


def encode(value: Any) -> bytes:
    """The inverse of `decode`: JSON with every member the value carries, known or not."""
    return encode_readable(_to_json_value(value, keep_raw=True))


class _Layout(msgspec.Struct, frozen=True):
    """The members of a wire type, as the codec needs them."""

    tag_field: str | None
    tag: str | None
    fields: tuple[tuple[str, str], ...]  # attribute, wire name
    names: frozenset[str]  # every wire name, the tag included


@lru_cache(maxsize=512)
def _layout(type_: type[Wire]) -> _Layout:
    config = type_.__struct_config__
    fields = tuple(zip(type_.__struct_fields__, type_.__struct_encode_fields__, strict=True))
    names = frozenset(type_.__struct_encode_fields__)
    if config.tag_field is None:
        return _Layout(None, None, fields, names)
    return _Layout(config.tag_field, str(config.tag), fields, names | {config.tag_field})


_CONTAINERS = (Wire, list, dict)


def _restore(value: Any, tree: Any) -> Any:
    """Give `value` back what typed decoding dropped from `tree`, the JSON value it was made of."""
    if isinstance(value, Wire):
        layout = _layout(type(value))
        if layout.tag_field is not None and tree.get(layout.tag_field, layout.tag) != layout.tag:
            return UnknownContent(tree)
        if not layout.names.issuperset(tree):
            value.__dict__["extra"] = {name: tree[name] for name in tree if name not in layout.names}
        for attribute, name in layout.fields:
            member = getattr(value, attribute)
            if isinstance(member, _CONTAINERS) and name in tree:
                restored = _restore(member, tree[name])
                if restored is not member:
                    setattr(value, attribute, restored)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Wire):
                value[index] = _restore(item, tree[index])
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, Wire):
                value[key] = _restore(item, tree[key])
    return value


_SCALARS = (str, int, float, type(None))


def _to_json_value(value: Any, *, keep_raw: bool) -> Any:
    if isinstance(value, Wire):
        layout = _layout(type(value))
        members: dict[str, Any] = {} if layout.tag_field is None else {layout.tag_field: layout.tag}
        for attribute, name in layout.fields:
            member = getattr(value, attribute)
            if member is not UNSET:
                members[name] = _to_json_value(member, keep_raw=keep_raw)
        members.update(value.__dict__.get("extra", {}))
        return members
    if isinstance(value, dict):
        return {key: _to_json_value(item, keep_raw=keep_raw) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json_value(item, keep_raw=keep_raw) for item in value]
    if isinstance(value, Raw):
        return value if keep_raw else msgspec.json.decode(value)
    if isinstance(value, _SCALARS):
        return value
    # Bytes to base64, and whatever else a handler may have put under `structured_content`.
    return msgspec.to_builtins(value, str_keys=True)


@lru_cache(maxsize=512)
def _type_info(type_: Any) -> Any:
    return inspect.type_info(type_)


_PLACEHOLDER = {"type": "text", "text": ""}


def _without_unknown_blocks(node: Any, tree: Any) -> Any:
    """`tree` with a text block in the place of every content block of unknown type; `tree` itself if there is none."""
    if isinstance(node, inspect.UnionType):
        structs = {option.tag: option for option in node.types if isinstance(option, inspect.StructType)}
        if isinstance(tree, dict) and structs:
            if _PLACEHOLDER["type"] in structs and isinstance(tree.get("type"), str) and tree["type"] not in structs:
                return _PLACEHOLDER
            tag_field = next(iter(structs.values())).tag_field
            tag = None if tag_field is None else tree.get(tag_field)
            chosen = structs.get(tag) if tag is None or isinstance(tag, str) else None
            return tree if chosen is None else _without_unknown_blocks(chosen, tree)
        kinds = inspect.ListType if isinstance(tree, list) else inspect.DictType
        container = next((option for option in node.types if isinstance(option, kinds)), None)
        return tree if container is None else _without_unknown_blocks(container, tree)
    if isinstance(node, inspect.StructType) and isinstance(tree, dict):
        wanted = {field.encode_name: field.type for field in node.fields if field.encode_name in tree}
        return _replaced(tree, {name: _without_unknown_blocks(kind, tree[name]) for name, kind in wanted.items()})
    if isinstance(node, inspect.ListType) and isinstance(tree, list):
        items = [_without_unknown_blocks(node.item_type, item) for item in tree]
        return tree if all(new is old for new, old in zip(items, tree, strict=True)) else items
    if isinstance(node, inspect.DictType) and isinstance(tree, dict):
        return _replaced(tree, {key: _without_unknown_blocks(node.value_type, item) for key, item in tree.items()})
    return tree


def _replaced(tree: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    if all(tree[name] is member for name, member in members.items()):
        return tree
    return {**tree, **members}
