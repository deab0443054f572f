"""The definitions of tools that approvals cover, and how a later definition differs."""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.protocol import types as t
from toolwire.protocol.apps import VIEW_KEYS

#: The definition of a tool, member by member.
Definition: TypeAlias = dict[str, Any]

_SHOWN: Final = 200
# Namespaces of `_meta` that hosts read: SEP-1865 before its keys moved into `ui`, and ChatGPT.
_HOST_PREFIXES: Final = ("ui/", "openai/")


class Change(Struct, frozen=True):
    """A change of one member of a tool's definition. None stands for a member that does not exist."""

    tool: str
    member: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{shown(self.tool)}: {shown(self.member)[1:-1]} was {shown(self.before)} and is {shown(self.after)}"


def definition_of(tool: t.Tool) -> Definition:
    """Return the members of a definition that an approval covers.

    Of `_meta` these are the members that hosts act on: the view of a tool and its audience. The other members are seen
    by neither people nor models, and servers put values there that change with every answer.
    """
    members: Definition = msgspec.json.decode(t.encode(tool))
    meta = members.get("_meta")
    members["_meta"] = (
        {key: value for key, value in meta.items() if key in VIEW_KEYS or key.startswith(_HOST_PREFIXES)}
        if isinstance(meta, dict)
        else {}
    )
    return members


def complete_definition(approved: Definition, listed: Definition) -> Definition:
    """Return an approved definition with the members that approvals of earlier versions did not cover.

    They are approved as they are listed now, because a definition without `_meta` says nothing about a view.
    """
    return approved if "_meta" in approved or "_meta" not in listed else {**approved, "_meta": listed["_meta"]}


def changes(name: str, before: Definition, after: Definition) -> list[Change]:
    """Return how two definitions of a tool differ."""
    before = complete_definition(before, after)
    return [
        Change(name, member, before.get(member), after.get(member))
        for member in sorted(before.keys() | after.keys())
        if not is_same_json(before.get(member), after.get(member))
    ]


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same. Python takes 1 and true for equal."""
    return one is other or (one == other and _canonical(one) == _canonical(other))


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def digest_of(definition: Definition) -> str:
    """Return a short text that no other definition has."""
    return hashlib.sha256(_canonical(definition)).hexdigest()[:16]


def shown(value: Any) -> str:
    """Write a value short and on one line, because the server that is doubted chose it."""
    if value is None:
        return "not there"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
