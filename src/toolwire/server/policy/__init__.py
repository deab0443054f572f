"""Who may do what, how often and for how long: `Policy`, and what enforces it."""

from __future__ import annotations

from toolwire.server.policy.policy import Policy

__all__ = ["Policy"]
