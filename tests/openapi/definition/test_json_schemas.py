"""Schema Objects as JSON Schema: each construct in each version of OpenAPI."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.descriptions import OneDescription, description

from toolwire import schemas
from toolwire.openapi.definition.json_schemas import ConvertedSchema, JsonSchemas, Use
from toolwire.openapi.model import DescriptionError, Node

VERSIONS = ["3.0.3", "3.1.0", "3.2.0"]
TEXT = {"type": "string"}


def converted(
    schema: Any, use: Use = "input", version: str = "3.0.3", *, depth: int | None = None, **definitions: Any
) -> ConvertedSchema:
    """Convert a schema with its definitions, and check that the engine takes the result."""
    described = description(version, components={"schemas": {**definitions, "Root": schema}})
    made = JsonSchemas(described, use)
    first = made.convert(Node(schema, described.root, "/components/schemas/Root"))
    result = made.closed(made.content(first.schema), depth=depth)
    schemas.compile(result.schema, what="the schema")
    return ConvertedSchema(result.schema, (*first.warnings, *result.warnings))


def fits(schema: Any, value: Any) -> bool:
    return schemas.compile(schema, what="the schema").fits(value)


# -- Dialects ----------------------------------------------------------------------------------------------------------


@cases("version", VERSIONS)
@cases(
    ("written", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"type": "number", "exclusiveMinimum": 1.5}, {"type": "number", "exclusiveMinimum": 1.5}),
        ({"type": "string", "example": "x", "xml": {}, "externalDocs": {}, "title": "T", "x-a": 1}, {"type": "string"}),
        ({"type": "string", "format": "byte"}, {"type": "string", "contentEncoding": "base64"}),
        ({"type": "string", "format": "binary"}, {"type": "string", "contentEncoding": "base64"}),
        ({"type": "integer", "format": "int64"}, {"type": "integer", "format": "int64"}),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}]}),
        ({}, {}),
    ],
)
def test_dialects_become_one(written: Any, expected: Any, version: str) -> None:
    assert converted(written, version=version) == (expected, ())


@cases(("version", "is_kept"), [("3.0.3", False), ("3.1.0", True), ("3.2.0", True)])
def test_members_beside_a_reference_count_since_3_1(version: str, is_kept: bool) -> None:
    written = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Name", "maxLength": 3}}}
    made = converted(written, version=version, Name={"type": "string", "minLength": 1}).schema
    assert fits(made, {"a": "long name"}) is not is_kept
    assert not fits(made, {"a": ""})


@pytest.mark.parametrize(("version", "is_kept"), [("3.1.0", True), ("3.2.0", True)])
def test_boolean_schemas(version: str, is_kept: bool) -> None:
    made = converted({"type": "object", "properties": {"a": True, "b": False}}, version=version).schema
    assert fits(made, {"a": 1})
    assert not fits(made, {"b": 1})


@cases("use", ["input", "output"])
@cases("wrapper", ["allOf", "anyOf", "oneOf"])
def test_a_nullable_choice_takes_null(use: Use, wrapper: str) -> None:
    written = {
        "type": "object",
        "properties": {"a": {"nullable": True, wrapper: [{"$ref": "#/components/schemas/Name"}]}},
    }
    made = converted(written, use, Name=TEXT).schema
    assert fits(made, {"a": None})
    assert fits(made, {"a": "x"})
    assert not fits(made, {"a": 1})


# -- Positions ---------------------------------------------------------------------------------------------------------


@pytest.mark.pairwise
@pytest.mark.covers("OA-3.3")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("use", ["input", "output", "loose"])
@pytest.mark.parametrize(
    "name", ["$ref", "properties", "required", "type", "default", "enum", "items", "allOf", "$defs"]
)
def test_a_property_may_be_called_like_a_keyword(name: str, use: Use, version: str) -> None:
    written = {"type": "object", "properties": {name: {"$ref": "#/components/schemas/Name"}, "b": TEXT}}
    made = converted(written, use, version, Name={"type": "object", "properties": {name: {"type": "integer"}}}).schema
    assert fits(made, {name: {name: 1}, "b": "x"})
    assert not fits(made, {name: {name: "text"}})
    assert not fits(made, {name: 3})


def test_data_is_no_schema() -> None:
    data = {"$ref": "#/components/schemas/None", "nullable": True}
    made = converted({"type": "object", "properties": {"a": {"default": data, "enum": [data], "example": data}}}).schema
    assert made["properties"]["a"] == {"default": data, "enum": [data]}


# -- References --------------------------------------------------------------------------------------------------------

TREE = {
    "type": "object",
    "properties": {"value": TEXT, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    "required": ["value"],
}
CYCLES: dict[str, dict[str, Any]] = {
    "itself": {"Tree": TREE},
    "two": {
        "Tree": {"type": "object", "properties": {"value": TEXT, "next": {"$ref": "#/components/schemas/Other"}}},
        "Other": {"type": "object", "properties": {"back": {"$ref": "#/components/schemas/Tree"}}},
    },
    "map": {"Tree": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tree"}}},
    "choice": {
        "Tree": {"anyOf": [TEXT, {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}]},
    },
}


@pytest.mark.pairwise
@pytest.mark.covers("OA-3.2")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("use", ["input", "output", "loose"])
@pytest.mark.parametrize("cycle", CYCLES)
def test_cycles_are_kept_as_definitions(cycle: str, use: Use, version: str) -> None:
    written = {"type": "object", "properties": {"tree": {"$ref": "#/components/schemas/Tree"}}}
    made = converted(written, use, version, **CYCLES[cycle]).schema
    assert "Tree" in made["$defs"]
    assert "#/components" not in str(made)


def test_a_cycle_is_judged_at_every_level() -> None:
    made = converted({"$ref": "#/components/schemas/Tree"}, Tree=TREE).schema
    assert made["type"] == "object", "the root says what it is"
    assert fits(made, {"value": "a", "children": [{"value": "b", "children": []}]})
    assert not fits(made, {"value": "a", "children": [{"value": "b", "children": [{}]}]})


@cases(
    "endless",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"allOf": [{"$ref": "#/components/schemas/A"}, TEXT]}},
        {"A": {"anyOf": [{"$ref": "#/components/schemas/B"}]}, "B": {"oneOf": [{"$ref": "#/components/schemas/A"}]}},
        {"A": {"allOf": [{"$ref": "#/components/schemas/B"}]}, "B": {"allOf": [{"$ref": "#/components/schemas/A"}]}},
        {"A": {"not": {"$ref": "#/components/schemas/A"}}},
    ],
)
@cases("use", ["input", "output", "loose"])
def test_a_schema_that_judges_by_itself_without_end_takes_any_value(endless: dict[str, Any], use: Use) -> None:
    made = converted({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}}, use, **endless)
    assert fits(made.schema, {"a": "text"})


@pytest.mark.covers("OA-3.3")
@cases("use", ["input", "output", "loose"])
def test_definitions_are_closed_and_pruned(use: Use) -> None:
    chain = {
        f"S{n}": {"type": "object", "properties": {"a": {"$ref": f"#/components/schemas/S{n + 1}"}}} for n in range(5)
    }
    chain["S5"] = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
    unused = {"Unused": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S0"}}}}
    written = {
        "type": "object",
        "properties": {"x": {"$ref": "#/components/schemas/S0"}, "y": {"$ref": "#/components/schemas/S0"}},
    }
    made = converted(written, use, **chain, **unused).schema
    assert "Unused" not in made["$defs"]
    assert fits(made, {"x": {"a": {"a": {"a": {"a": {"a": {"a": "text"}}}}}}})
    assert not fits(made, {"y": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}})


def test_a_definition_that_is_used_once_stands_where_it_is_used() -> None:
    written = {"type": "object", "properties": {"x": {"$ref": "#/components/schemas/A"}}}
    assert converted(written, A={"type": "object", "properties": {"b": TEXT}}).schema == {
        "type": "object",
        "properties": {"x": {"type": "object", "properties": {"b": TEXT}}},
    }


def test_a_reference_to_nothing_names_its_place() -> None:
    with pytest.raises(DescriptionError, match="leads to nothing"):
        converted({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/None"}}})


@pytest.mark.covers("OA-3.2")
@cases("depth", [1, 2, 4])
@cases("cycle", CYCLES)
def test_depth_leaves_no_reference(cycle: str, depth: int) -> None:
    written = {"type": "object", "properties": {"tree": {"$ref": "#/components/schemas/Tree"}}}
    made = converted(written, depth=depth, **CYCLES[cycle]).schema
    assert "$ref" not in str(made)
    assert "left out" in str(made), "a note says that something is missing"


def test_depth_keeps_the_levels_above_it() -> None:
    made = converted({"$ref": "#/components/schemas/Tree"}, depth=3, Tree=TREE).schema
    assert not fits(made, {"value": "a", "children": [{"value": 1}]})
    assert fits(made, {"value": "a", "children": [{"value": "b", "children": [{"value": 1}]}]})


# -- Composition -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-3.4")
@cases("use", ["input", "output"])
@cases(
    ("parts", "expected"),
    [
        (  # disjoint members
            [{"type": "object", "properties": {"a": TEXT}}, {"properties": {"b": TEXT}, "required": ["b"]}],
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["b"]},
        ),
        (  # equal members
            [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"a": TEXT}, "required": ["a"]}],
            {"properties": {"a": TEXT}, "required": ["a"]},
        ),
        (  # disjoint constraints of one member
            [{"properties": {"a": {"type": "string", "minLength": 1}}}, {"properties": {"a": {"maxLength": 3}}}],
            {"properties": {"a": {"type": "string", "minLength": 1, "maxLength": 3}}},
        ),
        ([{"type": ["string", "null"]}, {"type": "string"}], {"type": "string"}),
        ([{"type": "number"}, {"type": "integer"}], {"type": "integer"}),
    ],
)
def test_exact_composition_becomes_one_schema(parts: list[Any], expected: Any, use: Use) -> None:
    assert converted({"allOf": parts}, use).schema == expected


@pytest.mark.covers("OA-3.4")
@cases(
    "parts",
    [
        [{"minimum": 1}, {"minimum": 2}],
        [{"type": "string"}, {"type": "integer"}],
        [{"pattern": "^a"}, {"pattern": "b$"}],
        [{"enum": ["a"]}, {"enum": ["b"]}],
        [{"properties": {"a": TEXT}, "additionalProperties": False}, {"properties": {"b": TEXT}}],
        [{"properties": {"a": {"minLength": 1}}}, {"properties": {"a": {"minLength": 2}}}],
        [{"anyOf": [TEXT]}, {"anyOf": [{"type": "integer"}, TEXT]}],
        [{"items": TEXT}, {"prefixItems": [{"type": "integer"}]}],
    ],
)
def test_composition_that_is_not_exact_stays(parts: list[Any]) -> None:
    made = converted({"allOf": parts}, version="3.1.0").schema
    assert "allOf" in made
    together = schemas.compile({"allOf": parts}, what="the original")
    values: list[Any] = [
        "a",
        "b",
        "ab",
        1,
        2,
        0,
        {},
        {"a": "x"},
        {"b": "x"},
        {"a": "xx", "b": "y"},
        ["a"],
        [1, "b"],
        [1, 1],
    ]
    for value in values:
        assert fits(made, value) == together.fits(value), value


def test_composition_takes_the_members_of_a_base() -> None:
    base = {
        "type": "object",
        "properties": {"id": TEXT, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Child"}}},
    }
    child = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"name": TEXT}}], "description": "A child"}
    made = converted({"$ref": "#/components/schemas/Child"}, Base=base, Child=child).schema
    assert list(made["properties"]) == ["id", "children", "name"]
    assert made["description"] == "A child"


@pytest.mark.covers("OA-3.4")
def test_overlapping_choices_refuse_no_answer() -> None:
    written = {"oneOf": [{"type": "object", "properties": {"a": TEXT}}, {"type": "object", "properties": {"b": TEXT}}]}
    for use in ("output", "loose"):
        assert fits(converted(written, use).schema, {"a": "x", "b": "y"})
    assert "oneOf" in converted(written, "input").schema


# -- Discriminators ----------------------------------------------------------------------------------------------------

PETS: dict[str, Any] = {
    "Cat": {"type": "object", "properties": {"kind": TEXT, "claws": {"type": "integer"}}},
    "Dog": {"type": "object", "properties": {"kind": TEXT, "bark": TEXT}},
}


@pytest.mark.pairwise
@pytest.mark.covers("OA-3.4")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize(
    ("mapping", "cats", "dogs"),
    [
        (None, ["Cat"], ["Dog"]),
        ({"cat": "#/components/schemas/Cat", "dog": "Dog"}, ["cat"], ["dog"]),
        ({"cat": "Cat", "kitten": "#/components/schemas/Cat"}, ["cat", "kitten"], ["Dog"]),
        ({"cat": "Cat", "bird": "#/components/schemas/Bird"}, ["cat"], ["Dog"]),
    ],
)
def test_a_discriminator_is_a_constant_of_each_choice(
    mapping: Any, cats: list[str], dogs: list[str], keyword: str, version: str
) -> None:
    discriminator = {"propertyName": "kind", **({"mapping": mapping} if mapping else {})}
    choices = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]
    made = converted({keyword: choices, "discriminator": discriminator}, version=version, **PETS).schema
    for kind in cats:
        assert fits(made, {"kind": kind, "claws": 1})
        assert not fits(made, {"kind": kind, "claws": "text"})
    for kind in dogs:
        assert fits(made, {"kind": kind, "bark": "loud"})
        assert not fits(made, {"kind": kind, "bark": 1})
    assert not fits(made, {"kind": "bird"})
    assert not fits(made, {"claws": 1})
    branch = made[keyword][1]["properties"]["kind"]
    assert branch == {"type": "string", "const": dogs[0]}


def test_choices_with_values_of_their_own_keep_them() -> None:
    pets = {
        "Cat": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["cat", "kitten"]}}},
        "Dog": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["dog"]}}},
        "Fish": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["FISH"]}}},
    }
    choices = [{"$ref": f"#/components/schemas/{name}"} for name in pets]
    discriminator = {"propertyName": "kind", "mapping": {"kitten": "Cat", "dog": "Dog"}}
    made = converted({"oneOf": choices, "discriminator": discriminator}, **pets)
    assert fits(made.schema, {"kind": "kitten"})
    assert not fits(made.schema, {"kind": "cat"})
    assert fits(made.schema, {"kind": "dog"})
    assert fits(made.schema, {"kind": "FISH"})
    assert any("does not take" in text for text in made.warnings)


def test_a_default_of_a_discriminator_takes_other_values() -> None:
    discriminator = {"propertyName": "kind", "mapping": {"cat": "Cat"}, "defaultMapping": "Dog"}
    choices = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]
    made = converted({"oneOf": choices, "discriminator": discriminator}, version="3.2.0", **PETS).schema
    assert fits(made, {"kind": "wolf", "bark": "x"})
    assert fits(made, {"bark": "x"})


# -- readOnly and writeOnly --------------------------------------------------------------------------------------------


@pytest.mark.pairwise
@pytest.mark.covers("OA-3.5")
@pytest.mark.parametrize(("use", "gone"), [("input", "readOnly"), ("output", "writeOnly"), ("loose", "writeOnly")])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", ["inline", "referenced", "composed"])
def test_members_of_the_other_direction_leave(form: str, version: str, use: Use, gone: str) -> None:
    hidden: dict[str, Any] = {
        "inline": {"type": "string", gone: True},
        "referenced": {"$ref": "#/components/schemas/Hidden"},
        "composed": {"allOf": [{"$ref": "#/components/schemas/Name"}, {gone: True}]},
    }[form]
    written = {"type": "object", "properties": {"a": hidden, "b": TEXT}, "required": ["a", "b"]}
    made = converted(written, use, version, Hidden={"type": "string", gone: True}, Name=TEXT).schema
    assert list(made["properties"]) == ["b"]
    assert made.get("required", ["b"]) == ["b"]
    other = "output" if use == "input" else "input"
    assert (
        "a" in converted(written, other, version, Hidden={"type": "string", gone: True}, Name=TEXT).schema["required"]
    )


@pytest.mark.parametrize(("version", "is_hidden"), [("3.0.3", False), ("3.1.0", True)])
def test_read_only_beside_a_reference_counts_since_3_1(version: str, is_hidden: bool) -> None:
    written = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Name", "readOnly": True}}}
    assert ("a" not in converted(written, version=version, Name=TEXT).schema["properties"]) is is_hidden


@pytest.mark.parametrize("closed", [False, True])
def test_a_part_that_requires_a_hidden_member_of_its_base_does_not(closed: bool) -> None:
    base: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "string", "readOnly": True}, "a": TEXT}}
    if closed:
        base["additionalProperties"] = False  # cannot be merged
    parts = [{"$ref": "#/components/schemas/Base"}, {"$ref": "#/components/schemas/Needs"}]
    made = converted({"allOf": parts}, Base=base, Needs={"required": ["id", "a"], "properties": {"a": TEXT}}).schema
    assert fits(made, {"a": "x"})
    assert not fits(made, {})


# -- Loosened answers --------------------------------------------------------------------------------------------------


@cases("version", VERSIONS)
def test_a_loose_schema_has_the_shape_and_no_more(version: str) -> None:
    written = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "minProperties": 3,
        "properties": {
            "a": {"type": "string", "format": "date", "enum": ["x"], "pattern": "^x", "minLength": 3},
            "n": {"type": "number", "minimum": 3, "multipleOf": 2},
            "l": {"type": "array", "items": {"oneOf": [TEXT, {"type": "string", "maxLength": 3}]}, "uniqueItems": True},
        },
    }
    assert converted(written, "loose", version).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"type": "number"},
            "l": {"type": "array", "items": {"anyOf": [TEXT, TEXT]}},
        },
    }


# -- Quirks ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-3.6")
@cases(
    ("written", "expected", "says"),
    [
        ({"type": "text"}, {}, "type 'text' is unknown"),
        ({"type": "string", "required": True}, {"type": "string"}, None),
        ({"type": "object", "required": "a"}, {"type": "object"}, "required is not a list"),
        ({"type": "object", "required": ["a", "a", 3]}, {"type": "object", "required": ["a"]}, None),
        ({"type": "object", "properties": []}, {"type": "object"}, "properties is not an object"),
        ({"type": "string", "enum": []}, {"type": "string"}, "enum has no values"),
        ({"type": "string", "enum": [1, True, "a"]}, {"type": "string", "enum": ["1", "true", "a"]}, None),
        ({"type": "integer", "enum": ["1", 2]}, {"type": "integer", "enum": [1, 2]}, None),
        ({"type": "string", "pattern": "*"}, {"type": "string"}, "the pattern '*'"),
        ({"type": "string", "pattern": 3}, {"type": "string"}, "the pattern is not a text"),
        ({"type": "string", "maxLength": "3"}, {"type": "string"}, "maxLength is not a whole number"),
        ({"type": "string", "maxLength": 3.0}, {"type": "string", "maxLength": 3}, None),
        ({"type": "string", "minLength": -1}, {"type": "string"}, "minLength is not a whole number"),
        ({"type": "number", "minimum": "a"}, {"type": "number"}, "minimum is not a number"),
        ({"type": "number", "multipleOf": 0}, {"type": "number"}, "multipleOf is not a number"),
        ({"anyOf": []}, {}, "anyOf is not a list of schemas"),
        ({"type": "object", "properties": {"a": None}}, {"type": "object", "properties": {"a": {}}}, "is not a schema"),
        ({"type": "string", "description": None, "format": None}, {"type": "string"}, None),
        ({"type": "file"}, {"type": "string", "contentEncoding": "base64"}, None),
        ({"type": "string", "contentEncoding": 1}, {"type": "string"}, None),
    ],
)
def test_mistakes_of_documents_are_left_out_with_a_warning(written: Any, expected: Any, says: str | None) -> None:
    made = converted(written)
    assert made.schema == expected
    assert len(made.warnings) == (says is not None)
    assert all(str(says) in text and "openapi.json#" in text for text in made.warnings)


def test_descriptions_have_no_html() -> None:
    made = converted({"type": "string", "description": "<p>The <b>name</b></p>"}).schema
    assert made["description"] == "The name"


# -- Bounds ------------------------------------------------------------------------------------------------------------


@cases("use", ["input", "output", "loose"])
def test_deep_schemas_are_cut(use: Use) -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    assert "left out" in str(converted(deep, use).schema)


@cases("use", ["input", "output", "loose"])
def test_large_schemas_are_cut(use: Use) -> None:
    count = 3_000
    many = {
        f"S{n}": {
            "type": "object",
            "properties": {
                name: {"$ref": f"#/components/schemas/S{(n * 2 + index) % count}"} for index, name in enumerate("ab")
            },
        }
        for n in range(count)
    }
    made = converted({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S1"}}}, use, **many).schema
    assert "left out" in str(made)


@pytest.mark.slow
def test_a_long_chain_of_compositions_ends() -> None:
    count = 500
    chain = {
        f"S{n}": {"allOf": [{"$ref": f"#/components/schemas/S{n + 1}"}, {"properties": {f"p{n}": TEXT}}]}
        for n in range(count)
    }
    chain[f"S{count}"] = {"type": "object"}
    described = OneDescription({"openapi": "3.0.3", "paths": {}, "components": {"schemas": chain}})
    made = JsonSchemas(described, "input")
    first = made.convert(Node({"$ref": "#/components/schemas/S0"}, described.root))
    assert "p0" in str(made.closed(made.content(first.schema)).schema)
