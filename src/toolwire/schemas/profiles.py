"""The names of the ways in which input schemas are published; `vendor_schemas` does it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

#: `portable`: a member that may be left out is `T`. `nullable`: it is `T or null`, for libraries that make every member
#: required and then need a value that says "left out".
Profile: TypeAlias = Literal["portable", "nullable"]
PROFILES: Final[tuple[Profile, ...]] = ("portable", "nullable")
