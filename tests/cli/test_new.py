"""`toolwire new`: a project that runs and passes its own test."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.command import Command

from toolwire.cli import new
from toolwire.cli.lint import findings
from toolwire.cli.new import TEMPLATES
from toolwire.client import Client

FOLDER = Path(new.__file__).parent / "_templates"


def read_files(folder: Path) -> dict[str, str]:
    """Return the files of a folder by name, without what Python compiled."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.parent.name != "__pycache__"]
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_the_project_runs_and_passes_its_own_test(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = toolwire("new", "my-demo")
    assert done.status == 0
    assert {path.name for path in Path("my-demo").iterdir()} == set(TEMPLATES["tools"])
    monkeypatch.chdir("my-demo")
    called = toolwire("call", "server.py", "convert_amount", "value=116", "currency=NOK")
    assert (called.status, called.out) == (0, '{\n  "value": 10.0,\n  "currency": "EUR"\n}\n')
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "4 passed" in tested.stdout


def test_the_project_can_be_installed_with_what_its_readme_uses(toolwire: Command, tmp_path: Path) -> None:
    toolwire("new", str(tmp_path / "demo"))
    project = tomllib.loads((tmp_path / "demo" / "pyproject.toml").read_text())
    assert project["project"]["dependencies"][0].startswith("toolwire[http]>=")
    # A test beside the server is no second module to install; left to itself, setuptools refuses both.
    assert project["tool"]["setuptools"] == {"py-modules": ["server"]}


async def test_the_linter_has_nothing_to_say(toolwire: Command, tmp_path: Path) -> None:
    toolwire("new", str(tmp_path / "demo"))
    async with Client(tmp_path / "demo" / "server.py") as client:
        assert findings(await client.list_tools()) == []


@pytest.mark.parametrize("name", ["demo", "My_Demo-2"])
def test_the_template_of_a_skill_passes_its_own_test_and_the_linter(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert toolwire("new", name, "--template", "skill").status == 0
    monkeypatch.chdir(name)
    linted = toolwire("lint", "skills", "--strict")
    assert (linted.status, linted.out.endswith("0 errors, 0 warnings, 0 hints.\n")) == (0, True)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "toolwire[http,skills]" in Path("pyproject.toml").read_text()


@pytest.mark.covers("APP-8A.14")
def test_the_template_of_an_app_passes_its_own_test_and_the_linter(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert toolwire("new", "demo", "--template", "app").status == 0
    monkeypatch.chdir("demo")
    assert 'server = Server("demo", ' in Path("server.py").read_text()
    linted = toolwire("lint", "server.py", "--strict")
    assert (linted.status, linted.out.endswith("0 errors, 0 warnings, 0 hints.\n")) == (0, True)
    # The test in a browser needs one, and is run with those of the browser.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    command += ["-p", "no:asyncio", "-k", "not browser"]
    tested = subprocess.run(command, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_project_has_every_file_of_its_template_and_no_word_of_it(
    toolwire: Command, tmp_path: Path, template: str
) -> None:
    assert toolwire("new", str(tmp_path / "demo"), "--template", template).status == 0
    made = read_files(tmp_path / "demo")
    expected = {name.replace("template-skill", "demo") for name in read_files(FOLDER / template)}
    assert {name.removeprefix(".") for name in made} == expected
    assert [name for name, text in made.items() if re.search(r"template[-_]", name + text)] == []


def test_templates_are_valid_before_they_are_filled_in(toolwire: Command) -> None:
    for template in (*TEMPLATES, "api"):
        project = tomllib.loads((FOLDER / template / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["project"]["name"] == "template-name"
    assert toolwire("lint", str(FOLDER / "skill" / "skills")).status == 0


@pytest.mark.parametrize("name", ["", "9lives", "a b", "..", "-x", "a" * 65, "é"])
def test_a_bad_name_is_refused(toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = toolwire("new", "--", name)
    assert done.status == 2
    assert "is not a name for a project" in done.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(toolwire: Command, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine").touch()
    done = toolwire("new", str(tmp_path / "demo"))
    assert done.status == 2
    assert "exists already" in done.err
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mine"]


@pytest.mark.parametrize("more", [[], ["--from", "api.yaml"]])
def test_a_folder_that_cannot_be_made_is_told(toolwire: Command, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "file").write_text("")
    done = toolwire("new", str(tmp_path / "file" / "demo"), *more)
    assert done.status == 2
    assert "cannot be made: Not a directory" in done.err
