"""Packages that only some features need: imported when the feature is used, missed in one line that says what to do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolwire.base_errors import ServerError


class MissingExtra(ServerError):
    """A package is not installed that a feature needs; the text is one line with the command that installs it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'toolwire[{extra}]'")


def require(module: str, *, extra: str, what: str) -> Any:
    """The module; `MissingExtra` when its package is not there."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(what, error.name or module, extra) from None
