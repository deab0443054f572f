"""The frontmatter of SKILL.md as JSON: YAML 1.2 by the core schema, and the place of every mistake."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.extras import MissingExtra
from toolwire.skills.frontmatter import FrontmatterError, read_as_yaml_1_1, read_skill_document, yaml_differences


def skill(text: str) -> bytes:
    return f"---\n{text}\n---\nThe body.\n".encode()


def fields(text: str) -> dict[str, Any]:
    return read_skill_document(skill(text)).frontmatter


def refused(data: bytes) -> FrontmatterError:
    with pytest.raises(FrontmatterError) as caught:
        read_skill_document(data)
    return caught.value


@pytest.mark.covers("SKL-T1")
@cases(
    ("written", "value"),
    [
        # Strings in YAML 1.2 that YAML 1.1 takes for something else.
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("2026-09-13", "2026-09-13"),
        ("2026-09-13T10:00:00Z", "2026-09-13T10:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        # The core schema of YAML 1.2.
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("0o7", 7),
        ("017", 17),
        ("0xFF", 255),
        ("-0", 0),
        ("+12", 12),
        ("tRue", "tRue"),
        ("nULL", "nULL"),
        ("0o8", "0o8"),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ("+", "+"),
        ("9007199254740991", 9007199254740991),
        ('"2026"', "2026"),
        ("'yes'", "yes"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        (">-\n  two\n  lines\n", "two lines"),
        ("one\n  and two", "one and two"),
        ("http://example.com/a#b", "http://example.com/a#b"),
        ("use it # a comment", "use it"),
        ('{a: 1, "b":2}', {"a": 1, "b": 2}),
        ("[x, [y]]", ["x", ["y"]]),
        ("\n- x\n- y: z", ["x", {"y": "z"}]),
        ("Grüße 🧰", "Grüße 🧰"),
        (r'"\x41\u00e9\U0001F9F0"', "Aé🧰"),
    ],
)
def test_a_value_is_read_by_the_core_schema_of_yaml_1_2(written: str, value: Any) -> None:
    read = fields(f"name: {written}")["name"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.covers("SKL-T2")
@cases(
    ("text", "place", "says"),
    [
        ("description: Use it: now", (2, 20), 'write description: "Use it: now"'),
        ('description: Say "x": now', (2, 21), "write description: 'Say \"x\": now'"),
        ("name: a\ndescription: one\n  two: three", (4, 6), "put the whole value in quotes, or begin it with >-"),
        ('name: a\ndescription: "PDF" files', (3, 14), "write description: '\"PDF\" files'"),
        ("description: 'PDF' files", (2, 14), "write description: \"'PDF' files\""),
        ("name: @x", (2, 7), 'write name: "@x"'),
        ("name: @x \t", (2, 7), 'write name: "@x"'),
        ("name: `x`", (2, 7), 'write name: "`x`"'),
        ("name: %x", (2, 7), 'write name: "%x"'),
        ("name: - x", (2, 7), "begin each item on its own line"),
        ("name: a\nmetadata:\n\tx: y", (4, 1), "indent with blanks"),
        ("a: &x 1", (2, 4), "remove it"),
        ("a: &x {}", (2, 4), "remove it"),
        ("a: *x", (2, 4), "write the value out"),
        ("*x : 1", (2, 1), "write a word"),
        ("a: !x y", (2, 4), "!x is a tag"),
        ("a: !!str 1", (2, 4), "!!str is a tag"),
        ("a: !!map {}", (2, 4), "!!map is a tag"),
        ("a: [!<tag:x> b]", (2, 5), "!<tag:x> is a tag"),
        ("<<: {a: 1}", (2, 1), "write the fields out"),
        ("a: 1\nb: 2\na: 3", (4, 1), "the key 'a' stands here twice"),
        ('a: 1\n"a": 3', (3, 1), "the key 'a' stands here twice"),
        ("1: a", (2, 1), '"1":'),
        ("metadata:\n  true: a", (3, 3), '"true":'),
        ("null: a", (2, 1), '"null":'),
        ("? [a]\n: b", (2, 3), "write a word"),
        ("__proto__: a", (2, 1), "choose another name"),
        ("a: .nan", (2, 4), 'put it in quotes: ".nan"'),
        ("a: -.INF", (2, 4), "JSON"),
        ("a: 9007199254740992", (2, 4), "every reader keeps exactly"),
        ("a: 1" + "0" * 5000, (2, 4), "every reader keeps exactly"),
        ("a: 1e999", (2, 4), "every reader keeps"),
        ("a: [?x]", (2, 6), 'put the text in quotes: "?x"'),
        ("a: {?x: y}", (2, 6), 'put the text in quotes: "?x"'),
        ("a: x\x85y", (2, 5), "U+0085"),
        ("a: x\u2028y", (2, 5), "U+2028"),
        ("a: x\x00y", (2, 5), "U+0000"),
        ("a: b\rc: d", (2, 5), "U+000D"),
        ("a: \ufeffb", (2, 4), "U+FEFF"),
        ("- a", (2, 1), "is not a mapping"),
        ("just text", (2, 1), "is not a mapping"),
        ("", (2, 1), "write name: and description:"),
        ("# only a comment", (2, 1), "write name: and description:"),
        ("a: b\n...\nc: d", (4, 1), "keep one document"),
        ("a: 'b", (2, 4), "check quotes"),
        ("a: [b", (2, 4), "check quotes"),
        ("a: b\nno colon\nc: d", (3, 1), "write key: value"),
        ("a: " + "[" * 40 + "]" * 40, (2, 35), "nest at most 32 levels"),
        ("a: [" + "x," * 5000 + "]", (2, 8191), "keep at most 4,096"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_a_text_without_one_meaning_is_refused_with_its_place_and_what_to_write(
    text: str, place: tuple[int, int], says: str
) -> None:
    error = refused(skill(text))
    assert says in str(error)
    if "check quotes" not in says:  # Where a parser notices an open quote or bracket depends on the parser.
        assert (error.line, error.column) == place
    assert str(error).startswith(f"line {error.line}, column {error.column}: {error.problem}: {error.advice}")


def test_advice_for_a_line_of_blanks_takes_no_longer_than_for_other_lines() -> None:
    # One step for each byte; a pattern that tries every run of blanks takes a minute.
    line = "a: b: " + " " * 60_000 + "c"
    assert "put the whole value in quotes" in str(refused(skill(line)))


def test_an_error_can_be_copied() -> None:
    error = refused(skill("a: *x"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.covers("SKL-T3")
@cases(
    ("data", "body"),
    [
        (b"---\nname: a\n---\nText", "Text"),
        (b"\xef\xbb\xbf---\nname: a\n---\nText", "Text"),
        (b"---\r\nname: a\r\n---\r\nText\r\n", "Text\r\n"),
        (b"---  \nname: a\n--- \t\nText", "Text"),
        (b"---\nname: a\n---", ""),
        (b"---\nname: a\n---\r", ""),
        (b"---\nname: a\n---\nOne\n---\nTwo\n", "One\n---\nTwo\n"),
        (b"---\nname: a # ---\n---\n", ""),
        (b"---\nname: |-\n  a\n---\n", ""),
    ],
    ids=["plain", "BOM", "CRLF", "blanks", "no last newline", "CR at the end", "--- in the body", "comment", "block"],
)
def test_the_two_parts_of_the_file(data: bytes, body: str) -> None:
    read = read_skill_document(data)
    assert (read.frontmatter, read.body) == ({"name": "a"}, body)


@cases(
    ("data", "line", "says"),
    [
        (b"# No frontmatter\n", 1, "begin the file with a line ---"),
        (b"", 1, "begin the file with a line ---"),
        (b"\n---\nname: a\n---\n", 1, "begin the file with a line ---"),
        (b"----\nname: a\n---\n", 1, "begin the file with a line ---"),
        (b"---\nname: a\n", 1, "close it with a line ---"),
        (b"---\nname: a\n ---\n", 1, "close it with a line ---"),
        (b"---\n" + b"a: b\n" * 20_000 + b"---\n", 1, "the frontmatter is too long"),
        (b"---\nname: \xff\n---\n", 2, "save the file as UTF-8"),
        (b"---\nname: a\n---\nOne\nTwo \xff\n", 5, "save the file as UTF-8"),
    ],
)
def test_a_file_without_two_parts_is_refused(data: bytes, line: int, says: str) -> None:
    error = refused(data)
    assert error.line == line
    assert says in str(error)


def test_positions_are_those_of_the_values() -> None:
    read = read_skill_document(b"---\nname: a\ndescription:\n  b\nmetadata:\n  x: y\n---\n")
    assert read.positions == {"name": (2, 7), "description": (4, 3), "metadata": (6, 3)}


@cases(
    ("written", "older"),
    [
        ("yes", True),
        ("Off", False),
        ("12:30", 750),
        ("-1:30", -90),
        ("1:30.5", 90.5),
        ("017", 15),
        ("0o7", "0o7"),
        ("0b11", 3),
        ("-0x1F", -31),
        ("1_000", 1000),
        ("1e3", "1e3"),
        ("1.5e+3", 1500.0),
        ("1.10", 1.1),
        ("2026-09-13", "2026-09-13"),
        ("2026-9-3 1:02:03.50 +2", "2026-09-03T01:02:03.500000+02:00"),
        ("2026-09-13T10:00:00Z", "2026-09-13T10:00:00+00:00"),
        ("y", "y"),
        ("text", "text"),
        ("~", None),
        ("-.", "-."),
    ],
)
def test_yaml_1_1_is_read_as_pyyaml_does(written: str, older: Any) -> None:
    assert read_as_yaml_1_1(skill(f"a: {written}"))["a"] == older
    loaded = yaml.safe_load(f"a: {written}")["a"]
    assert json.loads(json.dumps(loaded, default=lambda value: value.isoformat())) == older


@pytest.mark.covers("SKL-T9")
def test_differences_between_the_versions_say_where_and_what_to_do() -> None:
    found = yaml_differences(
        skill("name: yes\nmetadata:\n  since: 2026-09-13\n  at: [12:30, ok]\n  fine: 'no'\non: 1.10")
    )
    assert [(each.text, each.position) for each in found] == [
        ("yes", (2, 7)),
        ("2026-09-13", (4, 10)),
        ("12:30", (5, 8)),
        ("on", (7, 1)),
    ]
    assert str(found[0]) == 'yes is the string "yes" in YAML 1.2 and true in YAML 1.1: put it in quotes'
    assert found[1].in_1_1 == "a date"


def test_the_package_for_yaml_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install 'toolwire\[skills\]'"):
        read_skill_document(skill("name: a"))


KEY = st.text().filter("__proto__".__ne__)
NUMBER = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEY, JSON, min_size=1, max_size=4))
def test_what_json_writes_is_read_back(value: dict[str, Any]) -> None:
    # YAML 1.2, 1.2: every JSON text is YAML. Characters beyond U+FFFF are pairs of escapes in JSON and one in YAML.
    text = json.dumps(value, ensure_ascii=False)
    for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF):
        text = text.replace(chr(code), f"\\u{code:04x}")
    assert fields(text) == value


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for text in (data, b"---\n" + data + b"\n---\n"):
        for read in (read_skill_document, read_as_yaml_1_1, yaml_differences):
            try:
                read(text)
            except FrontmatterError as error:
                assert 1 <= error.line <= text.count(b"\n") + 1


@given(st.text(alphabet="ab:-?[]{}&*!|>'\"%@`#, \n\t0123.~<", max_size=60))
def test_any_yaml_is_read_or_refused(text: str) -> None:
    try:
        read = fields(text)
    except FrontmatterError:
        return
    assert json.loads(json.dumps(read)) == read


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="this PyYAML was built without libyaml")
@given(st.text(alphabet="ab:-?[]{}'\"#, \n0123.~_exo+", max_size=40))
def test_the_parser_in_python_agrees_with_libyaml(text: str) -> None:
    def outcome(loader: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            if loader == "python":
                patch.delattr(yaml, "CSafeLoader")
            try:
                return fields(text)
            except FrontmatterError:
                return "refused"

    assert outcome("python") == outcome("libyaml")
