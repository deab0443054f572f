"""Raw JSON Schema: bounded, closed to the outside, explained in plain words, and kept compact."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire import schemas
from toolwire.adapters.pydantic_models import _closed
from toolwire.schemas import Problem, SchemaError, engine
from toolwire.schemas.nulls import with_optional_null
from toolwire.schemas.walking import subschemas

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def check(schema: dict[str, Any], instance: Any) -> list[Problem]:
    return schemas.compile(schema, what="the schema").check(instance)


def lines(schema: dict[str, Any], instance: Any) -> list[str]:
    return [schemas.sentence(problem) for problem in check(schema, instance)]


# -- dialects and references ------------------------------------------------------------------------------------------


@pytest.mark.covers("JSC-1")
def test_without_a_dialect_the_schema_is_2020_12() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "string"}], "items": False}
    assert check(pair, ["a"]) == []
    assert check(pair, ["a", "b"]) != []
    assert check({**pair, "$schema": schemas.DIALECT}, [1]) != []


@pytest.mark.covers("JSC-1")
@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema"]
)
def test_a_declared_dialect_decides(dialect: str) -> None:
    pair = {"$schema": dialect, "type": "array", "items": [{"type": "string"}], "additionalItems": False}
    assert check(pair, ["a"]) == []
    assert check(pair, ["a", "b"]) != []


@pytest.mark.covers("JSC-1")
@cases("dialect", ["https://example.com/mine", "draft-03", 7])
def test_an_unknown_dialect_is_named(dialect: Any) -> None:
    with pytest.raises(SchemaError, match=str(dialect)):
        schemas.compile({"$schema": dialect, "type": "object"}, what="the schema")
    with pytest.raises(SchemaError, match=str(dialect)):
        schemas.compile({"properties": {"a": {"$id": "urn:x", "$schema": dialect}}}, what="the schema")


@pytest.mark.covers("JSC-2")
def test_references_inside_the_document_work() -> None:
    schema = {
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {
            "pointer": {"$ref": "#/$defs/n"},
            "anchor": {"$ref": "#named"},
            "absolute": {"$ref": "https://example.com/root#/$defs/n"},
            "embedded": {"$ref": "https://example.com/part"},
            "relative": {"$ref": "part"},
            "dynamic": {"$dynamicRef": "#dyn"},
        },
        "$defs": {
            "n": {"type": "integer"},
            "named": {"$anchor": "named", "type": "integer"},
            "part": {"$id": "https://example.com/part", "type": "integer"},
            "dyn": {"$dynamicAnchor": "dyn", "type": "integer"},
        },
    }
    names = list(schema["properties"])
    validator = schemas.compile(schema, what="the schema")
    assert validator.check(dict.fromkeys(names, 1)) == []
    assert {problem.path for problem in validator.check(dict.fromkeys(names, "x"))} == {(name,) for name in names}


@pytest.mark.covers("JSC-2", "JSC-3")
def test_nothing_is_fetched_over_the_network() -> None:
    accepted = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def accept() -> None:
            try:
                listener.accept()[0].close()
                accepted.set()
            except OSError:
                pass

        waiter = threading.Thread(target=accept)
        waiter.start()
        port = listener.getsockname()[1]
        for schema in (
            {"$ref": f"http://127.0.0.1:{port}/schema.json"},
            {"properties": {"a": {"$dynamicRef": f"http://127.0.0.1:{port}/schema.json#x"}}},
            {"$id": f"http://127.0.0.1:{port}/", "$ref": "other.json"},
            {"$schema": f"http://127.0.0.1:{port}/meta"},
        ):
            with pytest.raises(SchemaError):
                schemas.compile(schema, what="the schema")
        assert not accepted.is_set()
        socket.create_connection(("127.0.0.1", port)).close()
        waiter.join(30)


@pytest.mark.covers("JSC-3")
def test_no_file_is_read(tmp_path: Path) -> None:
    target = tmp_path / "part.json"
    target.write_text('{"type": "integer"}')
    for reference in (target.as_uri(), str(target), "part.json"):
        with pytest.raises(SchemaError, match="not in the schema"):
            schemas.compile({"$ref": reference}, what="the schema")


def test_the_engine_itself_refuses_what_is_outside() -> None:
    """Even a reference that the document check does not see is not fetched."""
    with pytest.raises(SchemaError, match="outside the schema"):
        engine._engine({"$ref": "http://127.0.0.1:1/x"}, "Draft202012Validator", "the schema", 1 << 20)


def test_a_dangling_reference_is_refused() -> None:
    with pytest.raises(SchemaError, match="not in the schema"):
        schemas.compile({"$ref": "#/$defs/nothing"}, what="the schema")


# -- bounds -----------------------------------------------------------------------------------------------------------


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.covers("JSC-4")
def test_schemas_are_bounded_in_depth_count_and_size() -> None:
    schemas.compile(nested(schemas.MAX_DEPTH - 2), what="the schema")
    with pytest.raises(SchemaError, match="levels deep"):
        schemas.compile(nested(schemas.MAX_DEPTH + 1), what="the schema")
    with pytest.raises(SchemaError, match="subschemas"):
        schemas.compile({"anyOf": [{"minimum": n} for n in range(schemas.MAX_SUBSCHEMAS + 1)]}, what="the schema")
    with pytest.raises(SchemaError, match="bytes"):
        schemas.compile({"description": "x" * (schemas.MAX_BYTES + 1)}, what="the schema")


@cases(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}], ids=str
)
def test_a_schema_that_never_ends_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="without end"):
        schemas.compile(schema, what="the schema")


@pytest.mark.covers("JSC-4")
def test_repeated_references_do_not_multiply_without_bound() -> None:
    levels = 40
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(levels)
    }
    definitions[f"a{levels}"] = {"type": "string"}
    assert "too large" in check({"$defs": definitions, "$ref": "#/$defs/a0"}, "x")[0].message


@pytest.mark.covers("JSC-4")
def test_recursion_that_doubles_with_depth_is_bounded_by_the_value() -> None:
    twice = {"allOf": [{"additionalProperties": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]}
    validator = schemas.compile(twice, what="the schema")
    value: Any = {}
    for _ in range(100):
        value = {"a": value}
    # The engine judges each part once, however often the schema refers to itself; otherwise this would never end.
    assert validator.check(value) == []


def test_an_ordinary_recursive_schema_takes_deep_values() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
        "additionalProperties": False,
    }
    value: dict[str, Any] = {"value": 1}
    for _ in range(100):
        value = {"left": value, "right": {"value": 2}}
    assert check(tree, value) == []


def test_a_choice_of_many_kinds_takes_ordinary_depth() -> None:
    kinds = [
        {"type": "object", "properties": {"kind": {"const": n}, f"child{n % 3}": {"$ref": "#"}}, "required": ["kind"]}
        for n in range(12)
    ]
    value: dict[str, Any] = {"kind": 0}
    for n in range(8):
        value = {"kind": n, f"child{n % 3}": value}
    assert check({"anyOf": kinds}, value) == []


@pytest.mark.covers("JSC-4")
@cases("pattern", ["^(a+)+$", "^(?=a)(a|aa)+$", r"^(a+)+\1$"])
def test_patterns_cannot_run_away(pattern: str) -> None:
    assert check({"type": "string", "pattern": pattern}, "a" * 5_000 + "!") != []


def test_an_invalid_pattern_is_refused() -> None:
    with pytest.raises(SchemaError, match="regex"):
        schemas.compile({"pattern": "("}, what="the schema")


def test_a_large_bad_value_is_answered_by_member() -> None:
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}},
        "required": ["n", "name"],
        "additionalProperties": False,
    }
    problems = check(schema, {"rows": [1] * 50_000, "n": 1, "nn": 2})
    assert {problem.path for problem in problems} == {("rows",), ("name",), ("nn",)}


def test_problems_are_bounded() -> None:
    assert len(check({"items": {"type": "string"}}, [1] * 500)) == schemas.MAX_PROBLEMS


@cases("value", [{1: 2}, object(), {"a": object()}])
def test_what_is_not_json_is_a_problem(value: Any) -> None:
    assert check({"type": "array"}, value) != []


@cases(
    "schema",
    [[], "x", True, None, {"type": "strin"}, {"properties": []}, {"minimum": "x"}, {"a": object()}],
    ids=range(8),
)
def test_a_malformed_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="the schema"):
        schemas.compile(schema, what="the schema")


@given(JSON, JSON)
def test_checking_any_value_against_any_document_never_fails_oddly(document: Any, value: Any) -> None:
    try:
        validator = schemas.compile(document, what="the schema")
    except SchemaError:
        return
    assert isinstance(validator.check(value), list)
    schemas.understood(value, validator)


# -- plain words ------------------------------------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a", "b"]},
        "home": {"anyOf": [{"$ref": "#/$defs/home"}, {"type": "null"}]},
        "pets": {"type": "array", "items": {"$ref": "#/$defs/home"}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    },
}


@cases(
    ("value", "expected"),
    [
        ({}, ['Missing argument "name": expected a string of at least 2 characters']),
        ({"name": "Al", "nmae": 1}, ['Unknown argument "nmae": did you mean "name"?']),
        (
            {"name": "Al", "zzz": 1},
            ['Unknown argument "zzz": expected one of "name", "age", "kind", "home", "pets"'],
        ),
        (
            {"name": "Al", "age": "old"},
            ['Argument "age": expected an integer of at least 0 and of at most 150, got "old"'],
        ),
        ({"name": "Al", "kind": "c"}, ['Argument "kind": expected one of "a", "b", got "c"']),
        ({"name": "Al", "home": {"city": 3}}, ['Argument "home.city": expected a string, got 3']),
        (
            {"name": "Al", "pets": [{"city": "x"}, {"citty": "y"}]},
            [
                'Unknown key "citty" in argument "pets[1]": did you mean "city"?',
                'Missing key "city" in argument "pets[1]": expected a string',
            ],
        ),
        ({"name": "Al", "home": 3}, ['Argument "home": expected an object with "city" or null, got 3']),
    ],
    ids=str,
)
def test_problems_read_well(value: Any, expected: list[str]) -> None:
    assert sorted(lines(PERSON, value)) == sorted(expected)


def test_every_problem_of_a_value_is_named() -> None:
    problems = check(PERSON, {"age": -1, "kind": 1, "home": {}, "pets": [1, 2, 3], "x": 1})
    assert {problem.path[0] for problem in problems} == {"name", "age", "kind", "home", "pets", "x"}


def test_long_values_and_names_are_cut() -> None:
    (line,) = lines({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 10_000})
    assert len(line) < 200
    (line,) = lines({"additionalProperties": False}, {"y" * 10_000: 1})
    assert len(line) < 200


@cases(
    ("schema", "value"),
    [
        ({"not": {"type": "string"}}, "a"),
        ({"uniqueItems": True}, [1, 1]),
        ({"contains": {"const": 1}}, [2]),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}),
        ({"properties": {"a": False}}, {"a": 1}),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 3),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}),
        ({"minProperties": 1}, {}),
        ({"const": 1}, 2),
        ({"type": ["string", "null"]}, 1),
        ({"unevaluatedProperties": False}, {"a": 1}),
        ({"multipleOf": 3}, 4),
    ],
    ids=str,
)
def test_every_keyword_has_words(schema: dict[str, Any], value: Any) -> None:
    problems = check(schema, value)
    assert problems
    assert all(problem.message and "\n" not in problem.message for problem in problems)


# -- other readings ---------------------------------------------------------------------------------------------------


@cases(
    ("schema", "sent", "meant"),
    [
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "integer"}}, '["1", 2.0]', [1, 2]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
        ({"type": "string"}, "3", "3"),
        ({"type": ["string", "integer"]}, "3", "3"),
        ({"anyOf": [{"enum": ["x"]}, {"type": "integer"}]}, "3", "3"),
        ({"type": "integer"}, "three", "three"),
        ({"type": "integer"}, "[1]", "[1]"),
        ({"type": "integer"}, '"3"', '"3"'),
        ({"enum": [1, 2]}, "2", 2),
        ({"type": "number"}, 3.0, 3.0),
    ],
    ids=str,
)
def test_stand_ins_are_understood(schema: dict[str, Any], sent: Any, meant: Any) -> None:
    root = {"type": "object", "properties": {"a": schema}}
    found = schemas.understood({"a": sent}, schemas.compile(root, what="the schema"))["a"]
    assert found == meant
    assert json.dumps(found) == json.dumps(meant)


def test_the_value_that_was_sent_is_not_changed() -> None:
    sent = {"a": {"b": ["1"]}}
    schema = {"properties": {"a": {"properties": {"b": {"items": {"type": "integer"}}}}}}
    assert schemas.understood(sent, schemas.compile(schema, what="the schema")) == {"a": {"b": [1]}}
    assert sent == {"a": {"b": ["1"]}}


# -- compact ----------------------------------------------------------------------------------------------------------

#: Values that look like schemas: a reference to a definition that is renamed or moved, and a member that may be null.
LOOKS_LIKE_A_SCHEMA: dict[str, Any] = {
    "$ref": "#/$defs/Row",
    "type": "object",
    "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"$ref": "#/$defs/Row"}},
}


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples", "x-data"])
@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schemas.merge({"Row": {"type": "null"}}, schema),
        schemas.inline,
        schemas.without_optional_null,
        with_optional_null,
        _closed,
    ],
    ids=["merge", "inline", "without_optional_null", "with_optional_null", "closed"],
)
def test_data_that_looks_like_a_schema_is_not_changed(change: Callable[[Any], Any], keyword: str) -> None:
    data = [LOOKS_LIKE_A_SCHEMA] if keyword in ("enum", "examples") else LOOKS_LIKE_A_SCHEMA
    schema = {
        "type": "object",
        "properties": {"row": {"$ref": "#/$defs/Row"}, "data": {keyword: data}},
        "$defs": {"Row": {"type": "integer", keyword: data}},
    }
    before = json.dumps(data)
    changed = change(schema)
    assert changed["properties"]["data"] == {keyword: json.loads(before)} or (
        # `T or null` is said around the member, whose data stays.
        changed["properties"]["data"]["anyOf"][0] == {keyword: json.loads(before)}
    )
    assert json.dumps(data) == before


def test_merge_renames_references_in_schemas_alone() -> None:
    shared: dict[str, Any] = {"Row": {"type": "null"}}
    data = {"$ref": "#/$defs/Row"}
    body = schemas.merge(
        shared,
        {"items": {"$ref": "#/$defs/Row"}, "default": data, "$defs": {"Row": {"type": "integer", "const": data}}},
    )
    assert body == {"items": {"$ref": "#/$defs/Row2"}, "default": {"$ref": "#/$defs/Row"}}
    assert shared == {"Row": {"type": "null"}, "Row2": {"type": "integer", "const": {"$ref": "#/$defs/Row"}}}


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples", "$ref"])
def test_members_with_names_of_keywords_are_schemas(name: str) -> None:
    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    inner = {"type": "object", "properties": {"a": nullable}}
    definitions = {"Row": {"type": "integer"}}
    schema = {"type": "object", "properties": {name: {"$ref": "#/$defs/Row"}}, "$defs": definitions}
    assert schemas.inline(schema) == {"type": "object", "properties": {name: {"type": "integer"}}}
    assert schemas.without_optional_null({"properties": {name: inner}}) == {
        "properties": {name: {"type": "object", "properties": {"a": {"type": "string"}}}}
    }


def test_dependencies_of_older_drafts_are_walked() -> None:
    names = ["b"]
    schema = {"dependencies": {"a": names, "c": {"$ref": "#/$defs/Row"}}, "$defs": {"Row": {"type": "integer"}}}
    assert schemas.inline(schema) == {"dependencies": {"a": ["b"], "c": {"type": "integer"}}}
    assert list(subschemas(schema)) == [{"$ref": "#/$defs/Row"}, {"type": "integer"}]


def test_merge_renames_what_would_clash() -> None:
    definitions: dict[str, Any] = {"A": {"type": "string"}}
    body = schemas.merge(
        definitions,
        {
            "$ref": "#/$defs/A",
            "$defs": {"A": {"properties": {"b": {"$ref": "#/$defs/B"}, "a": {"$ref": "#/$defs/A"}}}, "B": {}},
        },
    )
    assert body == {"$ref": "#/$defs/A2"}
    assert definitions["A"] == {"type": "string"}
    assert definitions["A2"] == {"properties": {"b": {"$ref": "#/$defs/B"}, "a": {"$ref": "#/$defs/A2"}}}


def test_inline_keeps_shared_and_recursive_definitions() -> None:
    schema = {
        "properties": {"once": {"$ref": "#/$defs/once"}, "a": {"$ref": "#/$defs/two"}, "b": {"$ref": "#/$defs/two"}},
        "$defs": {
            "once": {"type": "string", "description": "general"},
            "two": {"type": "array", "items": {"$ref": "#/$defs/loop"}},
            "loop": {"properties": {"next": {"$ref": "#/$defs/loop"}}},
            "unused": {},
        },
    }
    compact = schemas.inline(schema)
    assert compact["properties"]["once"] == {"type": "string", "description": "general"}
    assert list(compact["$defs"]) == ["two", "loop"]


def test_what_is_said_at_the_place_of_use_wins() -> None:
    compact = schemas.inline(
        {
            "items": {"$ref": "#/$defs/a", "description": "mine"},
            "$defs": {"a": {"type": "string", "description": "its"}},
        }
    )
    assert compact == {"items": {"type": "string", "description": "mine"}}


def test_defaults_that_look_like_references_stay() -> None:
    schema = {"properties": {"a": {"default": {"$ref": "#/$defs/x"}}}, "$defs": {"x": {"type": "string"}}}
    assert schemas.inline(schema) == {"properties": {"a": {"default": {"$ref": "#/$defs/x"}}}}


NEWER = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema")
OLDER = tuple(f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7))


@pytest.mark.covers("E18")
@cases("dialect", [*NEWER, *OLDER])
def test_formats_are_checked_by_older_dialects_only(dialect: str) -> None:
    validator = schemas.compile({"$schema": dialect, "properties": {"day": {"format": "date"}}}, what="it")
    assert bool(validator.check({"day": "nonsense"})) == (dialect in OLDER)
    assert validator.check({"day": "2026-01-31"}) == []


@pytest.mark.covers("E18")
def test_the_documentation_says_what_is_validated() -> None:
    text = (Path(__file__).parents[1] / "docs" / "concepts" / "tools.md").read_text(encoding="utf-8")
    assert (
        f"{schemas.MAX_BYTES >> 20} MiB, {schemas.MAX_SUBSCHEMAS:,} subschemas and {schemas.MAX_DEPTH} levels" in text
    )
    assert "2020-12" in text and "2019-09 or draft 7, 6 or 4" in text
