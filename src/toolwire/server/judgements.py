"""Judgements: the scopes, policies and tool of an accepted call, kept with its results."""

from __future__ import annotations

from msgspec import Struct


class Asked(Struct, array_like=True, frozen=True):
    """Scopes that a server on a way asks for, and how many of the servers up to it imply scopes."""

    scopes: tuple[str, ...]
    depth: int


class Identity(Struct, array_like=True, frozen=True):
    """The identity of a component, the same on every replica."""

    kind: str
    name: str
    way: tuple[tuple[str, str], ...]
    """The prefix and the name of each mounted server on the way."""


class MaskPattern(Struct, array_like=True, frozen=True):
    """A pattern that policies take out of answers."""

    pattern: str
    flags: int


class Judgement(Struct, array_like=True, frozen=True):
    """The demands that a caller fulfilled and the policies of a call, in a form that is stored with what it made."""

    scopes: tuple[Asked, ...] = ()
    """A caller needs all of each."""
    audiences: tuple[Asked, ...] = ()
    """A caller needs one of each."""
    picked: tuple[Identity, ...] = ()
    """The components whose functions picked the caller."""
    masks: tuple[MaskPattern, ...] = ()
    """The masks of all policies on the way."""
    result: int | None = None
    """The bytes that an answer may have."""
    tool: Identity | None = None
    """The tool that was called."""
