"""The base of the wire types, and a codec that keeps what they do not know.

Plain `msgspec.json` drops members that a type does not have. `decode` and `encode` keep them, at every level, in
`Wire.extra`, and survive content blocks of an unknown type. A client or a proxy wants these (2026-07-28 basic, `_meta`:
never fail on what you do not implement).

Unknown members and `_meta` may hold a signature, or a number such as 1.10 that Python writes in another way. So a value
remembers the JSON of those that Python would write differently, and `encode` writes that JSON again, unless somebody
changed them meanwhile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw, inspect

from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.surrogates import encode_readable

T = TypeVar("T")
# Where a wire value keeps its unknown members, the JSON of those, and JSON whose unknown members nobody has read yet.
_EXTRA, _SENT, _UNREAD = "extra", "sent", "unread"
# META-8: nearly every result of 2026-07-28 has this key in `_meta`, and nothing else.
_SIGNATURE = "io.modelcontextprotocol/serverInfo"
W = TypeVar("W", bound="Wire")


class Wire(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", dict=True):
    """The base of every wire type."""

    @property
    def extra(self) -> dict[str, Any]:
        """The members of the JSON object that this type does not know, under their wire names.

        Filled by `decode`; written by `encode` and `to_dict`, not by the plain msgspec encoder. A copy made by
        `msgspec.structs.replace` starts without them. A number that Python cannot hold is kept as `Raw`.
        """
        held = self.__dict__
        unread = held.pop(_UNREAD, None)
        if unread is not None and _EXTRA not in held:
            _restore_exactly(self, unread)
        return cast("dict[str, Any]", held.setdefault(_EXTRA, {}))

    def to_dict(self) -> dict[str, Any]:
        """This value as a JSON-ready dict with the names of the wire."""
        return cast("dict[str, Any]", _to_json_value(self, keep_raw=False))


class UnknownContent(dict[str, Any]):
    """A content block of a type that no revision here knows, exactly as it came. Only `decode` makes these."""

    sent: Raw | None = None
    """The JSON that it came as, where Python would write it differently."""

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


@overload
def decode(type_: type[T], data: bytes | str | Raw) -> T: ...


@overload
def decode(type_: Any, data: bytes | str | Raw) -> Any: ...


def decode(type_: Any, data: bytes | str | Raw) -> Any:
    """JSON to a value of `type_`, keeping what `type_` does not know.

    Unknown members end up in `Wire.extra`, content blocks of an unknown type become `UnknownContent`. Whatever does not
    fit, invalid base64 included, is a `msgspec.ValidationError`; what is no JSON is a `msgspec.DecodeError`.
    """
    decoder = decoder_of(type_)
    try:
        tree = msgspec.json.decode(data)
    except UnicodeDecodeError:
        raise msgspec.DecodeError("JSON is malformed: text is not UTF-8") from None
    except msgspec.ValidationError:
        # It is JSON, with a number that Python cannot hold. That may stand in a member that the type does not know.
        return _restore_exactly(decoder.decode(data), _raw(data))
    try:
        value = decoder.decode(data)
    except msgspec.ValidationError:
        stand_in = _without_unknown_blocks(_type_info(type_), tree)
        if stand_in is tree:
            raise
        value = decoder.decode(msgspec.json.encode(stand_in))
    is_open: list[Any] = []
    value = _restore(value, tree, is_open)
    if is_open:
        raw = _raw(data)
        if msgspec.json.encode(tree) != bytes(raw):
            value = _restore_exactly(value, raw)
    return value


def with_unknown(value: W, data: Raw) -> W:
    """Give a value that was read by the plain decoder the members of its JSON that its type does not know."""
    return cast("W", _restore_exactly(value, data))


def read_unknown_later(value: Wire, data: Raw) -> None:
    """Do the same when somebody looks at `extra`, which few do."""
    held = value.__dict__
    if not held:
        held[_UNREAD] = data


def restored(value: W, members: dict[str, Any]) -> W:
    """Give a value that was made of a dict the members of that dict that its type does not know."""
    return cast("W", _restore(value, members, []))


def has_unknown(value: Any) -> bool:
    """Return whether the plain encoder would leave out, or write differently, a part of a value."""
    if isinstance(value, Wire):
        return bool(value.__dict__) or any(has_unknown(getattr(value, name)) for name in _open_members(type(value)))
    if isinstance(value, list):
        return any(map(has_unknown, value))
    if isinstance(value, UnknownContent):
        return value.sent is not None
    return isinstance(value, dict) and any(map(has_unknown, value.values()))


def exact_meta(value: Wire) -> dict[str, Any]:
    """The `_meta` of a value, each key with the JSON that it came as, where that is known and nobody changed it."""
    meta: dict[str, Any] = value.meta  # type: ignore[attr-defined]
    sent = value.__dict__.get(_SENT, {}).get("_meta")
    return _split(sent) if sent is not None and _is_unchanged(meta, sent) else meta


def replace_members(value: W, **members: Any) -> W:
    """A copy with other members; unlike `msgspec.structs.replace` it keeps the members that the type does not know."""
    copy = cast("W", value.__copy__())  # type: ignore[attr-defined]
    copy.__dict__.update(value.__dict__)
    for attribute, member in members.items():
        setattr(copy, attribute, member)
    return copy


def meta_of(value: Wire) -> dict[str, Any]:
    """Return what `exact_meta` does, also of a type that does not know `_meta`; empty where there is none."""
    if hasattr(value, "meta"):
        return exact_meta(value) if isinstance(value.meta, dict) else {}
    meta = value.extra.get("_meta")
    return meta if isinstance(meta, dict) else {}


def replace_meta(value: W, meta: dict[str, Any]) -> W:
    """Return a copy with another `_meta`, also of a type that does not know `_meta`; without it where it is empty."""
    if hasattr(value, "meta"):
        return replace_members(value, meta=meta or UNSET)
    copy = replace_members(value)
    extra = {name: member for name, member in value.extra.items() if name != "_meta"}
    copy.__dict__[_EXTRA] = {**extra, "_meta": meta} if meta else extra
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


def _restore(value: Any, tree: Any, is_open: list[Any]) -> Any:
    """Give `value` back what typed decoding dropped from `tree`, the JSON value it was made of.

    `is_open` gets something for each part that has unknown members or `_meta`.
    """
    if isinstance(value, Wire):
        layout = _layout(type(value))
        if layout.tag_field is not None and tree.get(layout.tag_field, layout.tag) != layout.tag:
            is_open.append(value)
            return UnknownContent(tree)
        if not layout.names.issuperset(tree):
            is_open.append(value)
            value.__dict__[_EXTRA] = {name: tree[name] for name in tree if name not in layout.names}
        for attribute, name in layout.fields:
            member = getattr(value, attribute)
            if isinstance(member, _CONTAINERS) and name in tree:
                if name == "_meta" and isinstance(member, dict) and (len(member) != 1 or _SIGNATURE not in member):
                    is_open.append(value)
                new = _restore(member, tree[name], is_open)
                if new is not member:
                    setattr(value, attribute, new)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Wire):
                value[index] = _restore(item, tree[index], is_open)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, Wire):
                value[key] = _restore(item, tree[key], is_open)
    return value


def _restore_exactly(value: Any, raw: Raw) -> Any:
    """Do the same with the JSON text, and remember the text of members that Python would write differently."""
    if isinstance(value, UnknownContent):
        value.sent = raw.copy()
    elif isinstance(value, Wire):
        layout = _layout(type(value))
        parts = _split(raw)
        if layout.tag_field is not None and _free(parts.get(layout.tag_field)) not in (None, layout.tag):
            block = UnknownContent({name: _free(part) for name, part in parts.items()})
            block.sent = raw.copy()
            return block
        extra = {name: _free(part) for name, part in parts.items() if name not in layout.names}
        if extra:
            value.__dict__[_EXTRA] = extra
        free = {**extra, "_meta": value.meta} if isinstance(getattr(value, "meta", None), dict) else extra  # type: ignore[attr-defined]
        sent = {name: parts[name].copy() for name, member in free.items() if _differs(member, parts.get(name))}
        if sent:
            value.__dict__[_SENT] = sent
        for attribute, name in layout.fields:
            member = getattr(value, attribute)
            if isinstance(member, _CONTAINERS) and name in parts:
                new = _restore_exactly(member, parts[name])
                if new is not member:
                    setattr(value, attribute, new)
    elif isinstance(value, list):
        if any(isinstance(item, Wire | UnknownContent) for item in value):
            for index, part in enumerate(_decode_items(raw)):
                value[index] = _restore_exactly(value[index], part)
    elif isinstance(value, dict) and any(isinstance(item, Wire) for item in value.values()):
        for key, part in _split(raw).items():
            value[key] = _restore_exactly(value[key], part)
    return value


def _differs(member: Any, sent: Raw | None) -> bool:
    """Return whether Python writes a member in another way than it came."""
    return sent is not None and (isinstance(member, Raw) or msgspec.json.encode(member) != bytes(sent))


def _is_unchanged(member: Any, sent: Raw) -> bool:
    """Return whether a member is still the value that came as this JSON."""
    try:
        return msgspec.json.encode(member) == msgspec.json.encode(_free(sent))
    except (TypeError, UnicodeEncodeError):
        return False


def _free(part: Raw | None) -> Any:
    """A member that has no type, as Python values; as it came where Python cannot hold it."""
    try:
        return None if part is None else msgspec.json.decode(part)
    except msgspec.ValidationError:
        return part.copy()  # type: ignore[union-attr]


def _raw(data: bytes | str | Raw) -> Raw:
    return data if isinstance(data, Raw) else Raw(data.encode() if isinstance(data, str) else data)


_split = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode


@lru_cache(maxsize=512)
def _open_members(type_: type[Wire]) -> tuple[str, ...]:
    """The members of a wire type that may hold wire values."""
    return tuple(field.name for field in _type_info(type_).fields if _holds_wire(field.type))


def _holds_wire(node: Any) -> bool:
    if isinstance(node, inspect.StructType):
        return issubclass(node.cls, Wire)
    inner = (*getattr(node, "types", ()), getattr(node, "item_type", None), getattr(node, "value_type", None))
    return any(_holds_wire(each) for each in inner if each is not None)


_SCALARS = (str, int, float, type(None))


def _to_json_value(value: Any, *, keep_raw: bool) -> Any:
    if isinstance(value, Wire):
        layout = _layout(type(value))
        members: dict[str, Any] = {} if layout.tag_field is None else {layout.tag_field: layout.tag}
        for attribute, name in layout.fields:
            member = getattr(value, attribute)
            if member is not UNSET:
                members[name] = _to_json_value(member, keep_raw=keep_raw)
        held = value.__dict__
        if held:
            extra = value.extra
            members.update(extra if keep_raw else _to_json_value(extra, keep_raw=False))
            if keep_raw and _SENT in held:
                members.update(
                    {name: sent for name, sent in held[_SENT].items() if _is_unchanged(members.get(name), sent)}
                )
        return members
    if isinstance(value, UnknownContent):
        sent = value.sent
        return sent if keep_raw and sent is not None and _is_unchanged(value, sent) else dict(value)
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
