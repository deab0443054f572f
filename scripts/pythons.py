"""Finds the supported versions of Python on this machine.

    python scripts/pythons.py          print one line for each version: the version, and its program or "-"

A version is supported when a classifier in pyproject.toml names it. A program is looked for on PATH and in the folders
of pyenv.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
# A program has to be of the version, and to have the parts of the standard library that its packager may have left out.
# A shim of pyenv stands for versions that are not installed, too: it fails.
PROBE = "import ensurepip, sqlite3, ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"


def supported(classifiers: Iterable[str]) -> list[str]:
    """Return the versions that the classifiers name, in their order."""
    return [match[1] for each in classifiers if (match := CLASSIFIER.fullmatch(each))]


def declared() -> list[str]:
    """Return the versions that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return supported(project["classifiers"])


def candidates(version: str, path: str, pyenv: Path) -> Iterator[Path]:
    """Yield the files that may be a Python of this version: those on the path first, then those of pyenv."""
    for folder in path.split(os.pathsep):
        program = Path(folder) / f"python{version}"
        if folder and program.is_file():
            yield program
    yield from sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))


def find(version: str) -> Path | None:
    """Return the first Python of this version that works."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for program in candidates(version, os.environ.get("PATH", ""), pyenv):
        done = subprocess.run([program, "-c", PROBE], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return program
    return None


def main() -> int:
    for version in declared():
        print(version, find(version) or "-")
    return 0


if __name__ == "__main__":
    sys.exit(main())
