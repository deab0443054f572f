"""Policies: who may do what, how often and for how long."""

from __future__ import annotations

from toolwire.server.policy import rules
from toolwire.server.policy.concurrency import Slots
from toolwire.server.policy.policy import Call, Policy
from toolwire.server.policy.rates import Rate

__all__ = ["Call", "Policy", "Rate", "Slots", "rules"]
