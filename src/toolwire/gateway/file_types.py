"""The base of all tables of the file, and the types of values that are more than texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any, Final, TypeAlias

from msgspec import NODEFAULT, Meta, Struct

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
    return {name: value for name, default in _defaults(type(table)) if (value := getattr(table, name)) != default()}


@cache
def _defaults(cls: type[Struct]) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Return what makes the default of each member. The types are not looked at: some are not loaded."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    needed = (NODEFAULT,) * (len(names) - len(defaults))
    makers = (getattr(each, "factory", None) or partial(_same, each) for each in (*needed, *defaults))
    return tuple(zip(names, makers, strict=True))


def _same(value: Any) -> Any:
    return value
