"""The client: connect to a server, use it, and answer what it asks."""

from __future__ import annotations

from toolwire.client.client import Client
from toolwire.client.errors import InvalidResponse, Rejected, ResourceNotFound
from toolwire.client.handlers import Accept, Cancel, Decline, Elicitation, Sampling
from toolwire.client.listen import Change, Subscription

__all__ = [
    "Accept",
    "Cancel",
    "Change",
    "Client",
    "Decline",
    "Elicitation",
    "InvalidResponse",
    "Rejected",
    "ResourceNotFound",
    "Sampling",
    "Subscription",
]
