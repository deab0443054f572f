"""Warnings about features that the specification is about to remove."""

from __future__ import annotations

import sys
import warnings

from toolwire.protocol.revisions import MODERN

_warned: set[str] = set()


def warn_deprecated(feature: str) -> None:
    """SEP-2577: warn, once in a process, that a feature is deprecated: roots, sampling or logging."""
    if feature in _warned:
        return
    _warned.add(feature)
    # The warning belongs to the line that asked: the default filters show it only for the user's own code.
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("toolwire."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        f"{feature} is deprecated since protocol revision {MODERN} and may be removed from 2027-07-28 on",
        DeprecationWarning,
        stacklevel=depth,
    )
