"""Frontmatter as npm's `yaml` reads it: the same JSON, or refused here with a line, because readers differ."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.interop import peers
from tests.interop.generated_skills import FRONTMATTER

from toolwire.protocol.skills import difference
from toolwire.skills.frontmatter import FrontmatterError, read_skill_document

# Further texts that are read.
READ = [
    "description: 'quoted'\na: 'it''s'\nb: \"tab\\there\"",
    'a: "one\n  two\n\n  three"',
    "a: 'one\n  two'",
    "a: |2\n    two more\n  none",
    "a: >+\n  folded\n\n  kept\n\nb: c",
    "a: {x: {y: {z: [1, [2, [3]]]}}}",
    "a: [\n  one,\n  two,\n]",
    "? a\n: b",
    "a: b\n\n\n# comment\n\nc: d",
    "a:    spaced   out   ",
    "'a b': c\n\"d\": e",
    "a: -1.5e+3\nb: 0.0\nc: 00012\nd: 0x1F",
    "a: Yes\nb: NO\nc: True\nd: nUll\ne: ON",
    "a: 1.2.3\nb: 2026-13-45\nc: 12:30:45.6\nd: 0b2\ne: 0o9",
    "a: .\nb: ..\nc: -x\nd: +x\ne: '-'",
    "a: x:y\nb: x::y\nc: http://a:80/b",
    "a: foo#bar\nb: 'c' # d",
    'a: "\\x41\\u00e9\\U0001F9F0\\N\\_\\L\\P\\e\\0"',
    "a: 日本語:text",
    "a: {b: , c}\nd: [e: f]",
    "a: \"quoted: colon\"\nb: 'single: colon'",
    "a:\n    deep:\n        er: 1\n    other: 2",
]
# Texts that have two meanings, or none in JSON. The lines are those of the file, whose first line is ---.
REFUSED = {
    "description: Use this: now": 2,
    "a: 1\nb: &anchor x\nc: *anchor": 3,
    "a: !custom x": 2,
    "a: !!str 1": 2,
    "a: 1\na: 2": 3,
    "base: &b {x: 1}\nc:\n  <<: *b": 2,
    "1: a": 2,
    "true: a": 2,
    "null: a": 2,
    "? [a, b]\n: c": 2,
    "a: .nan": 2,
    "a: 1\nb: -.inf": 3,
    "a: 12345678901234567890": 2,
    "a: 1e999": 2,
    "a: [?x]": 2,
    "a: @x": 2,
    "a: `x`": 2,
    "a: x\u0085y": 2,
    "a: x\u2028y": 2,
    "a:\n\tb: c": 3,
    "- a\n- b": 2,
    "just a text": 2,
    "a: 'open": 3,
    "a: [1, 2": 3,
}


def theirs(texts: list[str], folder: Path) -> list[dict[str, Any] | None]:
    node, script = peers.needed_node(), peers.node_script("read_yaml.mjs")
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command = [str(node), str(script), str(folder / "texts.json")]
    done = subprocess.run(command, cwd=peers.node_folder(), capture_output=True, text=True, timeout=60, check=True)
    report: list[dict[str, Any] | None] = json.loads(done.stdout)
    return report


def test_the_same_json_as_npm_yaml(tmp_path: Path) -> None:
    texts = [*FRONTMATTER, *READ]
    assert len(texts) >= 60
    for text, found in zip(texts, theirs(texts, tmp_path), strict=True):
        assert found is not None, text
        ours = read_skill_document(f"---\n{text}\n---\n".encode()).frontmatter
        assert difference(found["value"], ours) is None, text


def test_what_readers_read_differently_is_refused_with_its_line() -> None:
    for text, line in REFUSED.items():
        try:
            read = read_skill_document(f"---\n{text}\n---\n".encode())
        except FrontmatterError as error:
            assert error.line == line, text
            assert error.advice
        else:
            raise AssertionError(f"{text!r} is read as {read.frontmatter!r}")
