"""Where the official schemas and example messages are, and what stands in for them where they are missing.

They are not part of the repository. `TOOLWIRE_SPEC` names the folder that has them: the folder `schema` of the
specification's repository (`<revision>/schema.json`, `2026-07-28/examples`), or one with `<revision>.json` and
`examples-2026-07-28`. Without it, messages are judged by `tests.foreign_reader`.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolwire.protocol.revisions import REVISIONS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("TOOLWIRE_SPEC") or ROOT.parent / "shared" / "reference" / "schema")

OFFICIAL = FOLDER.is_dir()
LEFT_OUT = (
    f"no official schemas at {FOLDER}: mcp-types judges instead, without the members of 2024-11-05 to 2025-06-18 and "
    "without the official examples; set TOOLWIRE_SPEC to the folder `schema` of the specification's repository"
)


def schema_file(revision: str) -> Path:
    """The official schema of a revision."""
    flat = FOLDER / f"{revision}.json"
    return flat if flat.exists() else FOLDER / revision / "schema.json"


#: The revisions whose shapes the foreign reader knows exactly.
EXACT = ("2025-11-25", "2026-07-28")


@lru_cache
def definitions(revision: str) -> dict[str, Any]:
    """The named definitions of a revision: the official ones, or those of the foreign reader for what it knows."""
    if not OFFICIAL:
        # Imported here, as in `schema_check`, because every process of a run imports this module.
        from tests import foreign_reader

        return foreign_reader.definitions(revision)
    schema = json.loads(schema_file(revision).read_text(encoding="utf-8"))
    found: dict[str, Any] = schema.get("$defs") or schema["definitions"]
    return found


#: The revisions that `definitions` has.
DEFINED = REVISIONS if OFFICIAL else EXACT


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
    flat = FOLDER / "examples-2026-07-28"
    return sorted((flat if flat.is_dir() else FOLDER / "2026-07-28" / "examples").glob("*/*.json"))
