"""Python blocks of the README and of the documentation. Run as a script, this has mypy check them as a user's code."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pages() -> list[Path]:
    """Return the pages for users. Pages of decisions are for people who work on Toolwire."""
    return [
        ROOT / "README.md",
        *sorted(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts),
    ]


def blocks_of(page: Path) -> dict[str, str]:
    """Return the blocks of a page, each under a name made of the page and its number there."""
    name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return {f"{name}_{number}": block for number, block in enumerate(found, 1)}


def python_blocks() -> dict[str, str]:
    """Return the blocks of all pages."""
    return {name: block for page in pages() for name, block in blocks_of(page).items()}


# Libraries that tell no type checker about their types.
UNTYPED = "[mypy-celery.*,django.*,mangum.*]\nignore_missing_imports = True\n"
# Its decorators are untyped, too.
UNTYPED += "[mypy-docs_guides_celery_2]\ndisallow_untyped_decorators = False\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, block in python_blocks().items():
            (Path(folder) / f"{name}.py").write_text(block, encoding="utf-8")
        (Path(folder) / "mypy.ini").write_text(f"[mypy]\n{UNTYPED}", encoding="utf-8")
        cache = ROOT / ".mypy_cache" / "blocks"
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "."]
        return subprocess.run(command, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
