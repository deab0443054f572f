"""A record of calls that cannot be changed unnoticed: `AuditLog`, for servers and for clients."""

from __future__ import annotations

from toolwire.audit.log import AuditLog

__all__ = ["AuditLog"]
