"""The environment of a server that a client starts.

The environment of a program holds its secrets: cloud keys, tokens of CI, passwords of databases. A server is somebody
else's code, so it gets only the variables that any program needs to run, and those that it is given by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

#: The user, the paths of programs, the language and time zone, the folders for each kind of file.
POSIX: Final = frozenset(
    {
        "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER",
        "LANG", "LANGUAGE", "TZ", "TMPDIR",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
        "SSL_CERT_DIR", "SSL_CERT_FILE",
    }
)  # fmt: skip
#: The same for Windows. Nothing starts there without SYSTEMROOT, and no batch file without COMSPEC and PATHEXT.
WINDOWS: Final = frozenset(
    {
        "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE",
        "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
        "COMSPEC", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "TMP", "TZ", "WINDIR",
        "SSL_CERT_DIR", "SSL_CERT_FILE",
    }
)  # fmt: skip
# `os.environ` has names in upper case on Windows.
_INHERITED: Final = WINDOWS if sys.platform == "win32" else POSIX
_LOCALE: Final = "LC_"
_OURS: Final = "TOOLWIRE_"


def child_environment(added: Mapping[str, str] | None = None, *, inherit_all: bool = False) -> dict[str, str]:
    """Make the environment of a child: the variables that it inherits, and `added` on top.

    With `inherit_all` it inherits everything but the variables of Toolwire itself, which hold keys. The variables in
    `added` may have any name.
    """
    kept = {name: value for name, value in os.environ.items() if _is_inherited(name, value, inherit_all)}
    return {**kept, **(added or {})}


def _is_inherited(name: str, value: str, inherit_all: bool) -> bool:
    if name.upper().startswith(_OURS):
        return False
    if inherit_all:
        return True
    # An old shell takes a value that begins like this for a function, and runs the code behind it.
    return (name in _INHERITED or name.startswith(_LOCALE)) and not value.startswith("()")
