"""The program's handlers of an extension's notifications."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.callbacks import Callbacks
from toolwire.client.tools import adapter_of
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.methods import METHODS, Method

log: logging.Logger = logging.getLogger("toolwire.client")

OnNotification: TypeAlias = Callable[[Any], Any]

_LISTEN: Final = "client.listen()"
#: Notifications of the protocol, and what tells a program of them.
_OF_THE_PROTOCOL: Final = {
    "notifications/message": "on_log=",
    "notifications/progress": "on_progress=",
    "notifications/tools/list_changed": _LISTEN,
    "notifications/prompts/list_changed": _LISTEN,
    "notifications/resources/list_changed": _LISTEN,
    "notifications/resources/updated": _LISTEN,
    "notifications/subscriptions/acknowledged": "Subscription.accepted",
    "notifications/elicitation/complete": "Elicitation(completed=)",
}
_FROM_SERVERS: Final = frozenset(row.name for row in METHODS if row.kind == "notification" and row.sender != "client")


class _Handler(Struct, frozen=True):
    callback: OnNotification
    params: Any


class NotificationHandlers:
    """The handlers of one client by method, in the order in which they were added."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[_Handler]] = {}

    def add(self, method: str, callback: OnNotification, params: Any) -> None:
        """Add a handler. Raise `ValueError` for a notification that the program is told of in another way."""
        if method in _OF_THE_PROTOCOL:
            raise ValueError(f"{method} belongs to the protocol: use {_OF_THE_PROTOCOL[method]}")
        if method in {row.name for row in METHODS} - _FROM_SERVERS:
            raise ValueError(f"{method} is no notification of a server")
        if not callable(callback):
            raise TypeError(f"a handler of {method} is a function (params), not {type(callback).__name__}")
        if params is not None and not _is_wire(params):
            adapter_of(params)  # Raises for a type that cannot be read.
        self._handlers.setdefault(method, []).append(_Handler(callback, params))

    def __contains__(self, method: str) -> bool:
        return method in self._handlers

    def call(self, callbacks: Callbacks, method: str, raw: Raw | UnsetType) -> None:
        """Call the handlers of a notification. One whose type does not fit the params is not called."""
        for handler in self._handlers.get(method, ()):
            try:
                params = _read(raw, handler.params)
            except (ToolwireError, msgspec.DecodeError, RecursionError, ValueError) as error:
                log.warning("the params of %s cannot be read, so that a handler is not called: %s", method, error)
                continue
            callbacks.call(handler.callback, params, size=0 if raw is UNSET else len(raw))


def extension_row(method: str) -> Method:
    """Return the row of an extension's notification, whose params are open."""
    return Method(name=method, kind="notification", sender="server", params=t.NotificationParams)


def _is_wire(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, t.Wire)


def _read(raw: Raw | UnsetType, type_: Any) -> Any:
    whole = Raw(b"{}") if raw is UNSET else raw
    if type_ is None:
        return msgspec.json.decode(whole)
    return t.decode(type_, whole) if _is_wire(type_) else adapter_of(type_).decode_output(whole)
