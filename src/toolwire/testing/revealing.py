"""What an answer must not show of the inside of a server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

_TRACE: Final = re.compile(r"Traceback \(most recent call last\)|File \"[^\"\n]+\", line \d+")
_OBJECT: Final = re.compile(r"<[\w.]+ object at 0x[0-9a-fA-F]+>")


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a JSON value, the names of members among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_in(member)


def revealed(texts: list[str], *, is_error: bool, secrets: Iterable[str] = (), sent: str = "") -> str | None:
    """What an answer reveals, in words; None when that is nothing. `sent` is what the caller knows anyway.

    A good answer may name folders and objects, if that is what was asked for; an error may not.
    """
    for secret in secrets:
        if any(secret in text for text in texts):
            return f"a secret ({secret[:3]}…)"
    for text in texts:
        if _TRACE.search(text):
            return "a traceback"
        if is_error and _OBJECT.search(text):
            return "an object of the server"
    own = [folder for folder in _own_folders() if is_error and folder not in sent]
    return next((f"a folder of this machine ({folder})" for folder in own for text in texts if folder in text), None)


def _own_folders() -> set[str]:
    """Those that programs run in; the root itself would be found everywhere."""
    folders = {Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent, Path.home()}
    return {str(folder) for folder in folders if len(folder.parts) > 2}
