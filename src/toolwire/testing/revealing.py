"""What an answer must not show of the inside of a server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

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


class Revealed(NamedTuple):
    """Something of the inside, and the text that shows it."""

    what: str
    text: str


def revealed(texts: list[str], *, is_error: bool, secrets: Iterable[str] = (), sent: str = "") -> Revealed | None:
    """The first thing that an answer reveals, if any. `sent` is what the caller knows anyway.

    A good answer may name folders and objects, if that is what was asked for; an error may not.
    """
    signs = {f"a secret ({secret[:3]}…)": re.compile(re.escape(secret)) for secret in secrets}
    signs["a traceback"] = _TRACE
    if is_error:
        signs["an object of the server"] = _OBJECT
        own = (folder for folder in _own_folders() if folder not in sent)
        signs |= {f"a folder of this machine ({folder})": re.compile(re.escape(folder)) for folder in own}
    found = (Revealed(what, text) for what, sign in signs.items() for text in texts if sign.search(text))
    return next(found, None)


def _own_folders() -> set[str]:
    """Those that programs run in; the root itself would be found everywhere."""
    folders = {Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent, Path.home()}
    return {str(folder) for folder in folders if len(folder.parts) > 2}
