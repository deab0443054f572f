"""Make the files of new projects from `_templates/`, with placeholders replaced.

The words leave each file valid for its tools, so that they can check it. Python code has `template_count`.

The template of `.gitignore` is `gitignore`: git would obey the other name, and copies may lack hidden files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "_templates"
_WORD: Final = re.compile(r"\btemplate[-_](name|skill|version|count|title|modules)\b")


def read_template(template: str, names: Iterable[str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a template by name, with the values filled in."""
    folder = _FOLDER / template
    texts = {name: (folder / name.removeprefix(".")).read_text(encoding="utf-8") for name in names}
    return {fill_words(name, values): fill_words(text, values) for name, text in texts.items()}


def fill_words(text: str, values: Mapping[str, str]) -> str:
    """Return a text of a template with values in place of its words."""
    return _WORD.sub(lambda found: values[found[1]], text)
