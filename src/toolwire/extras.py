"""Packages that only some features need: imported when the feature is used, missed in one line that says what to do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolwire.protocol.errors import ServerError


def require(module: str, *, extra: str, what: str) -> Any:
    """The module; `ServerError` with the install line when its package is not there."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ServerError(f"{what} needs {error.name or module}: pip install 'toolwire[{extra}]'") from None
