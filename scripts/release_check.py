"""Checks that this tree can be released. Prints one line for each check; the exit status is 1 when one fails.

    python scripts/release_check.py

* Everything is committed.
* The version of the package has a section with a date in CHANGELOG.md, and nothing is left under "Unreleased".
* The wheel and the sdist build, and their metadata say the same version, license and versions of Python.
* Both install and work on each supported Python that is found on this machine, as scripts/try_wheel.py sees it.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial
from pathlib import Path

import pythons

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?[ \t]*$", re.MULTILINE)
VERSION = re.compile(r"""^__version__ = "(\d+\.\d+\.\d+)"$""", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# Somebody who has only the sdist finds these in it.
IN_THE_SDIST = ("CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml", "tests/conftest.py")


class Failed(Exception):
    """A check that does not hold; the text says why and what to do."""


# --- pure parts ---


def version_of(source: str) -> str:
    """Return the version that the source of _version.py names."""
    match = VERSION.search(source)
    if match is None:
        raise Failed("_version.py names no version of the form 1.2.3")
    return match[1]


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Return each section of the changelog by its name, newest first: its date, if it has one, and its text."""
    headings = list(HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings), len(changelog)][1:]
    return {
        heading["name"]: (heading["date"], changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    }


def check_changelog(changelog: str, version: str) -> str:
    """Return the date of the version's section, which is the newest one and has an empty "Unreleased" above it."""
    found = sections(changelog)
    names = list(found)
    if names[:1] != ["Unreleased"]:
        raise Failed('CHANGELOG.md does not begin with a section "Unreleased"')
    if found["Unreleased"][1]:
        raise Failed(f'CHANGELOG.md has changes under "Unreleased": move them to {version}')
    if names[1:2] != [version]:
        newest = names[1] if names[1:] else "none"
        raise Failed(f"the newest section of CHANGELOG.md is {newest}, the package is {version}")
    date, text = found[version]
    if date is None or not DATE.fullmatch(date):
        raise Failed(f"the section {version} of CHANGELOG.md has no date")
    if not text:
        raise Failed(f"the section {version} of CHANGELOG.md is empty")
    return date


def check_metadata(metadata: Message, version: str, project: dict[str, object]) -> None:
    """Compare the metadata of a package with pyproject.toml and the version."""
    classifiers = metadata.get_all("Classifier", [])
    promised = project["requires-python"]
    assert isinstance(promised, str)
    expected = {
        "Name": project["name"],
        "Version": version,
        "License-Expression": project["license"],
        "Requires-Python": promised,
    }
    for name, value in expected.items():
        if metadata[name] != value:
            raise Failed(f"its metadata say {name}: {metadata[name]} instead of {value}")
    versions = pythons.supported(classifiers)
    if not versions or promised != f">={versions[0]}":
        raise Failed(f"requires-python is {promised}, and the classifiers name {', '.join(versions) or 'no version'}")


def missing_files(names: list[str]) -> list[str]:
    """Return what a sdist with these members lacks; its members are in one folder."""
    inside = {name.partition("/")[2] for name in names}
    return [name for name in IN_THE_SDIST if name not in inside]


# --- checks ---


class Release:
    """One run of all checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # for what is built
        self.failures = 0
        self.version = "?"
        self.packages: list[Path] = []

    def run(self) -> bool:
        self.check("tree", clean_tree)
        self.check("version", self.read_version)
        self.check("changelog", self.changelog)
        if self.check("build", self.build):
            for package in self.packages:
                self.check(package.name, partial(self.metadata, package))
            self.try_everywhere()
        print("release: good" if not self.failures else f"release: {self.failures} checks failed")
        return not self.failures

    def check(self, what: str, work: Callable[[], str]) -> bool:
        """Do one check and print its line."""
        try:
            result = work()
        except Failed as failure:
            self.failures += 1
            print(f"FAILED  {what}: {failure}", flush=True)
            return False
        print(f"ok      {what}: {result}", flush=True)
        return True

    def read_version(self) -> str:
        self.version = version_of((ROOT / "src" / "toolwire" / "_version.py").read_text(encoding="utf-8"))
        return self.version

    def changelog(self) -> str:
        date = check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), self.version)
        return f"the section {self.version} is of {date}"

    def build(self) -> str:
        """Build the sdist from what is in the tree, and the wheel from the sdist."""
        succeed([sys.executable, "-m", "build", "--outdir", str(self.folder), str(ROOT)])
        self.packages = sorted(self.folder.glob("toolwire-*.whl")) + sorted(self.folder.glob("toolwire-*.tar.gz"))
        if len(self.packages) != 2:
            raise Failed("it made no wheel and sdist of the name toolwire")
        return " and ".join(package.name for package in self.packages)

    def metadata(self, package: Path) -> str:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        metadata, names = read_package(package)
        check_metadata(metadata, self.version, project)
        if package.suffix == ".gz" and (missing := missing_files(names)):
            raise Failed(f"it lacks {', '.join(missing)}")
        return f"{len(names)} files, and its metadata are those of pyproject.toml"

    def try_everywhere(self) -> None:
        for version in pythons.declared():
            python = pythons.find(version)
            if python is None:
                print(f"-       Python {version}: left out, it is not on this machine", flush=True)
                continue
            for package in self.packages:
                command = [str(python), str(ROOT / "scripts" / "try_wheel.py"), "--package", str(package)]
                self.check(f"{package.name} on Python {version}", partial(succeed, command))


def clean_tree() -> str:
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True)
    if changed.returncode != 0:
        raise Failed(last_line(changed.stderr))
    if lines := changed.stdout.splitlines():
        raise Failed(f"{len(lines)} files are not committed, such as {lines[0][3:]}")
    head = succeed(["git", "rev-parse", "--short", "HEAD"])
    return f"everything is committed, at {head}"


def read_package(package: Path) -> tuple[Message, list[str]]:
    """Return the metadata of a wheel or sdist and the names of its files."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            names = wheel.namelist()
            name = next(name for name in names if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(wheel.read(name)), names
    with tarfile.open(package) as sdist:
        names = sdist.getnames()
        name = next(name for name in names if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        member = sdist.extractfile(name)
        assert member is not None
        return email.message_from_bytes(member.read()), names


def succeed(command: list[str]) -> str:
    """Run a command and return the last line that it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed("\n        ".join(last_lines(done.stderr or done.stdout)))
    return last_line(done.stdout)


def last_lines(text: str, most: int = 12) -> Iterator[str]:
    yield from text.strip().splitlines()[-most:] or ["it printed nothing"]


def last_line(text: str) -> str:
    return next(last_lines(text, 1))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return 0 if Release(Path(folder)).run() else 1


if __name__ == "__main__":
    sys.exit(main())
