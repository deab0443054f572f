"""Servers behind a server: one address in front of many servers, whichever revision each of them speaks."""

from __future__ import annotations

from toolwire.gateway.back_health import Breaker, Health
from toolwire.gateway.config import gateway_of
from toolwire.gateway.gateway import Back, Gateway

__all__ = ["Back", "Breaker", "Gateway", "Health", "gateway_of"]
