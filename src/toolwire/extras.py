"""Optional packages (extras), imported when needed, with a clear error if missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolwire.base_errors import ServerError


class MissingExtra(ServerError):
    """A feature needs a package that is not installed.

    The text is one line with the command that installs it.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'toolwire[{extra}]'")


def require(module: str, *, extra: str, what: str, package: str | None = None) -> Any:
    """Import and return a module; raise `MissingExtra` if its package is not installed.

    `package` is the name of the package where the module has another name.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(what, package or error.name or module, extra) from None
