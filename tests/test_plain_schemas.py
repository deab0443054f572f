"""Plain schemas are judged without the engine, and as the engine judges them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire import schemas
from toolwire.schemas.plain import MAX_PARTS, plain

DIALECTS = ("Draft202012Validator", "Draft201909Validator", "Draft7Validator", "Draft6Validator")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
NAMES = st.sampled_from(["a", "b", "ä", ""])
CONSTANTS = st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, 0.5, -7, 2**53 - 1, 1e-9, "", "a", "ä", "1"])
NUMBERS = st.sampled_from(
    [float("nan"), float("inf"), 2**53, 2.0**53, 2**53 + 1, 1e30, 10**30, 10**400, 1e300, -1e-320]
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "title": st.just("T"),
        "description": st.just("d"),
        "$comment": st.just("c"),
        "default": CONSTANTS,
        "examples": st.lists(CONSTANTS, max_size=2),
        "deprecated": st.booleans(),
        "x-of-somebody": CONSTANTS,
    },
)


def distinct(values: list[Any]) -> bool:
    return len({(type(value) is bool, value) for value in values}) == len(values)


def one_level(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
        },
    )
    constants = st.fixed_dictionaries({"const": CONSTANTS}) | st.fixed_dictionaries(
        {"enum": st.lists(CONSTANTS, min_size=1, max_size=5).filter(distinct)}
    )
    return st.builds(
        lambda said, constant, annotations: {**annotations, **said, **constant},
        keywords,
        st.just({}) | constants,
        ANNOTATIONS,
    )


SCHEMAS = one_level(st.recursive(st.booleans() | one_level(st.booleans()), one_level, max_leaves=6))
VALUES = st.recursive(
    CONSTANTS | NUMBERS | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.covers("OUT-2")
@pytest.mark.parametrize("dialect", DIALECTS)
@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=1, max_size=10))
@example(schema={"const": 0}, values=[-0.0, 0, False])
@example(schema={"enum": [1, "1"]}, values=[1.0, True, "1", [1]])
@example(schema={"type": "integer"}, values=[1.0, True, 1e300, float("inf"), 10**400])
@example(schema={"additionalProperties": {"type": "number"}}, values=[{"a": float("nan")}, {"a": 1}, []])
def test_the_engine_says_the_same(dialect: str, schema: dict[str, Any], values: list[Any]) -> None:
    glance = plain(schema, dialect)
    assert glance is not None
    engine = getattr(jsonschema_rs, dialect)(schema)
    for value in values:
        fits = glance.fits(value)
        # What is no number in JSON is left to the engine.
        if fits or not any(name in repr(value) for name in ("nan", "inf")):
            assert engine.is_valid(value) is fits


WORD = {"type": "string"}
NOT_PLAIN: list[Any] = [
    {"minimum": 1},
    {"$ref": "#/$defs/a", "$defs": {"a": WORD}},
    {"properties": {"a": {"anyOf": [WORD]}}},
    {"items": {"format": "date"}},
    {"additionalProperties": {"pattern": "a"}},
    {"properties": {"a": {"$schema": schemas.DIALECT}}},
    {"enum": [[1]]},
    {"const": {"a": 1}},
    {"const": 1, "enum": [1]},
    {"const": 2**53},
    {"enum": [1e30]},
    {"default": {"a": 1}},
    {"unknown": 1},
]
MALFORMED: list[Any] = [
    {"type": "text"},
    {"type": 1},
    {"type": []},
    {"type": ["string", "string"]},
    {"type": [["string"]]},
    {"required": "a"},
    {"required": ["a", "a"]},
    {"required": [1]},
    {"properties": []},
    {"properties": {"a": 3}},
    {"additionalProperties": 3},
    {"additionalProperties": None},
    {"items": 3},
    {"items": [WORD, 3]},
    {"enum": 3},
    {"title": 3},
    {"examples": 3},
    {"deprecated": 3},
    {"properties": {"a": {"items": {"type": "text"}}}},
]


@cases("schema", [*NOT_PLAIN, *MALFORMED], ids=repr)
@cases("dialect", DIALECTS)
def test_all_other_schemas_are_for_the_engine(schema: Any, dialect: str) -> None:
    assert plain(schema, dialect) is None


@cases("schema", MALFORMED, ids=repr)
def test_a_malformed_schema_is_refused_before_a_value_comes(schema: Any) -> None:
    with pytest.raises(schemas.SchemaError, match=r"^the schema is not valid: "):
        schemas.compile(schema, what="the schema")


def test_in_draft_4_the_engine_decides() -> None:
    assert plain({"type": "integer"}, "Draft4Validator") is None


class Text(str):
    pass


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@cases(
    ("schema", "value"),
    [
        ({}, object()),
        ({}, b"a"),
        ({}, {1: 2}),
        ({}, {"\ud800": 1}),
        (WORD, "\ud800"),
        (WORD, Text("a")),
        ({"type": "array"}, (1, 2)),
        ({"properties": {"a": True}}, {"a": object()}),
        ({"items": {"type": "integer"}}, [1] * MAX_PARTS),
        ({"items": {"items": {"type": "integer"}}}, [[1] * 20] * 20),
        ({"type": "object"}, {str(n): n for n in range(MAX_PARTS)}),
        ({"type": "object"}, {"a": ENDLESS}),
        ({"type": "object"}, {"a": [object()]}),
    ],
)
def test_what_is_large_or_no_json_is_for_the_engine(schema: Any, value: Any) -> None:
    glance = plain(schema, DIALECTS[0])
    assert glance is not None
    assert not glance.fits(value)


def test_what_does_not_fit_is_explained_as_ever() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    validator = schemas.compile(schema, what="the schema")
    assert validator.check({"result": 1.0}) == []
    assert [schemas.sentence(each, "value") for each in validator.check({"result": "1"})] == [
        schemas.sentence(each, "value")
        for each in schemas.compile({**schema, "allOf": [True]}, what="the schema").check({"result": "1"})
    ]
    assert validator.check({"result": 2}) == []
    assert validator.fits({"result": 2})
    assert not validator.fits({})


def test_small_values_that_fit_do_not_load_the_engine() -> None:
    script = """
import sys
from toolwire import schemas
schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
validator = schemas.compile(schema, what="the schema")
assert validator.check({"result": 3}) == [] and validator.fits({"result": 3.0})
assert "jsonschema_rs" not in sys.modules
assert validator.check({"result": "3"})
assert "jsonschema_rs" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
