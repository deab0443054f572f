"""The agreement on a revision between two peers, and the terms on which each request is then served.

What only a client needs stands in `client` and `negotiation`.
"""

from __future__ import annotations

from toolwire.protocol.lifecycle.server import Declare, Era, ServerLifecycle, missing_extensions
from toolwire.protocol.lifecycle.terms import SUPPORTED, Incoming, Offer, Unanswerable, decode_params, decoder

__all__ = [
    "SUPPORTED",
    "Declare",
    "Era",
    "Incoming",
    "Offer",
    "ServerLifecycle",
    "Unanswerable",
    "decode_params",
    "decoder",
    "missing_extensions",
]
