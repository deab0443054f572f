"""Texts that attackers send, and signs that any of them worked.

Some texts ask for something harmless: to read a file that was made for this purpose, or to multiply two numbers.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

# An answer with this number shows that the server evaluated the text.
_SUM: Final = "9973*9967"
_WORKED_OUT: Final = str(9973 * 9967)


class Bait(NamedTuple):
    """A file that no tool should read."""

    path: Path
    content: str

    def find_proof(self, texts: list[str]) -> str | None:
        """Return what an answer proves about the server; None if it proves nothing."""
        if any(self.content in text for text in texts):
            return "gave out a file that it should not read"
        if any(_WORKED_OUT in text for text in texts):
            return "evaluated the text of the caller"
        return None


@contextmanager
def bait() -> Iterator[Bait]:
    with tempfile.TemporaryDirectory() as folder:
        made = Bait(Path(folder).resolve() / "bait.txt", secrets.token_hex(16))
        made.path.write_text(made.content, encoding="utf-8")
        yield made


def hostile_texts(bait: Path) -> dict[str, str]:
    """Return the texts by kind.

    `bait` is the file that some of them try to reach.
    """
    below = bait.relative_to(bait.anchor).as_posix()
    up = "../" * 24
    return {
        "a path out of its folder": f"{up}{below}",
        "a path out of its folder, encoded": f"{up}{below}".replace("/", "%2f"),
        "a path out of its folder, with backslashes": f"{up}{below}".replace("/", "\\"),
        "an absolute path": str(bait),
        "an absolute path that ends early": f"{bait}\0.txt",
        "a file address": bait.as_uri(),
        "a shell command": f"; echo $(({_SUM}))",
        "a shell substitution": f"$(echo $(({_SUM})))`echo $(({_SUM}))`",
        "an option": "--help",
        "a template": f"{{{{{_SUM}}}}}${{{_SUM}}}<%={_SUM}%>#{{{_SUM}}}",
        "an expression": _SUM,
        "SQL": f"' UNION SELECT {_SUM} -- ",
        "SQL for a number": f"0 UNION SELECT {_SUM} -- ",
        "quotes": "'\"`\\;--",
        "a format string": "%s%n%d{0}{x.__class__.__mro__}",
        "a query for everything": "*)(|(cn=*))%_.*",
        "an entity": f'<!DOCTYPE a [<!ENTITY b SYSTEM "{bait.as_uri()}">]><a>&b;</a>',
        "HTML": "<img src=x onerror=alert(1)><script>alert(1)</script>",
        "headers": "a\r\nset-cookie: a=b\r\n\r\nb",
        "terminal sequences": "\x1b]0;title\x07\x1b[2J\x1b[1;31mred",
        "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85",
        "NUL": "a\0b",
        "directions": "\u202eabc\u2066\ufeff\u200b",
        "characters outside the plane": "𝄞👩‍👩‍👧\u0301" * 50,
        "many digits": "9" * 5_000,
        "many words": "a " * 5_000,
        "many brackets": "[" * 20_000,
        "a strain on patterns": "a" * 5_000 + "!",
        "a long text": "x" * 200_000,
    }
