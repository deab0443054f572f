"""The definitions of tools as somebody approves them, and how a later one differs."""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.protocol import types as t

#: The definition of a tool, member by member.
Definition: TypeAlias = dict[str, Any]

_SHOWN: Final = 200


class Change(Struct, frozen=True):
    """A change of one member of a tool's definition. None stands for a member that does not exist."""

    tool: str
    member: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{shown(self.tool)}: {shown(self.member)[1:-1]} was {shown(self.before)} and is {shown(self.after)}"


def definition_of(tool: t.Tool) -> Definition:
    """Return the members of a definition that somebody approves."""
    members: Definition = msgspec.json.decode(t.encode(tool))
    # Neither people nor models see `_meta`, and servers put values there that change with every answer.
    members.pop("_meta", None)
    return members


def changes(name: str, before: Definition, after: Definition) -> list[Change]:
    """Return how two definitions of a tool differ."""
    return [
        Change(name, member, before.get(member), after.get(member))
        for member in sorted(before.keys() | after.keys())
        if before.get(member) != after.get(member)
    ]


def digest_of(definition: Definition) -> str:
    """Return a short text that no other definition has."""
    return hashlib.sha256(msgspec.json.encode(definition, order="sorted")).hexdigest()[:16]


def shown(value: Any) -> str:
    """Write a value short and on one line, because the server that is doubted chose it."""
    if value is None:
        return "not there"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
