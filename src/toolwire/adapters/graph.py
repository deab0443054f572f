"""The nodes of a type, and the decision which of them msgspec can read whole."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import sys
import types
import typing
import uuid
from typing import Any, Final, cast

import msgspec

from toolwire.adapters.annotations import ANNOTATED, Namespace, evaluate, type_name, unknown_name
from toolwire.adapters.constraints import (
    annotated_types_limits,
    applicable,
    limits_schema,
    meta_limits,
    meta_text,
    text_of,
)
from toolwire.adapters.hooks import decode_hook, is_named_tuple, is_path_class, json_default
from toolwire.adapters.nodes import (
    ArrayNode,
    DescribedNode,
    Field,
    LeafNode,
    MappingNode,
    RecordNode,
    TupleNode,
    TypeNode,
    UnionNode,
)
from toolwire.schemas import Json, Schema


class MentionsPydantic(Exception):
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
_QUALIFIERS: Final = ("Required", "NotRequired", "ReadOnly")


class Graph:
    """Builds the nodes of one type; classes are shared, so that recursive ones end."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._nodes: list[TypeNode] = []
        self._records: dict[Any, RecordNode] = {}

    def node(self, tp: Any) -> TypeNode:
        node = self._build(tp)
        self._nodes.append(node)
        return node

    def mark_native(self) -> None:
        """Decide which nodes msgspec can decode. A parent needs all its children."""
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                if node.native and not self._readable(node):
                    node.native = False
                    changed = True

    def _readable(self, node: TypeNode) -> bool:
        children = list(node.children())
        if not all(child.native for child in children):
            return False
        if isinstance(node, RecordNode):
            if node.is_named_tuple:
                return False  # msgspec reads an array, which says nothing of what its items are.
            if any(child.rewritten for child in children) or not all(field.settable for field in node.fields):
                return False
        elif not isinstance(node, (UnionNode, TupleNode)):
            return True
        try:
            msgspec.json.Decoder(node.native_type(), dec_hook=decode_hook)
        except (TypeError, NameError, AttributeError):
            return False
        return True

    def _build(self, tp: Any) -> TypeNode:
        tp = self._resolved(tp)
        _refuse_pydantic(tp)
        try:
            if tp in _SIMPLE:
                return LeafNode(tp, _SIMPLE[tp])
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
            return LeafNode(str, {"type": "string"}, rewritten=True)
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

    def _class(self, tp: Any, cls: type, arguments: tuple[Any, ...]) -> TypeNode:
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        if is_path_class(cls):
            return LeafNode(cls, {"type": "string", "format": "path"})
        if (
            dataclasses.is_dataclass(cls)
            or issubclass(cls, msgspec.Struct)
            or typing.is_typeddict(cls)
            or is_named_tuple(cls)
        ):
            return self._record(tp, cls, arguments)
        if issubclass(cls, tuple):
            return self._tuple(tp, arguments)
        plain = cls if cls in (list, set, frozenset, dict) else _ABSTRACT.get(cls.__name__)
        if plain is None or cls.__module__ not in ("builtins", "collections.abc", "typing"):
            raise TypeError(
                f"{type_name(tp)} has no JSON form: use a plain type, a dataclass, a TypedDict, an Enum, "
                "a msgspec Struct or a pydantic model"
            )
        if plain is dict:
            key, value = arguments or (str, Any)
            return self._mapping(key, value)
        array = ArrayNode(plain, self.node(arguments[0] if arguments else Any))
        array.rewritten = array.item.rewritten
        if plain in (set, frozenset) and not _is_hashable(array.item):
            raise TypeError(f"{type_name(tp)}: the items of a set must be hashable; use a list or frozen classes")
        return array

    def _mapping(self, key: Any, value: Any) -> TypeNode:
        key_node = self.node(str if key is Any else key)
        mapping = MappingNode(dict, key_node, self.node(value))
        mapping.rewritten = mapping.value.rewritten or key_node.rewritten
        if not isinstance(key_node, LeafNode):
            raise TypeError(f"the keys of a JSON object are strings; {type_name(key)} cannot be one")
        return mapping

    def _tuple(self, tp: Any, arguments: tuple[Any, ...]) -> TypeNode:
        if tp is tuple or (len(arguments) == 2 and arguments[1] is Ellipsis):
            array = ArrayNode(tuple, self.node(arguments[0] if arguments else Any))
            array.rewritten = array.item.rewritten
            return array
        node = TupleNode([self.node(argument) for argument in arguments])
        node.rewritten = any(item.rewritten for item in node.items)
        return node

    def _enum(self, cls: type[enum.Enum]) -> TypeNode:
        if issubclass(cls, enum.Flag):
            return LeafNode(cls, {"type": "integer"})
        values = [member.value for member in cls]
        if {type(value) for value in values} not in ({str}, {int}):
            raise TypeError(f"the values of {type_name(cls)} must be all strings or all integers to be sent as JSON")
        return LeafNode(cls, _choices(values))

    def _literal(self, values: tuple[Any, ...]) -> TypeNode:
        if None in values and len(values) > 1:
            return self._union((typing.Literal[tuple(value for value in values if value is not None)], None))
        if any(isinstance(value, enum.Enum) for value in values):
            raise TypeError("Literal takes strings, numbers and booleans here; use the Enum class itself")
        if values == (None,):
            return LeafNode(type(None), {"type": "null"})
        return LeafNode(typing.Literal[values], _choices(list(values)))

    def _union(self, arguments: tuple[Any, ...]) -> TypeNode:
        members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
        if len(members) == 1:
            return members[0]
        union = UnionNode(members)
        union.rewritten = any(member.rewritten for member in members)
        return union

    def _record(self, tp: Any, cls: Any, arguments: tuple[Any, ...]) -> TypeNode:
        if tp in self._records:
            return self._records[tp]
        label = "_".join([cls.__name__, *(type_name(argument) for argument in arguments)])
        record = self._records[tp] = RecordNode(tp, "".join(c if c.isalnum() or c in "_-." else "_" for c in label))
        hints = self._hints(cls)
        if arguments:
            known = dict(zip(_parameters(cls), arguments, strict=False))
            hints = {name: _substituted(hint, known) for name, hint in hints.items()}
        if record.is_typed_dict:
            self._typed_dict(record, hints)
        elif record.is_named_tuple:
            self._named_tuple(record, hints)
        elif issubclass(cls, msgspec.Struct):
            self._struct(record, hints)
        else:
            self._dataclass(record, hints)
        self._nodes.append(record)
        return record

    def _typed_dict(self, record: RecordNode, hints: dict[str, Any]) -> None:
        for name, hint in hints.items():
            required = name in record.cls.__required_keys__
            while (wrapper := typing.get_origin(hint)) is not None and getattr(wrapper, "_name", "") in _QUALIFIERS:
                required = {"Required": True, "NotRequired": False}.get(wrapper._name, required)
                hint = typing.get_args(hint)[0]
            record.fields.append(Field(name, name, self.node(hint), required))

    def _struct(self, record: RecordNode, hints: dict[str, Any]) -> None:
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
            record.fields.append(Field(info.name, info.encode_name, node, required, default))

    def _unresolvable(self, cls: Any) -> bool:
        try:
            msgspec.structs.fields(cls)
        except NameError:
            return True
        return False

    def _dataclass(self, record: RecordNode, hints: dict[str, Any]) -> None:
        if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
            raise TypeError(f"{type_name(record.cls)} has an InitVar, which JSON cannot carry")
        for field in dataclasses.fields(record.cls):
            default = _default(field.default, field.default_factory, dataclasses.MISSING)
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            node = self.node(hints[field.name])
            record.fields.append(Field(field.name, field.name, node, required, default, field.init))

    def _named_tuple(self, record: RecordNode, hints: dict[str, Any]) -> None:
        for name in record.cls._fields:
            default = record.cls._field_defaults.get(name, msgspec.NODEFAULT)
            shown = _default(default, msgspec.NODEFAULT, msgspec.NODEFAULT)
            node = self.node(hints.get(name, Any))
            record.fields.append(Field(name, name, node, default is msgspec.NODEFAULT, shown))

    def _hints(self, cls: Any) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, localns=dict(self._namespace), include_extras=True)
        except NameError as error:
            raise unknown_name(error, type_name(cls)) from None

    # -- Annotated ----------------------------------------------------------------------------------------------------

    def _annotated(self, tp: Any, metadata: tuple[Any, ...]) -> TypeNode:
        limits: dict[str, Any] = {}
        around: Schema = {}
        translated = False
        for item in metadata:
            if any(base.__module__.partition(".")[0] == "pydantic" for base in type(item).__mro__):
                raise MentionsPydantic
            if isinstance(item, msgspec.Meta):
                limits |= meta_limits(item)
                around |= meta_text(item)
            elif (found := annotated_types_limits(item)) is not None:
                limits |= found
                translated = translated or bool(found)
            around |= text_of(item)
        node = self._build(tp)
        if limits:
            node = self._limited(node, limits, type_name(tp))
            node.rewritten = node.rewritten or translated
        if around:
            node = _with_text(node, around)
        return node

    def _limited(self, node: TypeNode, limits: dict[str, Any], name: str) -> TypeNode:
        """Return the node with constraints.

        Each must apply; to a choice they apply where they can.
        """
        if isinstance(node, UnionNode):
            members = [
                self._limited(member, fitting, name)
                if (fitting := {key: limits[key] for key in limits if key in applicable(member)})
                else member
                for member in node.members
            ]
            left = set(limits) - {key for member in node.members for key in applicable(member)}
            if left:
                raise TypeError(f"the constraint {', '.join(sorted(left))} does not apply to {name}")
            self._nodes += members
            union = UnionNode(members)
            union.rewritten = True
            return union
        if unfit := set(limits) - applicable(node):
            raise TypeError(f"the constraint {', '.join(sorted(unfit))} does not apply to {name}")
        if isinstance(node, (ArrayNode, MappingNode)):
            node.meta = msgspec.Meta(**limits)
            return node
        leaf = cast(LeafNode, node)
        try:
            tp: Any = ANNOTATED[leaf.tp, msgspec.Meta(**limits)]
            msgspec.json.Decoder(tp)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the constraint on {name} cannot be enforced: {error}") from None
        return LeafNode(tp, {**leaf.plain, **limits_schema(limits)}, leaf.rewritten)


def _with_text(node: TypeNode, around: Schema) -> TypeNode:
    import copy

    if isinstance(node, RecordNode):  # a class is shared; what is said here is about this use only
        return DescribedNode(node, around)
    twin = copy.copy(node)
    twin.around = {**node.around, **around}
    return twin


def _is_hashable(node: TypeNode) -> bool:
    if isinstance(node, RecordNode) and not node.is_named_tuple:
        is_struct = issubclass(node.cls, msgspec.Struct)
        return bool(node.cls.__struct_config__.frozen) if is_struct else node.cls.__hash__ is not None
    if isinstance(node, ArrayNode):
        return node.origin in (tuple, frozenset) and _is_hashable(node.item)
    return not isinstance(node, MappingNode) and all(_is_hashable(child) for child in node.children())


def _refuse_pydantic(tp: Any) -> None:
    """Refuse types of pydantic.

    They are found by name: a type cannot come from a module that was never imported.
    """
    if "pydantic" not in sys.modules:
        return
    cls = typing.get_origin(tp) or tp
    if isinstance(cls, type) and (
        hasattr(cls, "__pydantic_core_schema__")
        or hasattr(cls, "__get_pydantic_core_schema__")
        or cls.__module__.partition(".")[0] in ("pydantic", "pydantic_core", "pydantic_extra_types")
    ):
        raise MentionsPydantic


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
    """Return a default as JSON.

    UNSET when there is none or it has no JSON form.
    """
    if factory is not absent:
        value = factory() if factory in (list, dict, set, frozenset, tuple) else absent
    return msgspec.UNSET if value is absent else json_default(value)


class _BareField(typing.NamedTuple):
    name: str
    encode_name: str
    default: Any
    default_factory: Any


def _bare_fields(cls: Any) -> list[_BareField]:
    """Return the members of a Struct with types local to a function.

    msgspec itself cannot resolve their annotations.
    """
    absent = msgspec.NODEFAULT
    defaults = (absent,) * (len(cls.__struct_fields__) - len(cls.__struct_defaults__)) + cls.__struct_defaults__
    fields = []
    for name, wire, default in zip(cls.__struct_fields__, cls.__struct_encode_fields__, defaults, strict=True):
        factory = getattr(default, "factory", absent)
        fields.append(_BareField(name, wire, absent if factory is not absent else default, factory))
    return fields
