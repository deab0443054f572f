"""Where the official schemas and example messages are, and how to read them.

They are not part of the repository. `TOOLWIRE_SPEC` names the folder that has them; tests that need it skip without.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("TOOLWIRE_SPEC") or ROOT.parent / "shared" / "reference" / "schema")

needs_specification = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no official schemas at {FOLDER} (set TOOLWIRE_SPEC to the folder that has them)"
)


@lru_cache
def definitions(revision: str) -> dict[str, Any]:
    """The named definitions of a revision's official schema."""
    schema = json.loads((FOLDER / f"{revision}.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = schema.get("$defs") or schema["definitions"]
    return found


def properties(definition: dict[str, Any], revision: str) -> set[str] | None:
    """The members an object definition names, its parts and alternatives included; None for what is no object."""
    if "$ref" in definition:
        return properties(definitions(revision)[definition["$ref"].rpartition("/")[2]], revision)
    parts = [
        found
        for part in (*definition.get("allOf", ()), *definition.get("anyOf", ()))
        if (found := properties(part, revision)) is not None
    ]
    if "properties" in definition:
        parts.append(set(definition["properties"]))
    return set().union(*parts) if parts else None


def examples() -> list[Path]:
    """The official example messages of 2026-07-28; the folder of a file is the name of its type."""
    return sorted((FOLDER / "examples-2026-07-28").glob("*/*.json"))
