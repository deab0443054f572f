"""Compiles what all workers of a full run import, each of them a part: in a fresh clone every one would compile it all.

Pytest rewrites the assertions of the tests before they are compiled, and those of the package, which is a plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).resolve().parent.parent


def find_files(root: Path = ROOT) -> list[Path]:
    """Return the files that pytest rewrites, in an order that is the same for all workers."""
    package = [path for path in root.glob("src/**/*.py") if "_templates" not in path.parts]
    return sorted([*package, *root.glob("tests/**/test_*.py")])


def compile_files(config: pytest.Config, files: Sequence[Path]) -> list[Path]:
    """Rewrite and compile the files that have changed; return them."""
    changed = []
    for file in files:
        folder = rewrite.get_cache_dir(file)
        kept = folder / (file.stem + rewrite.PYC_TAIL)
        # The time says in a moment that nothing has changed; after a checkout only the content does.
        if _is_newer(kept, file) or rewrite._read_pyc(file, kept) is not None:
            continue
        if not rewrite.try_makedirs(folder):
            return changed  # Nothing can be written here; pytest does without.
        digest, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, kept)
        changed.append(file)
    return changed


def _is_newer(kept: Path, file: Path) -> bool:
    try:
        return kept.stat().st_mtime > file.stat().st_mtime
    except OSError:
        return False
