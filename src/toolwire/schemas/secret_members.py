"""Members of a JSON value that its schema calls secret."""

from __future__ import annotations

from typing import Any, Final

from toolwire.schemas.walking import SAME_VALUE_LIST, listed, mapped, subschemas

# A schema with more parts is not a person's form, and looking further would take time.
_MAX_PARTS: Final = 100_000


def secret_members(schema: Any) -> frozenset[str]:
    """Return the names of properties with `format: password` or `writeOnly`.

    They are found by their position, so that a property named `format` does not count.

    They are looked for by their position, so that a property that is called `format` is none.
    """
    found: set[str] = set()
    waiting = [schema]
    for _ in range(_MAX_PARTS):
        if not waiting:
            break
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        found.update(name for name, inner in mapped(part, ("properties",)) if _is_secret(inner))
        waiting.extend(subschemas(part))
    return frozenset(found)


def _is_secret(schema: Any) -> bool:
    """Return whether a schema is secret, or one of its choices (a password or null)."""
    if not isinstance(schema, dict):
        return False
    choices = (schema, *(each for each in listed(schema, SAME_VALUE_LIST) if isinstance(each, dict)))
    return any(each.get("format") == "password" or each.get("writeOnly") is True for each in choices)
