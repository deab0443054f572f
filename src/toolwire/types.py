"""The wire types and the features of the revisions, under one public name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolwire.protocol import types as _wire
from toolwire.protocol.revisions import FEATURES as FEATURES
from toolwire.protocol.revisions import REVISIONS as REVISIONS
from toolwire.protocol.revisions import is_supported as is_supported
from toolwire.protocol.revisions import negotiate_version as negotiate_version
from toolwire.protocol.revisions import supports as supports
from toolwire.protocol.types import *  # noqa: F403

if not TYPE_CHECKING:  # As in the module of the wire types.
    __all__ = ["FEATURES", "REVISIONS", "is_supported", "negotiate_version", "supports"]
    __all__ += _wire.__all__
