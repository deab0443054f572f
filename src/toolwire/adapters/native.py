"""Adapters without pydantic: msgspec reads the whole type, or the nodes do what msgspec cannot."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from toolwire import schemas
from toolwire.adapters.base import Adapter, Mode
from toolwire.adapters.hooks import decode_hook, encode_hook, with_names
from toolwire.adapters.nodes import Definitions, DoesNotFit, NodeReading, TypeNode
from toolwire.schemas import Invalid, Problem, Schema

_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode


class GraphAdapter(Adapter):
    def __init__(self, tp: Any, root: TypeNode) -> None:
        super().__init__(tp)
        self._root = root

    def document(self, mode: Mode) -> Schema:
        definitions = Definitions(mode)
        schema = self._root.schema(definitions)
        return {**schema, "$defs": definitions.bodies} if definitions.bodies else schema

    @property
    def root(self) -> TypeNode:
        return self._root


class NativeAdapter(GraphAdapter):
    """msgspec reads the whole type."""

    def __init__(self, tp: Any, root: TypeNode) -> None:
        super().__init__(tp, root)
        native = root.native_type()
        self._decode = msgspec.json.Decoder(native, dec_hook=decode_hook).decode
        self._open = root.has_open_records()
        # A value of the very type is what it was declared to be, where the type says it all.
        self._plain = native if native in (int, bool) else None
        self.field_type: Any = None if self._open else native

    def read(self, data: bytes | msgspec.Raw) -> Any:
        value = self._decode(data)
        if self._open:
            unknown = list(islice(self._root.unknown(msgspec.json.decode(data), ()), schemas.MAX_PROBLEMS))
            if unknown:
                raise DoesNotFit(unknown)
        return value

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        return self._decode(data)

    def validate_output(self, value: Any) -> bytes:
        data = _encode(value)
        if type(value) is self._plain:
            return data
        try:
            self._decode(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise Invalid(self.problems(data, error, "output")) from None
        return data

    def refusal(self, error: Exception) -> list[Problem]:
        return error.problems if isinstance(error, DoesNotFit) else super().refusal(error)


class ComposedAdapter(GraphAdapter):
    """The node graph reads the type from plain JSON values."""

    def __init__(self, tp: Any, root: TypeNode) -> None:
        super().__init__(tp, root)
        self._names = root.has_named_tuples()

    def encode(self, value: Any) -> bytes:
        return _encode(with_names(value) if self._names else value)

    def read(self, data: bytes | msgspec.Raw) -> Any:
        return self._convert(data, closed=True)

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        return self._convert(data, closed=False)

    def _convert(self, data: bytes | msgspec.Raw, *, closed: bool) -> Any:
        plain = msgspec.json.decode(data)  # kept until the end: its parts are known by their identity
        return self._root.convert(plain, NodeReading(closed))
