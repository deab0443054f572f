"""The parts of a type as nodes, with their schemas and how to build values."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from toolwire import schemas
from toolwire.adapters.base import Mode
from toolwire.adapters.hooks import decode_hook, is_named_tuple, is_path_class
from toolwire.schemas import Json, Problem, Schema


class DoesNotFit(msgspec.ValidationError):
    """A value has keys that its type does not know."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("refused")
        self.problems = problems


class NodeReading:
    """The reading of one JSON value, with the results of alternatives.

    It says whether unknown keys are refused.
    """

    __slots__ = ("closed", "known")

    def __init__(self, closed: bool) -> None:
        self.closed: bool = closed
        self.known: dict[tuple[int, int], tuple[Any, ...]] = {}


class Definitions:
    """The `$defs` of one schema while it is written."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.bodies: dict[str, Json] = {}
        self._names: dict[int, str] = {}

    def reference(self, node: RecordNode) -> Schema:
        name = self._names.get(id(node))
        if name is None:
            name, number = node.name, 2
            while name in self.bodies:
                name, number = f"{node.name}{number}", number + 1
            self._names[id(node)] = name
            self.bodies[name] = {}
            self.bodies[name] = node.body(self)
        return {"$ref": f"#/$defs/{name}"}


class TypeNode(ABC):
    """One part of a type.

    `native`: msgspec reads it alone; `rewritten`: only by another name than the author's.
    """

    native = True
    rewritten = False
    # Text and extra keywords from `Annotated`, written next to the schema.
    around: Schema = {}

    def children(self) -> Iterable[TypeNode]:
        return ()

    @abstractmethod
    def native_type(self) -> Any:
        """The type that msgspec reads in its place."""

    @abstractmethod
    def own_schema(self, definitions: Definitions) -> Schema:
        """The schema, without what `Annotated` says around it."""

    def schema(self, definitions: Definitions) -> Schema:
        return {**self.own_schema(definitions), **self.around}

    def convert(self, value: Json, reading: NodeReading) -> Any:
        """Build the Python value of a JSON value. Raises `msgspec.ValidationError`."""
        return msgspec.convert(value, self.native_type(), str_keys=True, dec_hook=decode_hook)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        """Keys that no record has, which msgspec passes over in silence."""
        return iter(())

    def has_named_tuples(self, seen: frozenset[int] = frozenset()) -> bool:
        if id(self) in seen:
            return False
        return any(child.has_named_tuples(seen | {id(self)}) for child in self.children())

    def has_open_records(self, seen: frozenset[int] = frozenset()) -> bool:
        return id(self) not in seen and any(child.has_open_records(seen | {id(self)}) for child in self.children())


class LeafNode(TypeNode):
    """A type without parts: msgspec reads it, with the constraints given."""

    def __init__(self, tp: Any, schema: Schema, rewritten: bool = False) -> None:
        self.tp = tp
        self.plain = schema
        self.rewritten = rewritten

    def native_type(self) -> Any:
        return self.tp

    def own_schema(self, definitions: Definitions) -> Schema:
        return dict(self.plain)


_LISTS: Final = (list, typing.Sequence, typing.Collection, typing.Iterable, typing.MutableSequence)


class ArrayNode(TypeNode):
    """`list[T]`, `set[T]`, `tuple[T, ...]` and the like."""

    def __init__(self, origin: Any, item: TypeNode) -> None:
        self.origin = origin
        self.item = item
        self.meta: msgspec.Meta | None = None

    def children(self) -> Iterable[TypeNode]:
        return (self.item,)

    def native_type(self) -> Any:
        item = self.item.native_type()
        tp = self.origin[(item, ...) if self.origin is tuple else item]
        return typing.Annotated[tp, self.meta] if self.meta else tp

    def own_schema(self, definitions: Definitions) -> Schema:
        # VS Code refuses an array without `items`, in input and in output schemas.
        return {"type": "array", "items": self.item.schema(definitions), **_lengths(self.meta, "Items")}

    def convert(self, value: Json, reading: NodeReading) -> Any:
        if self.native and not reading.closed:
            return super().convert(value, reading)
        msgspec.convert(value, typing.Annotated[list[Any], self.meta] if self.meta else list[Any])
        items = [_located(self.item, item, reading, position) for position, item in enumerate(value)]
        return items if self.origin in _LISTS else self.origin(items)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        for position, item in enumerate(value if isinstance(value, list) else ()):
            yield from self.item.unknown(item, (*path, position))


def _lengths(meta: msgspec.Meta | None, noun: str) -> Schema:
    if meta is None:
        return {}
    pairs = ((f"min{noun}", meta.min_length), (f"max{noun}", meta.max_length))
    return {key: value for key, value in pairs if value is not None}


class TupleNode(TypeNode):
    """`tuple[A, B]`: a place for each part."""

    def __init__(self, items: list[TypeNode]) -> None:
        self.items = items

    def children(self) -> Iterable[TypeNode]:
        return self.items

    def native_type(self) -> Any:
        plain: Any = tuple
        return plain[tuple(item.native_type() for item in self.items)]

    def own_schema(self, definitions: Definitions) -> Schema:
        places = [item.schema(definitions) for item in self.items]
        schema: Schema = {"type": "array"}
        if places:
            schema["prefixItems"] = places
        return {**schema, "items": False, "minItems": len(places), "maxItems": len(places)}

    def convert(self, value: Json, reading: NodeReading) -> Any:
        if not isinstance(value, list) or len(value) != len(self.items):
            raise msgspec.ValidationError(f"Expected an array of {len(self.items)} items")
        pairs = enumerate(zip(self.items, value, strict=True))
        return tuple(_located(item, part, reading, position) for position, (item, part) in pairs)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        pairs = zip(self.items, value if isinstance(value, list) else (), strict=False)
        for position, (item, part) in enumerate(pairs):
            yield from item.unknown(part, (*path, position))


class MappingNode(TypeNode):
    """`dict[K, V]`."""

    def __init__(self, origin: Any, key: TypeNode, value: TypeNode) -> None:
        self.origin = origin
        self.key = key
        self.value = value
        self.meta: msgspec.Meta | None = None

    def children(self) -> Iterable[TypeNode]:
        return (self.key, self.value)

    def native_type(self) -> Any:
        tp = self.origin[self.key.native_type(), self.value.native_type()]
        return typing.Annotated[tp, self.meta] if self.meta else tp

    def own_schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "object"}
        key, value = self.key.schema(definitions), self.value.schema(definitions)
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = {name: part for name, part in key.items() if name != "type"}
        if value:
            schema["additionalProperties"] = value
        return {**schema, **_lengths(self.meta, "Properties")}

    def convert(self, value: Json, reading: NodeReading) -> Any:
        msgspec.convert(value, typing.Annotated[dict[Any, Any], self.meta] if self.meta else dict[Any, Any])
        return {
            self.key.convert(name, reading): _located(self.value, part, reading, name) for name, part in value.items()
        }

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        for name, part in value.items() if isinstance(value, dict) else ():
            yield from self.value.unknown(part, (*path, name))


class UnionNode(TypeNode):
    """A choice between types; the most specific alternative is tried first.

    Text that reads as a date is a date, then a string.
    """

    def __init__(self, members: list[TypeNode]) -> None:
        self.members = members
        self._by_rank = sorted(members, key=_rank)

    def children(self) -> Iterable[TypeNode]:
        return self.members

    def native_type(self) -> Any:
        return typing.Union[tuple(member.native_type() for member in self.members)]  # noqa: UP007

    def own_schema(self, definitions: Definitions) -> Schema:
        written = [member.schema(definitions) for member in self.members]
        choices = [each for choice in written for each in (choice["anyOf"] if set(choice) == {"anyOf"} else [choice])]
        choices = [choice for index, choice in enumerate(choices) if choice not in choices[:index]]
        if {"type": "number"} in choices:
            choices = [choice for choice in choices if choice != {"type": "integer"}]
        if {} in choices:
            return {}
        return choices[0] if len(choices) == 1 else {"anyOf": choices}

    def convert(self, value: Json, reading: NodeReading) -> Any:
        known = reading.known.get((id(self), id(value)))
        if known is None:
            known = self._chosen(value, reading)
            if isinstance(value, (dict, list)):
                # Other alternatives, on every level above, ask for the same again.
                reading.known[id(self), id(value)] = known
        if not known:
            raise msgspec.ValidationError("Fits none of the alternatives")
        return known[0]

    def _chosen(self, value: Json, reading: NodeReading) -> tuple[Any, ...]:
        """Build the value by the first alternative that it fits; nothing when it fits none."""
        for member in self._by_rank:
            try:
                return (member.convert(value, reading),)
            except msgspec.ValidationError:
                continue
        return ()

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        found: list[Problem] = []
        for member in self.members:
            if member.takes(value) if isinstance(member, RecordNode) else not isinstance(member, LeafNode):
                found = list(islice(member.unknown(value, path), schemas.MAX_PROBLEMS))
                if not found:
                    break
        yield from found


_RANKS: Final[dict[Any, int]] = {
    type(None): 0,
    bool: 0,
    int: 2,
    float: 3,
    str: 5,
    bytes: 6,
    bytearray: 6,
    Any: 7,
    object: 7,
}


def _rank(node: TypeNode) -> int:
    if not isinstance(node, LeafNode):
        return 1
    base = bare(node.tp)
    if isinstance(base, type) and is_path_class(base):
        return _RANKS[str]  # takes every string, so that the order of the author decides
    return _RANKS.get(base, 1)


class Field(msgspec.Struct):
    """A member of a record: its names in Python and on the wire, node, default."""

    attribute: str
    name: str
    node: TypeNode
    required: bool
    default: Json = msgspec.UNSET
    settable: bool = True


class RecordNode(TypeNode):
    """A class with named members: dataclass, TypedDict, NamedTuple, msgspec Struct."""

    def __init__(self, tp: Any, name: str) -> None:
        self.tp = tp
        self.name = name
        self.cls: Any = typing.get_origin(tp) or tp
        self.fields: list[Field] = []
        self.tag: tuple[str, Json] | None = None
        self.closed_by_itself = False
        self.is_typed_dict: bool = typing.is_typeddict(self.cls)
        self.is_named_tuple: bool = is_named_tuple(self.cls)

    def children(self) -> Iterable[TypeNode]:
        return [field.node for field in self.fields]

    def native_type(self) -> Any:
        return self.tp

    def own_schema(self, definitions: Definitions) -> Schema:
        return definitions.reference(self)

    def body(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "object"}
        if description := _class_text(self.cls):
            schema["description"] = description
        properties: dict[str, Json] = {}
        required: list[str] = []
        if self.tag:
            properties[self.tag[0]] = {"const": self.tag[1]}
            required.append(self.tag[0])
        for field in self.fields:
            if definitions.mode == "input" and not field.settable:
                continue
            member = field.node.schema(definitions)
            properties[field.name] = member if field.default is msgspec.UNSET else {**member, "default": field.default}
            if field.required:
                required.append(field.name)
        schema["properties"] = properties
        if required:
            schema["required"] = required
        if definitions.mode == "input":
            schema["additionalProperties"] = False
        return schema

    def convert(self, value: Json, reading: NodeReading) -> Any:
        if self.is_named_tuple and isinstance(value, list) and len(value) <= len(self.fields):
            value = {field.name: part for field, part in zip(self.fields, value, strict=False)}  # in its own order
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
        if self.tag and value.get(self.tag[0]) != self.tag[1]:
            raise msgspec.ValidationError(f"Expected {self.tag[0]} to be {self.tag[1]!r}")
        if reading.closed and (unknown := list(islice(self._unknown_here(value, ()), schemas.MAX_PROBLEMS))):
            raise DoesNotFit(unknown)
        built: dict[str, Any] = {}
        for field in self.fields:
            if not field.settable:
                continue
            if field.name in value:
                built[field.attribute] = _located(field.node, value[field.name], reading, field.name)
            elif field.required:
                raise msgspec.ValidationError(f"Object missing required field `{field.name}`")
        if self.is_typed_dict:
            return built
        try:
            return self.cls(**built)
        except (ValueError, TypeError) as error:  # raised by the author's own __post_init__
            raise msgspec.ValidationError(str(error)) from error

    def takes(self, value: Json) -> bool:
        return isinstance(value, dict) and (self.tag is None or value.get(self.tag[0]) == self.tag[1])

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        if not isinstance(value, dict):
            return
        yield from self._unknown_here(value, path)
        for field in self.fields:
            if field.name in value:
                yield from field.node.unknown(value[field.name], (*path, field.name))

    def _unknown_here(self, value: dict[str, Json], path: schemas.Path) -> Iterator[Problem]:
        known = dict.fromkeys(field.name for field in self.fields if field.settable)
        if self.tag:
            known[self.tag[0]] = None
        return (schemas.unknown_key(path, name, known) for name in value if name not in known)

    def has_named_tuples(self, seen: frozenset[int] = frozenset()) -> bool:
        return self.is_named_tuple or super().has_named_tuples(seen)

    def has_open_records(self, seen: frozenset[int] = frozenset()) -> bool:
        return not self.closed_by_itself or super().has_open_records(seen)


def _class_text(cls: Any) -> str | None:
    import inspect

    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):  # the signature that dataclass writes
        return None
    return inspect.cleandoc(text) or None


class DescribedNode(TypeNode):
    """A record with a text of its own at one place."""

    def __init__(self, inner: TypeNode, around: Schema) -> None:
        self.inner = inner
        self.around = around

    def children(self) -> Iterable[TypeNode]:
        return (self.inner,)

    def native_type(self) -> Any:
        return self.inner.native_type()

    def own_schema(self, definitions: Definitions) -> Schema:
        return self.inner.schema(definitions)

    def convert(self, value: Json, reading: NodeReading) -> Any:
        return self.inner.convert(value, reading)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        return self.inner.unknown(value, path)


def _located(node: TypeNode, value: Json, reading: NodeReading, step: str | int) -> Any:
    try:
        return node.convert(value, reading)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        place = f"[{step}]" if isinstance(step, int) else f".{step}"
        raise msgspec.ValidationError(f"{text} - at `${place}{at.removesuffix('`')}`") from error


def bare(tp: Any) -> Any:
    return typing.get_args(tp)[0] if typing.get_origin(tp) is typing.Annotated else tp
