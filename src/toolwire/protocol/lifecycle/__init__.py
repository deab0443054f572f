"""The agreement on a revision between two peers, and the terms on which each request is then served."""

from __future__ import annotations

from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.lifecycle.negotiation import (
    Agreement,
    Ask,
    Negotiation,
    NoCommonRevision,
    Outcome,
    is_modern_answer,
    negotiate,
)
from toolwire.protocol.lifecycle.server import Era, ServerLifecycle
from toolwire.protocol.lifecycle.terms import SUPPORTED, Incoming, Offer, Unanswerable, decode_params, decoder

__all__ = [
    "SUPPORTED",
    "Agreement",
    "Ask",
    "ClientLifecycle",
    "Era",
    "Incoming",
    "Negotiation",
    "NoCommonRevision",
    "Offer",
    "Outcome",
    "ServerLifecycle",
    "Unanswerable",
    "decode_params",
    "decoder",
    "is_modern_answer",
    "negotiate",
]
