"""The pure parts of the check before a release, and the lines that it prints."""

from __future__ import annotations

import io
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from tests.cases import cases

import release_check
from release_check import Failed, Release

HEAD = "# Changelog\n\nWords.\n\n"
PROJECT = {"name": "toolwire", "license": "MIT", "requires-python": ">=3.11"}
METADATA = [
    ("Name", "toolwire"),
    ("Version", "0.9.0"),
    ("License-Expression", "MIT"),
    ("Requires-Python", ">=3.11"),
    ("Classifier", "Programming Language :: Python :: 3 :: Only"),
    ("Classifier", "Programming Language :: Python :: 3.11"),
    ("Classifier", "Programming Language :: Python :: 3.12"),
]


def message(fields: list[tuple[str, str]]) -> Message:
    made = Message()
    for name, value in fields:
        made[name] = value
    return made


def test_the_version_is_read_from_its_file() -> None:
    assert release_check.version_of('__version__ = "1.20.3"\n') == "1.20.3"


@cases("source", ["", "__version__ = '1.2.3'", '__version__ = "1.2"', '__version__ = "1.2.3.dev1"'])
def test_a_version_that_is_no_release_is_refused(source: str) -> None:
    with pytest.raises(Failed, match="names no version"):
        release_check.version_of(source)


def test_sections_have_a_name_a_date_and_a_text() -> None:
    text = f"{HEAD}## [Unreleased]\n\n## [0.9.0] - 2026-11-16\n\n### Added\n\n- A.\n\n## [0.8.0]\n\n- B.\n"
    assert release_check.sections(text) == {
        "Unreleased": (None, ""),
        "0.9.0": ("2026-11-16", "### Added\n\n- A."),
        "0.8.0": (None, "- B."),
    }


def test_a_changelog_that_is_ready() -> None:
    text = f"{HEAD}## [Unreleased]\n\n## [0.9.0] - 2026-11-16\n\n- A.\n"
    assert release_check.check_changelog(text, "0.9.0") == "2026-11-16"


@cases(
    ("rest", "says"),
    [
        ("", "does not begin with"),
        ("## [0.9.0] - 2026-11-16\n\n- A.\n", "does not begin with"),
        ("## [Unreleased]\n\n- B.\n\n## [0.9.0] - 2026-11-16\n\n- A.\n", "move them to 0.9.0"),
        ("## [Unreleased]\n", "newest section of CHANGELOG.md is none"),
        ("## [Unreleased]\n\n## [0.8.0] - 2026-01-01\n\n- A.\n", "is 0.8.0, the package is 0.9.0"),
        ("## [Unreleased]\n\n## [0.9.0]\n\n- A.\n", "has no date"),
        ("## [Unreleased]\n\n## [0.9.0] - unreleased\n\n- A.\n", "has no date"),
        ("## [Unreleased]\n\n## [0.9.0] - 2026-11-16\n", "is empty"),
    ],
)
def test_a_changelog_that_is_not_ready_says_why(rest: str, says: str) -> None:
    with pytest.raises(Failed, match=says):
        release_check.check_changelog(HEAD + rest, "0.9.0")


def test_metadata_that_agree() -> None:
    release_check.check_metadata(message(METADATA), "0.9.0", PROJECT)


@cases("name", ["Name", "Version", "License-Expression", "Requires-Python"])
@cases("value", ["other", None])
def test_metadata_that_differ_are_refused(name: str, value: str | None) -> None:
    fields = [field for field in METADATA if field[0] != name]
    with pytest.raises(Failed, match=f"say {name}: {value} instead of"):
        release_check.check_metadata(message(fields + ([(name, value)] if value else [])), "0.9.0", PROJECT)


def test_the_oldest_python_is_the_same_in_both_places() -> None:
    fields = [field for field in METADATA if not field[1].endswith("3.11")] + [("Requires-Python", ">=3.11")]
    with pytest.raises(Failed, match=r"requires-python is >=3\.11, and the classifiers name 3\.12"):
        release_check.check_metadata(message(fields), "0.9.0", PROJECT)


def test_an_sdist_has_what_its_reader_needs() -> None:
    names = [f"toolwire-0.9.0/{name}" for name in release_check.IN_THE_SDIST]
    assert release_check.missing_files(names) == []
    assert release_check.missing_files(names[1:]) == [release_check.IN_THE_SDIST[0]]


def test_both_kinds_of_packages_are_read(tmp_path: Path) -> None:
    text = b"Metadata-Version: 2.4\nName: toolwire\nVersion: 0.9.0\n\nWords.\n"
    wheel, sdist = tmp_path / "toolwire-0.9.0-py3-none-any.whl", tmp_path / "toolwire-0.9.0.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toolwire-0.9.0.dist-info/METADATA", text)
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("toolwire-0.9.0/tests/egg/PKG-INFO", "toolwire-0.9.0/PKG-INFO"):
            member = tarfile.TarInfo(name)
            member.size = len(text) if name.count("/") == 1 else 0
            archive.addfile(member, io.BytesIO(text))
    for package, count in ((wheel, 1), (sdist, 2)):
        metadata, names = release_check.read_package(package)
        assert (metadata["Version"], len(names)) == ("0.9.0", count)


def test_each_check_has_a_line_and_a_failure_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> str:
        raise Failed("it is not so")

    release = Release(tmp_path)
    assert release.check("first", lambda: "it is so")
    assert not release.check("second", fails)
    assert release.failures == 1
    assert capsys.readouterr().out == "ok      first: it is so\nFAILED  second: it is not so\n"


def test_a_command_that_fails_shows_its_last_lines() -> None:
    assert release_check.succeed(["sh", "-c", "echo first; echo last"]) == "last"
    with pytest.raises(Failed, match=r"because\n *of this"):
        release_check.succeed(["sh", "-c", "echo because >&2; echo of this >&2; exit 3"])


def test_the_versions_of_this_tree_agree() -> None:
    """A release is prepared long before it is made; the changelog names the version from then on."""
    source = (release_check.ROOT / "src" / "toolwire" / "_version.py").read_text(encoding="utf-8")
    changelog = (release_check.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release_check.version_of(source) in release_check.sections(changelog)
