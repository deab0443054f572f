"""The token that the caller of the current request came with, where a credential is made of it.

It is neither part of the principal nor of the headers, which handlers see and tasks keep.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

SUBJECT_TOKEN: Final[ContextVar[str | None]] = ContextVar("toolwire.subject_token", default=None)
