"""The wire types and what the revisions of the protocol can do, under one public name."""

from __future__ import annotations

from toolwire.protocol import types as _wire
from toolwire.protocol.revisions import FEATURES, REVISIONS, is_supported, supports
from toolwire.protocol.types import *  # noqa: F403

__all__ = ["FEATURES", "REVISIONS", "is_supported", "supports"]
__all__ += _wire.__all__
