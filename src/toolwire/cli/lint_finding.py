"""What the linter found, and how bad it is."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

#: `error`: some client loses the tool or all of them. `warning`: a model will have trouble. `hint`: could be better.
Level: TypeAlias = Literal["error", "warning", "hint"]


class Finding(Struct, frozen=True):
    level: Level
    rule: str
    tool: str
    where: str
    """The argument, or the place in the schema; empty for the tool as a whole."""
    message: str
    vendors: tuple[str, ...] = ()
