"""Servers behind a server: one address in front of many servers, whichever revision each of them speaks."""

from __future__ import annotations

from toolwire.gateway.gateway import Back, Gateway
from toolwire.gateway.remote_server import RemoteServer

__all__ = ["Back", "Gateway", "RemoteServer"]
