"""The Python blocks of the README and of the documentation; run as a script, it has mypy read them as a user's code."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pages() -> list[Path]:
    """Where users read. Pages of decisions are for those who work on Toolwire."""
    return [
        ROOT / "README.md",
        *sorted(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts),
    ]


def python_blocks() -> dict[str, str]:
    """Each block under a name made of its page and its number there."""
    blocks = {}
    for page in pages():
        name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        blocks |= {f"{name}_{number}": block for number, block in enumerate(found, 1)}
    return blocks


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, block in python_blocks().items():
            (Path(folder) / f"{name}.py").write_text(block, encoding="utf-8")
        cache = ROOT / ".mypy_cache" / "blocks"
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), "."]
        return subprocess.run(command, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
