"""Two real peers back to back, with no transport and no handlers: what one sends, the other receives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.classifier import Send
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.lifecycle import SUPPORTED, Incoming, ServerLifecycle
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.methods import Method
from toolwire.protocol.peer import Answer, Event, Peer
from toolwire.protocol.revisions import MODERN

SERVER_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
CLIENT_CAPABILITIES: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {},
    "org.example/unknown": {"kept": [1]},
}


class Offer:
    """A server that says this about itself."""

    def __init__(
        self, capabilities: dict[str, Any] | None = None, *, extensions: Mapping[str, Method] | None = None
    ) -> None:
        self.implementation = t.Implementation("offer", "3", title="An offer")
        self.instructions: str | UnsetType = "Ask nicely."
        self.declared = SERVER_CAPABILITIES if capabilities is None else capabilities
        self.extensions = dict(extensions or {})

    def capabilities(self, revision: str) -> dict[str, Any]:
        return self.declared

    def extension_method(self, method: str) -> Method | None:
        return self.extensions.get(method)

    def repeat(self, text: str) -> str:
        return text


def meta(**changes: Any) -> dict[str, Any]:
    """The `_meta` of a modern request; a keyword replaces a member, None takes it away."""
    names = {
        "version": t.PROTOCOL_VERSION_KEY,
        "capabilities": t.CLIENT_CAPABILITIES_KEY,
        "info": t.CLIENT_INFO_KEY,
        "log_level": t.LOG_LEVEL_KEY,
        "token": "progressToken",
    }
    values: dict[str, Any] = {
        t.PROTOCOL_VERSION_KEY: MODERN,
        t.CLIENT_CAPABILITIES_KEY: CLIENT_CAPABILITIES,
        t.CLIENT_INFO_KEY: {"name": "someone", "version": "1"},
    }
    values |= {names[name]: value for name, value in changes.items()}
    return {name: value for name, value in values.items() if value is not None}


def modern(**params: Any) -> dict[str, Any]:
    return {"_meta": meta(), **params}


def initialize(revision: str, **changes: Any) -> dict[str, Any]:
    identity = {"name": "someone", "version": "1"}
    return {"protocolVersion": revision, "capabilities": CLIENT_CAPABILITIES, "clientInfo": identity} | changes


class Pair:
    """A client's peer and a server's; `cross` carries a frame over and brings back what is owed at once."""

    def __init__(self, offer: Offer | None = None, revisions: Sequence[str] = SUPPORTED, **limits: int) -> None:
        self.terms = ServerLifecycle(offer or Offer(), revisions)
        self.server = Peer(self.terms, **limits)
        self.client_terms = ClientLifecycle(lambda revision: CLIENT_CAPABILITIES)
        self.client = Peer(self.client_terms)
        #: Frames that either side owed the other at once, as JSON.
        self.sent: list[Any] = []

    def to_server(self, frame: bytes | Any) -> list[Event]:
        """The events at the server; its immediate answers have reached the client."""
        return self._cross(frame, self.server, self.client)

    def to_client(self, frame: bytes | Any) -> list[Event]:
        return self._cross(frame, self.client, self.server)

    def _cross(self, frame: bytes | Any, receiver: Peer, sender: Peer) -> list[Event]:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        events: list[Event] = []
        for event in receiver.receive(data):
            if isinstance(event, Send):
                self.sent.append(json.loads(event.data))
                events += sender.receive(event.data)
            else:
                events.append(event)
        return events

    def ask(self, method: str, params: Any = UNSET, *, id: int | str | None = None) -> list[Event]:
        """A request of the client's, with its id as the waiter."""
        identifier = self.client.next_id() if id is None else id
        return self.to_server(self.client.request(identifier, method, params, f"waiter {identifier}"))

    def served(self, method: str, params: Any = UNSET, *, id: int | str | None = None) -> Incoming:
        """A request that reaches a handler."""
        (event,) = self.ask(method, params, id=id)
        assert isinstance(event, Incoming), event
        return event

    def answered(self, method: str, params: Any = UNSET, *, id: int | str | None = None) -> Any:
        """A request that the protocol itself answers with a result."""
        (event,) = self.ask(method, params, id=id)
        assert isinstance(event, Answer), event
        assert event.result is not None
        assert event.error is None
        return msgspec.json.decode(event.result)

    def refused(self, method: str, params: Any = UNSET, *, id: int | str | None = None) -> ProtocolError:
        """A request that is refused."""
        (event,) = self.ask(method, params, id=id)
        assert isinstance(event, Answer), event
        assert event.error is not None
        assert event.result is None
        return event.error

    def notify_server(self, method: str, params: Any = UNSET) -> list[Event]:
        return self.to_server(self.client.notify(method, params))

    def notify_client(self, method: str, params: Any = UNSET) -> list[Event]:
        return self.to_client(self.server.notify(method, params))


def opened(revision: str, offer: Offer | None = None, **limits: int) -> Pair:
    """A pair that has agreed on a revision."""
    pair = Pair(offer, **limits)
    if revision != MODERN:
        pair.answered("initialize", initialize(revision), id="handshake")
        pair.notify_server("notifications/initialized")
        pair.sent.clear()
    pair.client_terms.revision = revision
    return pair
