"""What the workers of a full run compile for each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.bytecode import compile_files, find_files


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name in ("src/package/module.py", "src/package/_templates/new.py", "tests/test_it.py", "tests/helper.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def test_it():\n    assert 1 == 1\n", encoding="utf-8")
    return find_files(tmp_path)


def test_what_pytest_rewrites_is_compiled_once(files: list[Path], pytestconfig: pytest.Config) -> None:
    assert [file.name for file in files] == ["module.py", "test_it.py"]
    assert compile_files(pytestconfig, files) == files
    assert compile_files(pytestconfig, files) == []
    kept = [path for file in files for path in (file.parent / "__pycache__").iterdir()]
    assert len(kept) == 2 and all("-pytest-" in path.name for path in kept)


def test_a_file_is_compiled_again_when_its_content_has_changed(files: list[Path], pytestconfig: pytest.Config) -> None:
    compile_files(pytestconfig, files)
    later = files[0].stat().st_mtime + 10
    for file in files:
        os.utime(file, (later, later))
    files[1].write_text("changed = True\n", encoding="utf-8")
    os.utime(files[1], (later, later))
    assert compile_files(pytestconfig, files) == [files[1]]
