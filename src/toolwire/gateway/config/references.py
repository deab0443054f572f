"""References to values that do not stand in the file: environment variables, and files with secrets.

`"${NAME}"` and `"${NAME:-default}"` in any text, as other programs write it. `{"env": "NAME"}` and `{"file": "path"}`
in the place of a secret.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from toolwire.client.config import expanded_text
from toolwire.redaction import MASK

#: How many bytes a file with a secret may have: a private key has a few KiB.
MAX_SECRET: Final = 64 * 1024
FORMS: Final = frozenset({"env", "file"})
# A shorter value is no secret, and to hide it would spoil the text.
_SHORTEST_HIDDEN: Final = 4


class References:
    """Finds the values that a file refers to, and remembers what it found where."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: list[Path] = []
        """The files that were read, so that they can be watched."""
        self.exposed: list[Path] = []
        """Those of them that others on this machine can read."""
        self._values: set[str] = set()

    def text(self, text: str, where: str) -> str:
        """Return a text with the values of environment variables. Raise `ValueError` for one that is not set."""
        if "${" not in text:
            return text
        found = expanded_text(text, where)
        self._values.add(found)
        return found

    def secret(self, reference: dict[str, Any], where: str) -> str:
        """Return the secret that a reference leads to. Raise `ValueError` if there is none."""
        if len(reference) != 1 or not reference.keys() <= FORMS:
            raise ValueError(f'{where} is a text, {{"env": "NAME"}} or {{"file": "path"}}')
        ((form, name),) = reference.items()
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where} has no name in {form!r}")
        found = self._variable(name, where) if form == "env" else self._file(self.text(name, where), where)
        self._values.add(found)
        return found

    def hidden(self, text: str) -> str:
        """Return a text without the values that were found."""
        for value in sorted(self._values, key=len, reverse=True):
            if len(value) >= _SHORTEST_HIDDEN:
                text = text.replace(value, MASK)
        return text

    def _variable(self, name: str, where: str) -> str:
        value = os.environ.get(name)
        if not value:
            raise ValueError(f"The environment variable {name} is not set, which {where} needs")
        return value

    def _file(self, name: str, where: str) -> str:
        path = self._folder / Path(name).expanduser()
        self.files.append(path)
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read(MAX_SECRET + 1)
            text = data.decode()
        except OSError as error:
            raise ValueError(f"The file {name!r}, which {where} needs, cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"The file {name!r}, which {where} needs, is no text") from None
        if len(data) > MAX_SECRET:
            raise ValueError(f"The file {name!r}, which {where} needs, has more than {MAX_SECRET} bytes")
        # Editors end a file with a newline, and `echo` does.
        secret = text.rstrip("\r\n")
        if not secret:
            raise ValueError(f"The file {name!r}, which {where} needs, is empty")
        if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
            self.exposed.append(path)
        return secret
