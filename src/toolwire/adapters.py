"""A Python type as JSON: its schema, reading a value of it, and writing one.

msgspec reads and writes what it can; shapes that it refuses (unions of two dataclasses, `str | datetime`, constraints
from `annotated_types` inside a dataclass …) are composed here out of parts that it accepts; a type that mentions
pydantic is left to pydantic, which only this module imports, and only then.

A type becomes a graph of nodes once. Each node knows its schema and, where msgspec cannot do the whole, how to build
its value from plain JSON values.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, Literal, cast

import msgspec

from toolwire import schemas
from toolwire.schemas import Invalid, Json, Problem, Schema, Validator

__all__ = ["Adapter", "Invalid", "Problem", "adapter", "decode_hook", "elicitation_schema", "encode_hook"]

Mode = Literal["input", "output"]
Namespace = Mapping[str, Any]
NO_NAMES: Final[Namespace] = types.MappingProxyType({})


def adapter(tp: Any, *, namespace: Namespace = NO_NAMES) -> Adapter:
    """The adapter of a type; `namespace` holds names that forward references in it may use.

    Raises `TypeError` when the type, or a constraint on it, cannot be both enforced and described.
    """
    try:
        graph = _Graph(namespace)
        root = graph.node(tp)
        graph.settle()
    except _MentionsPydantic:
        return _PydanticAdapter(tp, namespace)
    except RecursionError:
        raise TypeError(f"{type_name(tp)} refers to itself without end; put a class in between") from None
    return _NativeAdapter(tp, root) if root.native else _ComposedAdapter(tp, root)


# ---------------------------------------------------------------------------------------------------------------------
# Adapters
# ---------------------------------------------------------------------------------------------------------------------


class Adapter:
    """Reads and writes values of one type."""

    # The type that a msgspec Struct may use for a member of this type, or None when only `decode` can read it.
    field_type: Any = None

    def __init__(self, tp: Any) -> None:
        self.type = tp
        self._validators: dict[Mode, Validator | None] = {}

    def schema(self, mode: Mode = "input") -> Schema:
        """The compact JSON Schema: what to send (`input`) or what will come (`output`)."""
        schema = schemas.inline(self.document(mode))
        return cast(Schema, schemas.without_optional_null(schema)) if mode == "input" else schema

    def document(self, mode: Mode) -> Schema:
        """The full schema with every class under `$defs`, to be merged with others before it is made compact."""
        raise NotImplementedError

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """The value that the JSON text says, exactly as sent. Raises `Invalid` with every problem."""
        try:
            return self.read(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise Invalid(self.problems(data, error)) from None

    def decode_lenient(self, data: bytes | msgspec.Raw) -> Any:
        """Like `decode`; what fails is tried again with `"3"`, `3.0` and JSON in strings read as they were meant."""
        try:
            return self.read(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            first = error
        repaired = self.understood(data)
        if repaired is None:
            raise Invalid(self.problems(data, first)) from None
        return self.decode(repaired)

    def understood(self, data: bytes | msgspec.Raw) -> bytes | None:
        """The JSON text with other readings in place of what does not fit, or None if there are none."""
        try:
            sent = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        validator = self.validator("input")
        repaired = sent if validator is None else schemas.understood(sent, validator)
        return None if repaired is sent else msgspec.json.encode(repaired)

    def decode_output(self, data: bytes | msgspec.Raw) -> Any:
        """A value that someone else wrote (`returns=`): like `decode`, but with keys that the type does not know."""
        try:
            return self.read_output(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise Invalid(self.problems(data, error, "output")) from None

    def encode(self, value: Any) -> bytes:
        """JSON text. Raises `TypeError` when the value has no JSON form."""
        return msgspec.json.encode(value, enc_hook=encode_hook)

    def validate_output(self, value: Any) -> bytes:
        """JSON text of a value; raises `Invalid` when it does not fit the type, `TypeError` when it is not JSON."""
        data = self.encode(value)
        self.decode_output(data)
        return data

    def validator(self, mode: Mode) -> Validator | None:
        """The type's schema as a validator, built when a first value is refused, to name every reason.

        None when the schema engine cannot take it, as with a pattern that only Python's `re` knows.
        """
        if mode not in self._validators:
            document = schemas.inline(self.document(mode))
            try:
                self._validators[mode] = schemas.compile(document, what=f"the schema of {type_name(self.type)}")
            except schemas.SchemaError:
                self._validators[mode] = None
        return self._validators[mode]

    def problems(self, data: bytes | msgspec.Raw, error: Exception, mode: Mode = "input") -> list[Problem]:
        if isinstance(error, RecursionError):
            return [Problem((), "too deeply nested")]
        try:
            instance = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return [Problem((), "not valid JSON")]
        validator = self.validator(mode)
        return (validator.check(instance) if validator else []) or self.refusal(error)

    def refusal(self, error: Exception) -> list[Problem]:
        """What the reader of the type itself says, where the schema finds nothing wrong."""
        return [_from_msgspec(error, schemas.inline(self.document("input")))]

    def read(self, data: bytes | msgspec.Raw) -> Any:
        raise NotImplementedError

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        raise NotImplementedError


class _GraphAdapter(Adapter):
    def __init__(self, tp: Any, root: _Node) -> None:
        super().__init__(tp)
        self._root = root

    def document(self, mode: Mode) -> Schema:
        definitions = _Definitions(mode)
        schema = self._root.schema(definitions)
        return {**schema, "$defs": definitions.bodies} if definitions.bodies else schema

    @property
    def root(self) -> _Node:
        return self._root


class _NativeAdapter(_GraphAdapter):
    """msgspec reads the whole type."""

    def __init__(self, tp: Any, root: _Node) -> None:
        super().__init__(tp, root)
        native = root.native_type()
        self._decode = msgspec.json.Decoder(native, dec_hook=decode_hook).decode
        self._open = root.has_open_records()
        self.field_type = None if self._open else native

    def read(self, data: bytes | msgspec.Raw) -> Any:
        value = self._decode(data)
        if self._open:
            unknown = list(islice(self._root.unknown(msgspec.json.decode(data), ()), schemas.MAX_PROBLEMS))
            if unknown:
                raise _Refused(unknown)
        return value

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        return self._decode(data)

    def refusal(self, error: Exception) -> list[Problem]:
        return error.problems if isinstance(error, _Refused) else super().refusal(error)


class _ComposedAdapter(_GraphAdapter):
    """The node graph reads the type from plain JSON values."""

    def read(self, data: bytes | msgspec.Raw) -> Any:
        return self._root.convert(msgspec.json.decode(data), True)

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        return self._root.convert(msgspec.json.decode(data), False)


class _Refused(msgspec.ValidationError):
    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("refused")
        self.problems = problems


def decode_hook(tp: type, value: Any) -> Any:
    """How msgspec reads the few types that it does not know."""
    if issubclass(tp, PurePath) and isinstance(value, str):
        return tp(value)
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


def encode_hook(value: Any) -> Any:
    """How msgspec writes the few types that it does not know."""
    if isinstance(value, PurePath):
        return str(value)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        if type(value).__module__.startswith("pydantic"):
            return pydantic.TypeAdapter(type(value)).dump_python(value, mode="json")
    raise TypeError(f"a value of type {type_name(type(value))} has no JSON form")


def type_name(tp: Any) -> str:
    """A type as its author wrote it."""
    return tp.__qualname__.rpartition("<locals>.")[2] if isinstance(tp, type) else str(tp).replace("typing.", "")


def _from_msgspec(error: Exception, schema: Schema) -> Problem:
    """`Expected `int`, got `str` - at `$.rows[0].name`` as a problem."""
    text, _, at = str(error).partition(" - at `")
    place = at.partition("`")[0].removeprefix("$").replace("[...]", "").replace("]", "").replace("[", ".")
    path = tuple(int(step) if step.isdecimal() else step for step in place.split(".") if step)
    if "format" in schema and not path:
        return Problem((), f"expected {schemas.expected(schema, schema)}")
    message = text.replace("`", "")
    return Problem(path, message[:1].lower() + message[1:])


# ---------------------------------------------------------------------------------------------------------------------
# Nodes
# ---------------------------------------------------------------------------------------------------------------------


class _Definitions:
    """The `$defs` of one schema while it is written."""

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self.bodies: dict[str, Json] = {}
        self._names: dict[int, str] = {}

    def reference(self, node: _Record) -> Schema:
        name = self._names.get(id(node))
        if name is None:
            name, number = node.name, 2
            while name in self.bodies:
                name, number = f"{node.name}{number}", number + 1
            self._names[id(node)] = name
            self.bodies[name] = {}
            self.bodies[name] = node.body(self)
        return {"$ref": f"#/$defs/{name}"}


class _Node:
    """One part of a type. `native`: msgspec reads it alone; `rewritten`: only by another name than the author's."""

    native = True
    rewritten = False
    # Text and extra keywords from `Annotated`, written next to the schema.
    around: Schema = {}

    def children(self) -> Iterable[_Node]:
        return ()

    def native_type(self) -> Any:
        raise NotImplementedError

    def own_schema(self, definitions: _Definitions) -> Schema:
        raise NotImplementedError

    def schema(self, definitions: _Definitions) -> Schema:
        return {**self.own_schema(definitions), **self.around}

    def convert(self, value: Json, closed: bool) -> Any:
        """The Python value of a JSON value; `closed` refuses unknown keys. Raises `msgspec.ValidationError`."""
        return msgspec.convert(value, self.native_type(), str_keys=True, dec_hook=decode_hook)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        """Keys that no record has, which msgspec passes over in silence."""
        return iter(())

    def has_open_records(self, seen: frozenset[int] = frozenset()) -> bool:
        return id(self) not in seen and any(child.has_open_records(seen | {id(self)}) for child in self.children())


class _Leaf(_Node):
    """A type without parts: msgspec reads it, with the constraints given."""

    def __init__(self, tp: Any, schema: Schema, rewritten: bool = False) -> None:
        self.tp = tp
        self._schema = schema
        self.rewritten = rewritten

    def native_type(self) -> Any:
        return self.tp

    def own_schema(self, definitions: _Definitions) -> Schema:
        return dict(self._schema)


class _Array(_Node):
    """`list[T]`, `set[T]`, `tuple[T, ...]` and the like."""

    def __init__(self, origin: Any, item: _Node) -> None:
        self.origin = origin
        self.item = item
        self.meta: msgspec.Meta | None = None

    def children(self) -> Iterable[_Node]:
        return (self.item,)

    def native_type(self) -> Any:
        item = self.item.native_type()
        tp = self.origin[(item, ...) if self.origin is tuple else item]
        return typing.Annotated[tp, self.meta] if self.meta else tp

    def own_schema(self, definitions: _Definitions) -> Schema:
        item = self.item.schema(definitions)
        schema = {"type": "array", "items": item} if item else {"type": "array"}
        return {**schema, **_lengths(self.meta, "Items")}

    def convert(self, value: Json, closed: bool) -> Any:
        if self.native and not closed:
            return super().convert(value, closed)
        msgspec.convert(value, typing.Annotated[list[Any], self.meta] if self.meta else list[Any])
        items = [_located(self.item, item, closed, position) for position, item in enumerate(value)]
        return items if self.origin in _LISTS else self.origin(items)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        for position, item in enumerate(value if isinstance(value, list) else ()):
            yield from self.item.unknown(item, (*path, position))


class _Tuple(_Node):
    """`tuple[A, B]` and NamedTuple: a place for each part."""

    def __init__(self, tp: Any, items: list[_Node], build: Callable[[list[Any]], Any], names: tuple[str, ...]) -> None:
        self.tp = tp
        self.items = items
        self.build = build
        self.names = names
        self.required = len(items)

    def children(self) -> Iterable[_Node]:
        return self.items

    def native_type(self) -> Any:
        plain: Any = tuple
        return self.tp if self.names else plain[tuple(item.native_type() for item in self.items)]

    def own_schema(self, definitions: _Definitions) -> Schema:
        places = [item.schema(definitions) for item in self.items]
        for place, name in zip(places, self.names, strict=False):
            place.setdefault("description", name)
        schema: Schema = {"type": "array"}
        if places:
            schema["prefixItems"] = places
        return {**schema, "items": False, "minItems": self.required, "maxItems": len(self.items)}

    def convert(self, value: Json, closed: bool) -> Any:
        if not isinstance(value, list) or not self.required <= len(value) <= len(self.items):
            raise msgspec.ValidationError(f"Expected an array of {len(self.items)} items")
        pairs = enumerate(zip(self.items, value, strict=False))
        return self.build([_located(item, part, closed, position) for position, (item, part) in pairs])

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        pairs = zip(self.items, value if isinstance(value, list) else (), strict=False)
        for position, (item, part) in enumerate(pairs):
            yield from item.unknown(part, (*path, position))


class _Mapping(_Node):
    """`dict[K, V]`."""

    def __init__(self, origin: Any, key: _Node, value: _Node) -> None:
        self.origin = origin
        self.key = key
        self.value = value
        self.meta: msgspec.Meta | None = None

    def children(self) -> Iterable[_Node]:
        return (self.key, self.value)

    def native_type(self) -> Any:
        tp = self.origin[self.key.native_type(), self.value.native_type()]
        return typing.Annotated[tp, self.meta] if self.meta else tp

    def own_schema(self, definitions: _Definitions) -> Schema:
        schema: Schema = {"type": "object"}
        key, value = self.key.schema(definitions), self.value.schema(definitions)
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = {name: part for name, part in key.items() if name != "type"}
        if value:
            schema["additionalProperties"] = value
        return {**schema, **_lengths(self.meta, "Properties")}

    def convert(self, value: Json, closed: bool) -> Any:
        msgspec.convert(value, typing.Annotated[dict[Any, Any], self.meta] if self.meta else dict[Any, Any])
        return {
            self.key.convert(name, closed): _located(self.value, part, closed, name) for name, part in value.items()
        }

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        for name, part in value.items() if isinstance(value, dict) else ():
            yield from self.value.unknown(part, (*path, name))


class _Union(_Node):
    """A choice. The most telling alternative is tried first: text that reads as a date is a date, then a string."""

    def __init__(self, members: list[_Node]) -> None:
        self.members = members
        self._by_rank = sorted(members, key=_rank)

    def children(self) -> Iterable[_Node]:
        return self.members

    def native_type(self) -> Any:
        return typing.Union[tuple(member.native_type() for member in self.members)]  # noqa: UP007

    def own_schema(self, definitions: _Definitions) -> Schema:
        choices = [member.schema(definitions) for member in self.members]
        if {"type": "number"} in choices:
            choices = [choice for choice in choices if choice != {"type": "integer"}]
        if {} in choices:
            return {}
        return choices[0] if len(choices) == 1 else {"anyOf": choices}

    def convert(self, value: Json, closed: bool) -> Any:
        for member in self._by_rank:
            try:
                return member.convert(value, closed)
            except msgspec.ValidationError:
                continue
        raise msgspec.ValidationError("Fits none of the alternatives")

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        found: list[Problem] = []
        for member in self.members:
            if member.takes(value) if isinstance(member, _Record) else not isinstance(member, _Leaf):
                found = list(islice(member.unknown(value, path), schemas.MAX_PROBLEMS))
                if not found:
                    break
        yield from found


@dataclasses.dataclass(slots=True)
class _Field:
    attribute: str
    name: str
    node: _Node
    required: bool
    default: Json = msgspec.UNSET
    settable: bool = True


class _Record(_Node):
    """A class with named members: dataclass, TypedDict, msgspec Struct."""

    def __init__(self, tp: Any, name: str) -> None:
        self.tp = tp
        self.name = name
        self.cls: Any = typing.get_origin(tp) or tp
        self.fields: list[_Field] = []
        self.tag: tuple[str, Json] | None = None
        self.closed_by_itself = False
        self.is_typed_dict = typing.is_typeddict(self.cls)

    def children(self) -> Iterable[_Node]:
        return [field.node for field in self.fields]

    def native_type(self) -> Any:
        return self.tp

    def own_schema(self, definitions: _Definitions) -> Schema:
        return definitions.reference(self)

    def body(self, definitions: _Definitions) -> Schema:
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

    def convert(self, value: Json, closed: bool) -> Any:
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
        if self.tag and value.get(self.tag[0]) != self.tag[1]:
            raise msgspec.ValidationError(f"Expected {self.tag[0]} to be {self.tag[1]!r}")
        if closed and (unknown := list(islice(self._unknown_here(value, ()), schemas.MAX_PROBLEMS))):
            raise _Refused(unknown)
        built: dict[str, Any] = {}
        for field in self.fields:
            if not field.settable:
                continue
            if field.name in value:
                built[field.attribute] = _located(field.node, value[field.name], closed, field.name)
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
        known = [field.name for field in self.fields if field.settable] + ([self.tag[0]] if self.tag else [])
        return (schemas.unknown_key(path, name, known) for name in value if name not in known)

    def has_open_records(self, seen: frozenset[int] = frozenset()) -> bool:
        return not self.closed_by_itself or super().has_open_records(seen)


_LISTS: Final = (list, typing.Sequence, typing.Collection, typing.Iterable, typing.MutableSequence)


def _located(node: _Node, value: Json, closed: bool, step: str | int) -> Any:
    try:
        return node.convert(value, closed)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        place = f"[{step}]" if isinstance(step, int) else f".{step}"
        raise msgspec.ValidationError(f"{text} - at `${place}{at.removesuffix('`')}`") from error


def _rank(node: _Node) -> int:
    if not isinstance(node, _Leaf):
        return 1
    base = _bare(node.tp)
    if isinstance(base, type) and issubclass(base, PurePath):
        return _RANKS[str]  # takes every string, so that the order of the author decides
    return _RANKS.get(base, 1)


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


def _bare(tp: Any) -> Any:
    return typing.get_args(tp)[0] if typing.get_origin(tp) is typing.Annotated else tp


def _class_text(cls: Any) -> str | None:
    import inspect

    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):  # the signature that dataclass writes
        return None
    return inspect.cleandoc(text) or None


# ---------------------------------------------------------------------------------------------------------------------
# From a type to its nodes
# ---------------------------------------------------------------------------------------------------------------------


class _MentionsPydantic(Exception):
    """Found while reading a type: pydantic has to read all of it."""


_SIMPLE: Final[dict[Any, Schema]] = {
    Any: {},
    object: {},
    type(None): {"type": "null"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "format": "decimal"},
    msgspec.Raw: {},
}
_ABSTRACT: Final[dict[Any, Any]] = {
    "Sequence": list, "MutableSequence": list, "Collection": list, "Iterable": list, "Container": list,
    "Set": set, "MutableSet": set, "Mapping": dict, "MutableMapping": dict,
}  # fmt: skip


class _Graph:
    """Builds the nodes of one type; classes are shared, so that recursive ones end."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._nodes: list[_Node] = []
        self._records: dict[Any, _Record] = {}

    def node(self, tp: Any) -> _Node:
        node = self._build(tp)
        self._nodes.append(node)
        return node

    def settle(self) -> None:
        """Decide which nodes msgspec can read whole; what contains one that it cannot, it cannot either."""
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                if node.native and not self._readable(node):
                    node.native = False
                    changed = True

    def _readable(self, node: _Node) -> bool:
        children = list(node.children())
        if not all(child.native for child in children):
            return False
        if isinstance(node, _Record):
            if any(child.rewritten for child in children) or not all(field.settable for field in node.fields):
                return False
        elif isinstance(node, _Tuple) and node.names and any(child.rewritten for child in children):
            return False
        elif not isinstance(node, (_Union, _Tuple)):
            return True
        try:
            msgspec.json.Decoder(node.native_type(), dec_hook=decode_hook)
        except (TypeError, NameError, AttributeError):
            return False
        return True

    def _build(self, tp: Any) -> _Node:
        tp = self._resolved(tp)
        _refuse_pydantic(tp)
        try:
            if tp in _SIMPLE:
                return _Leaf(tp, _SIMPLE[tp])
        except TypeError:  # unhashable metadata inside
            pass
        origin, arguments = typing.get_origin(tp), typing.get_args(tp)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], tp.__metadata__)
        if origin is typing.Literal:
            return self._literal(arguments)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if isinstance(tp, typing.NewType):
            return self._build(tp.__supertype__)
        if hasattr(tp, "__value__") and type(tp).__name__ == "TypeAliasType":
            inner = self._build(tp.__value__)
            inner.rewritten = True
            return inner
        if isinstance(tp, typing.TypeVar):
            inner = self._build(tp.__bound__ or Any)
            inner.rewritten = True
            return inner
        if tp is typing.LiteralString:
            return _Leaf(str, {"type": "string"}, rewritten=True)
        cls = origin or tp
        if isinstance(cls, type):
            return self._class(tp, cls, arguments)
        raise TypeError(f"{type_name(tp)} cannot be sent as JSON")

    def _resolved(self, tp: Any) -> Any:
        if tp is None:
            return type(None)
        if isinstance(tp, str):
            tp = typing.ForwardRef(tp)
        if isinstance(tp, typing.ForwardRef):
            return evaluate(tp.__forward_arg__, {}, self._namespace, "a type")
        return tp

    def _class(self, tp: Any, cls: type, arguments: tuple[Any, ...]) -> _Node:
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        if issubclass(cls, PurePath):
            return _Leaf(cls, {"type": "string", "format": "path"})
        if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct) or typing.is_typeddict(cls):
            return self._record(tp, cls, arguments)
        if issubclass(cls, tuple):
            return self._tuple(tp, cls, arguments)
        plain = cls if cls in (list, set, frozenset, dict) else _ABSTRACT.get(cls.__name__)
        if plain is None or cls.__module__ not in ("builtins", "collections.abc", "typing"):
            raise TypeError(
                f"{type_name(tp)} has no JSON form: use a plain type, a dataclass, a TypedDict, an Enum, "
                "a msgspec Struct or a pydantic model"
            )
        if plain is dict:
            key, value = arguments or (str, Any)
            return self._mapping(key, value)
        array = _Array(plain, self.node(arguments[0] if arguments else Any))
        array.rewritten = array.item.rewritten
        if plain in (set, frozenset) and not _is_hashable(array.item):
            raise TypeError(f"{type_name(tp)}: the items of a set must be hashable; use a list or frozen classes")
        return array

    def _mapping(self, key: Any, value: Any) -> _Node:
        key_node = self.node(str if key is Any else key)
        mapping = _Mapping(dict, key_node, self.node(value))
        mapping.rewritten = mapping.value.rewritten or key_node.rewritten
        if not isinstance(key_node, _Leaf):
            raise TypeError(f"the keys of a JSON object are strings; {type_name(key)} cannot be one")
        return mapping

    def _tuple(self, tp: Any, cls: type, arguments: tuple[Any, ...]) -> _Node:
        if names := getattr(cls, "_fields", ()):
            hints = self._hints(cls)
            items = [self.node(hints.get(name, Any)) for name in names]
            node = _Tuple(cls, items, lambda parts: cls(*parts), tuple(names))
            node.required = len(names) - len(getattr(cls, "_field_defaults", ()))
            return node
        if tp is tuple or (len(arguments) == 2 and arguments[1] is Ellipsis):
            array = _Array(tuple, self.node(arguments[0] if arguments else Any))
            array.rewritten = array.item.rewritten
            return array
        items = [self.node(argument) for argument in arguments]
        node = _Tuple(tp, items, tuple, ())
        node.rewritten = any(item.rewritten for item in items)
        return node

    def _enum(self, cls: type[enum.Enum]) -> _Node:
        if issubclass(cls, enum.Flag):
            return _Leaf(cls, {"type": "integer"})
        values = [member.value for member in cls]
        if {type(value) for value in values} not in ({str}, {int}):
            raise TypeError(f"the values of {type_name(cls)} must be all strings or all integers to be sent as JSON")
        return _Leaf(cls, _choices(values))

    def _literal(self, values: tuple[Any, ...]) -> _Node:
        if None in values and len(values) > 1:
            return self._union((typing.Literal[tuple(value for value in values if value is not None)], None))
        if any(isinstance(value, enum.Enum) for value in values):
            raise TypeError("Literal takes strings, numbers and booleans here; use the Enum class itself")
        if values == (None,):
            return _Leaf(type(None), {"type": "null"})
        return _Leaf(typing.Literal[values], _choices(list(values)))

    def _union(self, arguments: tuple[Any, ...]) -> _Node:
        members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
        if len(members) == 1:
            return members[0]
        union = _Union(members)
        union.rewritten = any(member.rewritten for member in members)
        return union

    def _record(self, tp: Any, cls: Any, arguments: tuple[Any, ...]) -> _Node:
        if tp in self._records:
            return self._records[tp]
        label = "_".join([cls.__name__, *(type_name(argument) for argument in arguments)])
        record = self._records[tp] = _Record(tp, "".join(c if c.isalnum() or c in "_-." else "_" for c in label))
        hints = self._hints(cls)
        if arguments:
            known = dict(zip(_parameters(cls), arguments, strict=False))
            hints = {name: _substituted(hint, known) for name, hint in hints.items()}
        if record.is_typed_dict:
            self._typed_dict(record, hints)
        elif issubclass(cls, msgspec.Struct):
            self._struct(record, hints)
        else:
            self._dataclass(record, hints)
        self._nodes.append(record)
        return record

    def _typed_dict(self, record: _Record, hints: dict[str, Any]) -> None:
        for name, hint in hints.items():
            required = name in record.cls.__required_keys__
            while (wrapper := typing.get_origin(hint)) is not None and getattr(wrapper, "_name", "") in _QUALIFIERS:
                required = {"Required": True, "NotRequired": False}.get(wrapper._name, required)
                hint = typing.get_args(hint)[0]
            record.fields.append(_Field(name, name, self.node(hint), required))

    def _struct(self, record: _Record, hints: dict[str, Any]) -> None:
        config = record.cls.__struct_config__
        if config.array_like:
            raise TypeError(f"{type_name(record.cls)} is array_like, which has no readable schema: use named members")
        if config.tag is not None:
            record.tag = (config.tag_field, config.tag)
        record.closed_by_itself = config.forbid_unknown_fields
        for info in (
            msgspec.structs.fields(record.cls) if not self._unresolvable(record.cls) else _bare_fields(record.cls)
        ):
            node = self.node(hints[info.name])
            default = _default(info.default, info.default_factory, msgspec.NODEFAULT)
            required = info.default is msgspec.NODEFAULT and info.default_factory is msgspec.NODEFAULT
            record.fields.append(_Field(info.name, info.encode_name, node, required, default))

    def _unresolvable(self, cls: Any) -> bool:
        try:
            msgspec.structs.fields(cls)
        except NameError:
            return True
        return False

    def _dataclass(self, record: _Record, hints: dict[str, Any]) -> None:
        if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
            raise TypeError(f"{type_name(record.cls)} has an InitVar, which JSON cannot carry")
        for field in dataclasses.fields(record.cls):
            default = _default(field.default, field.default_factory, dataclasses.MISSING)
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            node = self.node(hints[field.name])
            record.fields.append(_Field(field.name, field.name, node, required, default, field.init))

    def _hints(self, cls: Any) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, localns=dict(self._namespace), include_extras=True)
        except NameError as error:
            raise unknown_name(error, type_name(cls)) from None

    # -- Annotated ----------------------------------------------------------------------------------------------------

    def _annotated(self, tp: Any, metadata: tuple[Any, ...]) -> _Node:
        limits: dict[str, Any] = {}
        around: Schema = {}
        translated = False
        for item in metadata:
            if any(base.__module__.partition(".")[0] == "pydantic" for base in type(item).__mro__):
                raise _MentionsPydantic
            if isinstance(item, msgspec.Meta):
                limits |= _meta_limits(item)
                around |= _meta_text(item)
            elif (found := _annotated_types_limits(item)) is not None:
                limits |= found
                translated = translated or bool(found)
            around |= _text(item)
        node = self._build(tp)
        if limits:
            node = self._limited(node, limits, type_name(tp))
            node.rewritten = node.rewritten or translated
        if around:
            node = _with_text(node, around)
        return node

    def _limited(self, node: _Node, limits: dict[str, Any], name: str) -> _Node:
        """The node with constraints, each of which must apply; to a choice they apply where they can."""
        if isinstance(node, _Union):
            members = [
                self._limited(member, fitting, name)
                if (fitting := {key: limits[key] for key in limits if key in _applicable(member)})
                else member
                for member in node.members
            ]
            left = set(limits) - {key for member in node.members for key in _applicable(member)}
            if left:
                raise TypeError(f"the constraint {', '.join(sorted(left))} does not apply to {name}")
            self._nodes += members
            union = _Union(members)
            union.rewritten = True
            return union
        if unfit := set(limits) - _applicable(node):
            raise TypeError(f"the constraint {', '.join(sorted(unfit))} does not apply to {name}")
        if isinstance(node, (_Array, _Mapping)):
            node.meta = msgspec.Meta(**limits)
            return node
        leaf = cast(_Leaf, node)
        try:
            tp: Any = _ANNOTATED[leaf.tp, msgspec.Meta(**limits)]
            msgspec.json.Decoder(tp)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the constraint on {name} cannot be enforced: {error}") from None
        return _Leaf(tp, {**leaf._schema, **_limits_schema(limits)}, leaf.rewritten)


def _is_hashable(node: _Node) -> bool:
    if isinstance(node, _Record):
        is_struct = issubclass(node.cls, msgspec.Struct)
        return bool(node.cls.__struct_config__.frozen) if is_struct else node.cls.__hash__ is not None
    if isinstance(node, _Array):
        return node.origin in (tuple, frozenset) and _is_hashable(node.item)
    return not isinstance(node, _Mapping) and all(_is_hashable(child) for child in node.children())


_ANNOTATED: Final[Any] = typing.Annotated
_QUALIFIERS: Final = ("Required", "NotRequired", "ReadOnly")


def evaluate(expression: str, globalns: dict[str, Any], namespace: Namespace, owner: str) -> Any:
    """The type that an annotation in quotes (or under `from __future__ import annotations`) stands for."""
    holder = types.SimpleNamespace(__annotations__={"it": expression}, __module__=None)
    try:
        return typing.get_type_hints(holder, globalns, dict(namespace), include_extras=True)["it"]
    except NameError as error:
        raise unknown_name(error, owner) from None


def unknown_name(error: NameError, owner: str) -> TypeError:
    return TypeError(f"the annotations of {owner} use {error.name!r}, which is not defined where it was registered")


def _refuse_pydantic(tp: Any) -> None:
    """pydantic is looked for by name: a type cannot come from a module that was never imported."""
    if "pydantic" not in sys.modules:
        return
    cls = typing.get_origin(tp) or tp
    if isinstance(cls, type) and (
        hasattr(cls, "__pydantic_core_schema__")
        or hasattr(cls, "__get_pydantic_core_schema__")
        or cls.__module__.partition(".")[0] in ("pydantic", "pydantic_core", "pydantic_extra_types")
    ):
        raise _MentionsPydantic


def _parameters(cls: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", getattr(cls, "__parameters__", ()))


def _substituted(hint: Any, known: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return known.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(known.get(parameter, parameter) for parameter in parameters)] if parameters else hint


def _choices(values: list[Any]) -> Schema:
    kinds = {type(value) for value in values}
    named = {str: "string", int: "integer", bool: "boolean"}.get(kinds.pop()) if len(kinds) == 1 else None
    return {"type": named, "enum": values} if named else {"enum": values}


def _default(value: Any, factory: Any, absent: Any) -> Json:
    """A default as JSON, or UNSET when there is none or it has no JSON form."""
    if factory is not absent:
        value = factory() if factory in (list, dict, set, frozenset, tuple) else absent
    return msgspec.UNSET if value is absent else json_default(value)


def json_default(value: Any) -> Json:
    """A default value as it stands in a schema, UNSET when JSON cannot say it."""
    try:
        text = msgspec.json.encode(value, enc_hook=encode_hook)
    except Exception:  # whatever the author's object does when it is asked for its members
        return msgspec.UNSET
    plain = msgspec.json.decode(text)
    return msgspec.UNSET if plain is None and value is not None else plain


class _BareField(typing.NamedTuple):
    name: str
    encode_name: str
    default: Any
    default_factory: Any


def _bare_fields(cls: Any) -> list[_BareField]:
    """The members of a Struct whose annotations msgspec itself cannot resolve (types local to a function)."""
    absent = msgspec.NODEFAULT
    defaults = (absent,) * (len(cls.__struct_fields__) - len(cls.__struct_defaults__)) + cls.__struct_defaults__
    fields = []
    for name, wire, default in zip(cls.__struct_fields__, cls.__struct_encode_fields__, defaults, strict=True):
        factory = getattr(default, "factory", absent)
        fields.append(_BareField(name, wire, absent if factory is not absent else default, factory))
    return fields


# -- Constraints and texts ------------------------------------------------------------------------------------------

_NUMERIC: Final = frozenset(("gt", "ge", "lt", "le", "multiple_of"))
_LENGTH: Final = frozenset(("min_length", "max_length"))
_SCHEMA_NAMES: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
}


def _applicable(node: _Node) -> frozenset[str]:
    if isinstance(node, (_Array, _Mapping)):
        return _LENGTH
    if not isinstance(node, _Leaf):
        return frozenset()
    base = _bare(node.tp)
    if base in (int, float):
        return _NUMERIC
    if base is str:
        return _LENGTH | {"pattern"}
    if base in (bytes, bytearray):
        return _LENGTH
    return frozenset(("tz",)) if base in (datetime.datetime, datetime.time) else frozenset()


def _limits_schema(limits: dict[str, Any]) -> Schema:
    return {_SCHEMA_NAMES[key]: value for key, value in limits.items() if key in _SCHEMA_NAMES}


def _lengths(meta: msgspec.Meta | None, noun: str) -> Schema:
    if meta is None:
        return {}
    pairs = ((f"min{noun}", meta.min_length), (f"max{noun}", meta.max_length))
    return {key: value for key, value in pairs if value is not None}


def _meta_limits(meta: msgspec.Meta) -> dict[str, Any]:
    keys = (*_SCHEMA_NAMES, "tz")
    return {key: value for key in keys if (value := getattr(meta, key)) is not None}


def _meta_text(meta: msgspec.Meta) -> Schema:
    pairs = (("title", meta.title), ("description", meta.description), ("examples", meta.examples))
    return {**{key: value for key, value in pairs if value is not None}, **(meta.extra_json_schema or {})}


def _annotated_types_limits(item: Any) -> dict[str, Any] | None:
    """A constraint of `annotated_types` in msgspec's words, None for anything else; refused if no schema says it."""
    if not any(base.__module__ == "annotated_types" for base in type(item).__mro__):
        return None
    match type(item).__name__:
        case "DocInfo":
            return {}
        case "Gt" | "Ge" | "Lt" | "Le" | "MultipleOf" | "MinLen" | "MaxLen" | "Interval" | "Len":
            names = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
            found = {name: value for name in names if (value := getattr(item, name, None)) is not None}
            return {name: value for name, value in found.items() if (name, value) != ("min_length", 0)}
        case name:
            raise TypeError(f"the constraint {name} of annotated_types cannot be described in a schema")


def _text(item: Any) -> Schema:
    if isinstance(item, str):
        return {"description": item}
    if isinstance(documentation := getattr(item, "documentation", None), str):
        return {"description": documentation}
    extra = getattr(item, "__json_schema__", None)
    return dict(extra) if isinstance(extra, dict) else {}


def _with_text(node: _Node, around: Schema) -> _Node:
    import copy

    if isinstance(node, _Record):  # a class is shared; what is said here is about this use only
        return _Described(node, around)
    twin = copy.copy(node)
    twin.around = {**node.around, **around}
    return twin


class _Described(_Node):
    """A record with a text of its own at one place."""

    def __init__(self, inner: _Node, around: Schema) -> None:
        self.inner = inner
        self.around = around

    def children(self) -> Iterable[_Node]:
        return (self.inner,)

    def native_type(self) -> Any:
        return self.inner.native_type()

    def own_schema(self, definitions: _Definitions) -> Schema:
        return self.inner.schema(definitions)

    def convert(self, value: Json, closed: bool) -> Any:
        return self.inner.convert(value, closed)

    def unknown(self, value: Json, path: schemas.Path) -> Iterator[Problem]:
        return self.inner.unknown(value, path)


# ---------------------------------------------------------------------------------------------------------------------
# pydantic
# ---------------------------------------------------------------------------------------------------------------------


class _PydanticAdapter(Adapter):
    """pydantic reads and writes the type, as its models say."""

    def __init__(self, tp: Any, namespace: Namespace) -> None:
        super().__init__(tp)
        import pydantic

        self._error: type[Exception] = pydantic.ValidationError
        try:
            self._adapter: Any = pydantic.TypeAdapter(_for_pydantic(tp, namespace))
            self._schemas = {"input": self._generate(pydantic, "input"), "output": self._generate(pydantic, "output")}
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"pydantic cannot read {type_name(tp)}: {reason}") from None

    def _generate(self, pydantic: Any, mode: Mode) -> Schema:
        generator = _pydantic_generator(pydantic)
        theirs = "validation" if mode == "input" else "serialization"
        written, shared = pydantic.TypeAdapter.json_schemas([("it", theirs, self._adapter)], schema_generator=generator)
        schema: Schema = {**written["it", theirs], **{key: shared[key] for key in ("$defs",) if key in shared}}
        if mode == "input":
            # A model that says nothing about extra keys gets the rule of every other tool: unknown ones are refused.
            self._extra = {} if generator.says_extra or not generator.can_forbid else {"extra": "forbid"}
            schema = _closed(schema) if self._extra else schema
        return schema

    def document(self, mode: Mode) -> Schema:
        return self._schemas[mode]

    def read(self, data: bytes | msgspec.Raw) -> Any:
        return self._adapter.validate_json(bytes(data), **self._extra)

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        return self._adapter.validate_json(bytes(data))

    def encode(self, value: Any) -> bytes:
        return cast(bytes, self._adapter.dump_json(value, by_alias=True))

    def validate_output(self, value: Any) -> bytes:
        try:
            checked = self._adapter.validate_python(value)
        except self._error as error:
            raise Invalid(self.refusal(error)) from None
        try:
            return cast(bytes, self._adapter.dump_json(checked, by_alias=True, warnings="error"))
        except ValueError:
            raise TypeError(f"a value of type {type_name(type(value))} has no JSON form") from None

    def refusal(self, error: Exception) -> list[Problem]:
        if not isinstance(error, self._error):
            return super().refusal(error)
        found = cast(Any, error).errors(include_url=False, include_context=False, include_input=False)
        return [_from_pydantic(each) for each in found[: schemas.MAX_PROBLEMS]]


def _from_pydantic(found: dict[str, Any]) -> Problem:
    message = str(found["msg"])
    return Problem(tuple(found["loc"]), message[:1].lower() + message[1:])


def _pydantic_generator(pydantic: Any) -> Any:
    """A schema generator that makes no titles up, and notes whether some model chose what to do with extra keys."""
    import inspect

    base: Any = pydantic.json_schema.GenerateJsonSchema

    class Generator(base):  # type: ignore[misc]
        says_extra = False
        can_forbid = "extra" in inspect.signature(pydantic.TypeAdapter.validate_json).parameters

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def model_schema(self, schema: Any) -> Any:
            return self._untitled(super().model_schema(schema), schema)

        def dataclass_schema(self, schema: Any) -> Any:
            return self._untitled(super().dataclass_schema(schema), schema)

        def typed_dict_schema(self, schema: Any) -> Any:
            return self._untitled(super().typed_dict_schema(schema), schema)

        def enum_schema(self, schema: Any) -> Any:
            return self._untitled(super().enum_schema(schema), schema)

        def _untitled(self, written: Any, schema: Any) -> Any:
            cls = schema.get("cls")
            config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
            if "extra" in config:
                Generator.says_extra = True
            if written.get("title") == getattr(cls, "__name__", None) and not config.get("title"):
                written.pop("title", None)
            return written

    return Generator


def _closed(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: value if key in ("default", "enum", "examples") else _closed(value) for key, value in schema.items()}
    if result.get("type") == "object" and isinstance(result.get("properties"), dict):
        result.setdefault("additionalProperties", False)
    return result


def _for_pydantic(tp: Any, namespace: Namespace) -> Any:
    """The type with msgspec's constraints and plain texts in pydantic's words, so that none is lost."""
    import pydantic

    if isinstance(tp, (str, typing.ForwardRef)):
        tp = evaluate(tp if isinstance(tp, str) else tp.__forward_arg__, {}, namespace, "a type")
    origin, arguments = typing.get_origin(tp), typing.get_args(tp)
    if origin is typing.Annotated:
        inner: Any = _for_pydantic(arguments[0], namespace)
        for item in tp.__metadata__:
            extra: Any = item
            if isinstance(item, msgspec.Meta):
                limits = {key: value for key, value in _meta_limits(item).items() if key != "tz"}
                if item.tz is not None:
                    raise TypeError("msgspec.Meta(tz=…) next to pydantic: use pydantic.AwareDatetime or NaiveDatetime")
                text = _meta_text(item)
                extra = pydantic.Field(description=text.pop("description", None), json_schema_extra=text, **limits)
            elif text := _text(item):
                extra = pydantic.Field(description=text.pop("description", None), json_schema_extra=text or None)
            inner = typing.Annotated[inner, extra]
        return inner
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_for_pydantic(argument, namespace) for argument in arguments)]  # noqa: UP007
    if origin in (list, set, frozenset, dict, tuple):
        return origin[tuple(each if each is ... else _for_pydantic(each, namespace) for each in arguments)]
    return tp


def from_field_default(annotation: Any, default: Any) -> tuple[Any, Any, str | None]:
    """A parameter's annotation, default and wire name, with `pydantic.Field` read wherever it was written.

    `x: int = Field(3, ge=1)` means `x: Annotated[int, Field(ge=1)] = 3`. An absent default is UNSET.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return annotation, default, None
    info: Any = getattr(pydantic, "fields", None)
    if info is None:
        return annotation, default, None
    if isinstance(default, info.FieldInfo):
        annotation = typing.Annotated[annotation, default]
        default = msgspec.UNSET
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, default, None
    alias: str | None = None
    metadata: list[Any] = []
    for item in annotation.__metadata__:
        if not isinstance(item, info.FieldInfo):
            metadata.append(item)
            continue
        if default is msgspec.UNSET and not item.is_required():
            default = item.get_default(call_default_factory=True)
        found, item = _without_alias(item)
        alias = found or alias
        metadata.append(item)
    return _ANNOTATED[(typing.get_args(annotation)[0], *metadata)], default, alias


def _without_alias(item: Any) -> tuple[str | None, Any]:
    """The other name that a `Field` gives, and the Field without it: a name belongs to a parameter, not to a type."""
    import copy

    if item.alias is None and item.validation_alias is None:
        return None, item
    if item.validation_alias is not None and not isinstance(item.validation_alias, str):
        raise TypeError("a parameter has one name: use a plain string as validation_alias")
    plain = copy.copy(item)
    plain.alias = plain.validation_alias = plain.serialization_alias = None
    return item.validation_alias or item.alias, plain


# ---------------------------------------------------------------------------------------------------------------------
# Elicitation
# ---------------------------------------------------------------------------------------------------------------------

_FORM_FORMATS: Final = ("email", "uri", "date", "date-time")
_FORM_KEYWORDS: Final = {
    "string": ("title", "description", "minLength", "maxLength", "format", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
}
_FORM_RULE: Final = (
    "a form asks for a bool, int, float, str, date, datetime, Enum or Literal of strings, a list of such an Enum or "
    "Literal, or a dataclass, TypedDict, Struct or pydantic model whose members are these"
)


def elicitation_schema(tp: Any, *, namespace: Namespace = NO_NAMES) -> tuple[Schema, Callable[[Json], Any]]:
    """The form that asks for a type, and the function that turns the answer's content into a value.

    2025-06-18 client/elicitation onwards: a flat object of primitive members; 2025-11-25 adds lists of choices. One
    value alone is asked for as the member `value`. The function raises `Invalid` for an answer that does not fit.
    """
    reader = adapter(tp, namespace=namespace)
    schema = reader.schema("input")
    if schema.get("type") == "object" and "properties" in schema:
        titles = _member_titles(reader)
        members = schema["properties"]
        required = [name for name in schema.get("required", ()) if not _is_nullable(members[name])]
        form = {
            "type": "object",
            "properties": {
                name: _form_member(member, titles.get(name, {}), name, tp) for name, member in members.items()
            },
        }
        return ({**form, "required": required} if required else form), _whole_answer(reader, members)
    member = _form_member(schema, _titles(getattr(reader, "root", None)), "value", tp)
    form = {"type": "object", "properties": {"value": member}}
    if "default" not in member and not _is_nullable(schema):
        form["required"] = ["value"]
    return form, _single_answer(reader)


def _whole_answer(reader: Adapter, members: Schema) -> Callable[[Json], Any]:
    def unpack(content: Json) -> Any:
        return reader.decode_lenient(_content(content, members))

    return unpack


def _single_answer(reader: Adapter) -> Callable[[Json], Any]:
    def unpack(content: Json) -> Any:
        answer = msgspec.json.decode(_content(content, {"value": {}}))
        try:
            return reader.decode_lenient(msgspec.json.encode(answer.get("value")))
        except Invalid as error:
            raise Invalid(
                [Problem(("value", *path), message, kind) for path, message, kind in error.problems]
            ) from None

    return unpack


def _content(content: Json, members: Schema) -> bytes:
    plain = msgspec.json.decode(content) if isinstance(content, (bytes, msgspec.Raw)) else content
    if not isinstance(plain, dict):
        raise Invalid([Problem((), "expected an object")])
    # A form that was left blank comes back as null from some clients; that is the same as leaving it out.
    return msgspec.json.encode({k: v for k, v in plain.items() if v is not None or _is_nullable(members.get(k))})


def _is_nullable(member: Json) -> bool:
    return isinstance(member, dict) and {"type": "null"} in member.get("anyOf", ())


def _form_member(member: Schema, titles: dict[Any, str], name: str, tp: Any) -> Schema:
    member = cast(
        Schema, schemas.without_optional_null({"type": "object", "properties": {"it": member}})["properties"]["it"]
    )
    kind = member.get("type")
    text: Schema = {key: member[key] for key in ("title", "description") if key in member}
    default = {"default": member["default"]} if "default" in member else {}
    if isinstance(values := member.get("enum"), list) and all(isinstance(value, str) for value in values):
        if titles:
            return {"type": "string", **text, "oneOf": _titled(values, titles), **default}
        return {"type": "string", **text, "enum": values, **default}
    if kind == "array" and isinstance(item := member.get("items"), dict):
        choices = item.get("enum")
        if isinstance(choices, list) and all(isinstance(value, str) for value in choices):
            counts: Schema = {key: member[key] for key in ("minItems", "maxItems") if key in member}
            items = {"anyOf": _titled(choices, titles)} if titles else {"type": "string", "enum": choices}
            return {"type": "array", **text, **counts, "items": items, **default}
    if "enum" in member or kind not in _FORM_KEYWORDS:
        raise TypeError(f"{type_name(tp)} cannot be asked for (member {name!r}): {_FORM_RULE}")
    form = {"type": kind, **{key: member[key] for key in _FORM_KEYWORDS[kind] if key in member}}
    if form.get("format") not in _FORM_FORMATS:
        form.pop("format", None)
    if kind == "integer":
        if "exclusiveMinimum" in member:
            form["minimum"] = member["exclusiveMinimum"] + 1
        if "exclusiveMaximum" in member:
            form["maximum"] = member["exclusiveMaximum"] - 1
    return form


def _titled(values: list[str], titles: dict[Any, str]) -> list[Schema]:
    return [{"const": value, "title": titles.get(value, value)} for value in values]


def _member_titles(reader: Adapter) -> dict[str, dict[Any, str]]:
    node: Any = getattr(reader, "root", None)
    while isinstance(node, _Described):
        node = node.inner
    return {field.name: _titles(field.node) for field in node.fields} if isinstance(node, _Record) else {}


def _titles(node: Any) -> dict[Any, str]:
    """Names for the values of an Enum, where they say more than the values do."""
    if isinstance(node, _Array):
        return _titles(node.item)
    if isinstance(node, _Union):
        return next((found for member in node.members if (found := _titles(member))), {})
    if not (isinstance(node, _Leaf) and isinstance(node.tp, type) and issubclass(node.tp, enum.Enum)):
        return {}
    titles = {member.value: member.name.replace("_", " ").strip().capitalize() for member in node.tp}
    telling = any(str(value).replace("_", " ").casefold() != title.casefold() for value, title in titles.items())
    return titles if telling else {}
