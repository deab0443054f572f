"""The check of a list of texts that a person sets, such as those who are let in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolwire.base_errors import ServerError


def text_list(given: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the texts of a list; raise `ServerError` for one text, and for a mapping.

    A mapping reads like a list of its keys, also of those that it sets to False.
    """
    if isinstance(given, str):
        raise ServerError(f"{option} is a list: write [{given!r}]")
    if isinstance(given, Mapping | bytes):
        raise ServerError(f"{option} is a list of texts, not a {type(given).__name__}")
    return tuple(given)


def texts_of(given: str | Iterable[str], option: str) -> tuple[str, ...]:
    """Return one text, or the texts of a list, as `text_list` does."""
    return (given,) if isinstance(given, str) else text_list(given, option)
