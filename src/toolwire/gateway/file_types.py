"""The base of all tables of the file, and the types of values that are more than texts."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, TypeAlias

from msgspec import NODEFAULT, Meta, Struct, structs

#: Marks the type of a secret, in whose place a reference may stand.
SECRET: Final = "io.toolwire/secret"
#: Marks the type of a path. Relative paths belong to the folder of the file.
PATH: Final = "io.toolwire/path"

Secret: TypeAlias = Annotated[str, Meta(extra={SECRET: True})]
FilePath: TypeAlias = Annotated[str, Meta(extra={PATH: True})]
#: The path of a SQLite file, or the address of a store with its password.
StoreAddress: TypeAlias = Annotated[str, Meta(extra={SECRET: True, PATH: True})]


class Table(Struct, kw_only=True, frozen=True):
    """A table of the file. Keys that it does not have are mistakes. Its representation shows no value."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(given(self))})"


def given(table: Struct) -> dict[str, Any]:
    """Return the values of a table that are not the defaults."""
    fields = _read_fields(type(table))
    return {field.name: value for field in fields if (value := getattr(table, field.name)) != _default(field)}


@cache
def _read_fields(cls: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    return structs.fields(cls)


def _default(field: structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
