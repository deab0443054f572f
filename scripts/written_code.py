"""Writes the code of a large API (`toolwire new --from`), and runs mypy --strict and the test of the project.

`make corpus` does this for the issues and pull requests of GitHub.

    python scripts/written_code.py .corpus/@octokit/openapi/generated/api.github.com.json --tags issues pulls
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(__file__).resolve().parents[1] / ".mypy_cache" / "written"


def main() -> int:
    source, *options = sys.argv[1:]
    python = [sys.executable, "-m"]
    with TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        steps = {
            "written": [*python, "toolwire", "new", str(project), "--from", source, *options],
            "types": [*python, "mypy", "--strict", "--cache-dir", str(CACHE), "."],
            "its own test": [*python, "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        }
        for step, command in steps.items():
            began = time.monotonic()
            done = subprocess.run(command, cwd=project if project.exists() else None, capture_output=True, text=True)
            if done.returncode:
                print(f"{step}: failed\n{done.stdout[-4_000:]}{done.stderr[-2_000:]}")
                return 1
            print(f"{step}: {time.monotonic() - began:.1f} s")
        lines = (project / "server.py").read_text(encoding="utf-8").count("\n")
        print(f"{lines:,} lines of code")
    return 0


if __name__ == "__main__":
    sys.exit(main())
