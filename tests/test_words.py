"""The check of words finds what it has to find, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.words import (
    Finding,
    check_exceptions,
    count,
    find_all,
    find_in_page,
    find_in_source,
    find_rises,
    lower,
    write_table,
)

SOURCE = '''
"""A module."""

def take_up(self):
    """Return the session of a client whose connection ended some time ago because its process was killed."""
    raise ValueError(f"{self} is no session")  # Nobody asks for it.


async def _told():
    """What it returns."""
    return "told"
'''


def kinds(source: str) -> list[str]:
    return sorted(finding.kind for finding in find_in_source("src/a.py", source))


def test_each_kind_is_found_in_a_module() -> None:
    assert kinds(SOURCE) == ["lines", "names", "names", "riddles", "words", "words"]


@pytest.mark.parametrize(
    "source",
    [
        "def taken_names(): ...\ndef lookup(): ...\ndef official(): ...\ndef unknown(): ...",
        'x = "There is no session, and it is no longer kept."',
        'x = "told"\nothers = x',
        'def f():\n    """Return the first fifteen words of a sentence that has no more words than that."""',
        'def f():\n    """Return one of three values.\n\n    The rest is longer, and many do not read it."""',
    ],
)
def test_plain_source_has_no_findings(source: str) -> None:
    assert kinds(source) == []


def test_sentence_that_is_wrapped_is_counted_to_its_end() -> None:
    assert kinds(
        'def f():\n    """Return one two three four five six\n    seven eight nine ten eleven twelve 13 14 15."""'
    ) == ["lines"]


def test_page_is_read_outside_its_code() -> None:
    page = "Nobody knows.\n\n```python\nothers = 1\n```\n\nThe others do."
    assert [finding.line for finding in find_in_page("docs/a.md", page)] == [1, 7]


def test_class_that_exists_twice_is_found_unless_it_is_a_wire_type(tmp_path: Path) -> None:
    package = tmp_path / "src" / "toolwire"
    (package / "protocol" / "types").mkdir(parents=True)
    (package / "protocol" / "types" / "tool.py").write_text("class Tool: ...\n")
    (package / "a.py").write_text("class Tool: ...\nclass Lease: ...\nclass _Part: ...\n")
    (package / "b.py").write_text("class Lease: ...\nclass _Part: ...\n")
    assert [str(finding) for finding in find_all(tmp_path)] == [
        "src/toolwire/a.py:2: classes: Lease",
        "src/toolwire/b.py:1: classes: Lease",
    ]


def test_count_may_fall_and_not_rise() -> None:
    findings = [Finding("src/a/b.py", 1, "words", "told: x"), Finding("src/c/b.py", 2, "names", "take")]
    found = count(findings)
    assert find_rises({"src/a": {"words": 2}, "src/c": {"names": 1}}, found, findings) == []
    assert find_rises({"src/a": {"words": 1}}, found, findings) == [
        "src/c/b.py:2: names: take",
        "src/c has 1 names, and tests/words.toml allows 0",
    ]
    assert lower({"src/a": {"words": 2}, "src/d": {"words": 1}}, found) == {"src/a": {"words": 1}}


def test_exceptions_have_a_reason_and_a_use() -> None:
    finding = Finding("src/a.py", 1, "names", "take")
    entry = {"file": "src/a.py", "text": "take", "reason": "a public name"}
    assert check_exceptions([entry], [finding]) == []
    assert check_exceptions([{**entry, "reason": ""}], [finding]) == ["exception 'take' of src/a.py has no reason"]
    assert check_exceptions([entry], []) == ["exception 'take' of src/a.py is not needed: remove it"]
    assert check_exceptions([entry] * 31, [finding]) == ["31 exceptions, and 30 are allowed"]


def test_table_is_written_with_its_exceptions() -> None:
    entry = {"file": "src/a.py", "text": "take", "reason": "a public name"}
    assert write_table({"src": {"words": 1, "lines": 2}}, [entry]).endswith(
        '\n[[exceptions]]\nfile = "src/a.py"\ntext = "take"\nreason = "a public name"\n'
        '\n["src"]\nwords = 1\nlines = 2\n'
    )
