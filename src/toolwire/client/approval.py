"""Approval of calls: a person, or a program for them, sees each call before it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from toolwire.client.errors import Denied
from toolwire.protocol import types as t

Arguments: TypeAlias = Mapping[str, Any]
#: Who makes a call: "app" is a view of a tool (SEP-1865), None the program itself.
Via: TypeAlias = Literal["app"] | None


class ToolCall(Struct, frozen=True):
    """A call that is about to be made, as `approve=` sees it."""

    name: str
    arguments: Arguments
    tool: t.Tool | None
    """The definition, as the server listed it; None for a tool that it does not list."""
    via: Via = None
    """The maker of the call: "app" for a view, which is a program of the server, and None for this program."""
    server: str | None = None
    """The name of the server in a toolset or a client of several; None where the client has one server."""

    @property
    def annotations(self) -> t.ToolAnnotations:
        """The annotations of the tool. The server may claim anything here: trust it as far as you trust the server."""
        annotations = UNSET if self.tool is None else self.tool.annotations
        return t.ToolAnnotations() if annotations is UNSET else annotations


#: True makes the call. False, or a text with the reason, denies it. A mapping makes it with these arguments instead.
Verdict: TypeAlias = bool | str | Arguments
Approve: TypeAlias = Callable[[ToolCall], Verdict | Awaitable[Verdict]]


async def approved(approve: Approve, call: ToolCall, arguments: Arguments | None) -> Arguments | None:
    """Return the arguments to call with. Raise `Denied` for every verdict but True and arguments."""
    verdict = approve(call)
    if isawaitable(verdict):
        verdict = await verdict
    if verdict is True:
        return arguments
    if isinstance(verdict, Mapping):
        return verdict
    why = f": {verdict}" if isinstance(verdict, str) and verdict else ""
    raise Denied(f"The call of {call.name!r} was denied{why}")
