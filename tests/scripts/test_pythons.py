"""The search for the supported versions of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pythons

RUNNING = "{}.{}".format(*sys.version_info[:2])


def program(path: Path, script: str = "exit 1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_classifiers_name_the_versions() -> None:
    classifiers = ["Programming Language :: Python :: 3 :: Only", "Typing :: Typed"]
    classifiers += [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12)]
    assert pythons.supported(classifiers) == ["3.11", "3.12"]


def test_the_running_python_is_declared() -> None:
    assert RUNNING in pythons.declared()


def test_the_path_comes_before_the_folders_of_pyenv(tmp_path: Path) -> None:
    here = program(tmp_path / "bin" / "python3.12")
    pyenv = tmp_path / "pyenv"
    theirs = [program(pyenv / "versions" / version / "bin" / "python") for version in ("3.12.1", "3.12.9")]
    program(pyenv / "versions" / "3.1.2" / "bin" / "python")
    path = os.pathsep.join(["", str(tmp_path / "gone"), str(tmp_path / "bin")])
    assert list(pythons.candidates("3.12", path, pyenv)) == [here, *theirs]
    assert list(pythons.candidates("3.13", path, pyenv)) == []


def test_a_program_that_fails_or_is_another_version_is_passed_over(tmp_path: Path) -> None:
    """A shim fails; a link may lead to any version."""
    shim, wrong, right = (tmp_path / name / f"python{RUNNING}" for name in ("shim", "wrong", "right"))
    program(shim)
    program(wrong, "echo 3.0")
    program(right, f'exec {sys.executable} "$@"')
    environment = os.environ | {"PYENV_ROOT": str(tmp_path / "none")}

    def found(*programs: Path) -> str:
        environment["PATH"] = os.pathsep.join(str(each.parent) for each in programs)
        command = [sys.executable, "-c", f"import pythons; print(pythons.find({RUNNING!r}))"]
        return subprocess.check_output(command, env=environment, cwd=Path(pythons.__file__).parent, text=True).strip()

    assert found(shim, wrong, right) == str(right)
    assert found(shim, wrong) == "None"
