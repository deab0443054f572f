"""Work is bounded by the size of what a peer sent: a small multiple of it, for every shape.

Steps are counted, never time: lines of Python that run. What the engine of schemas does is not seen by this, so that
values which would keep it busy for years stand here too: without their bounds, these tests never end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Literal, Union

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.counted_steps import steps_of

from toolwire import schemas
from toolwire.adapters.pydantic_models import PydanticAdapter
from toolwire.cli import lint_vendors
from toolwire.client.errors import InvalidResponse
from toolwire.client.tools import MAX_KEPT, KnownTools, decode_called_typed, value_of
from toolwire.inspector.excerpt import Excerpt
from toolwire.protocol import http
from toolwire.protocol import types as t
from toolwire.protocol.cursors import decode_cursor
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.parameter_headers import BadHeader, header_paths
from toolwire.protocol.surrogates import readable
from toolwire.protocol.uri_template import UriTemplate
from toolwire.redaction import Redaction
from toolwire.schemas import expected
from toolwire.server.binding import Binding, InvalidArguments, bind
from toolwire.testing.schema_values import RandomMaker

# What reading any arguments may take, however short they are, and what each byte may add. A first refusal compiles the
# schema, which is paid before counting. The most for a byte is what a choice of pydantic models takes for `[{},{},{}]`:
# counting attempts, twice, and looking for the mistake in each alternative.
OF_ANY = 25_000
PER_BYTE = 1_200


class And(msgspec.Struct, tag="and", tag_field="op"):
    args: list[Filter]


class Or(msgspec.Struct, tag="or", tag_field="op"):
    args: list[Filter]


class Leaf(msgspec.Struct, tag="leaf", tag_field="op"):
    n: int


Filter = Union[And, Or, Leaf]  # noqa: UP007  the names in it are known later


def structs(filter: Filter) -> None:
    """Take a filter, as classes of msgspec."""


@dataclass
class PlainAnd:
    op: Literal["and"]
    args: list[PlainFilter]


@dataclass
class PlainOr:
    op: Literal["or"]
    args: list[PlainFilter]


@dataclass
class PlainLeaf:
    op: Literal["leaf"]
    n: int


PlainFilter = Union[PlainAnd, PlainOr, PlainLeaf]  # noqa: UP007


def dataclasses(filter: PlainFilter) -> None:
    """Take a filter, as dataclasses."""


class ModelAnd(pydantic.BaseModel):
    op: Literal["and"]
    args: list[ModelFilter]


class ModelOr(pydantic.BaseModel):
    op: Literal["or"]
    args: list[ModelFilter]


class ModelLeaf(pydantic.BaseModel):
    op: Literal["leaf"]
    n: int


ModelFilter = Union[ModelAnd, ModelOr, ModelLeaf]  # noqa: UP007


def models(filter: ModelFilter) -> None:
    """Take a filter, as models of pydantic, which tries every alternative."""


class TaggedAnd(pydantic.BaseModel):
    op: Literal["and"]
    args: list[TaggedFilter]


class TaggedOr(pydantic.BaseModel):
    op: Literal["or"]
    args: list[TaggedFilter]


TaggedFilter = Annotated[Union[TaggedAnd, TaggedOr, ModelLeaf], pydantic.Field(discriminator="op")]  # noqa: UP007


def tagged(filter: TaggedFilter) -> None:
    """Take a filter, as models of pydantic that say which one is meant."""


def branch(op: str, name: str, member: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"op": {"const": op}, name: member}, "required": ["op", name]}


ARGS = {"type": "array", "items": {"$ref": "#/$defs/filter"}}
CHOICES = [branch("and", "args", ARGS), branch("or", "args", ARGS), branch("leaf", "n", {"type": "integer"})]
ROOT = {"type": "object", "properties": {"filter": {"$ref": "#/$defs/filter"}}}
RAW = {kind: {**ROOT, "$defs": {"filter": {kind: CHOICES}}} for kind in ("anyOf", "oneOf")}


TYPED = {"structs": structs, "dataclasses": dataclasses, "models": models, "tagged": tagged}
KINDS = [*TYPED, *RAW]


def reader(kind: str) -> Binding:
    if kind in TYPED:
        return bind(TYPED[kind], is_context=lambda annotation: False)
    return bind(lambda arguments: None, name=kind, input_schema=RAW[kind], is_context=lambda annotation: False)


def nested(depth: int, number: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"op": "leaf", "n": number}
    for level in range(depth):
        value = {"op": "and" if level % 2 else "or", "args": [value]}
    return value


def read(binding: Binding, value: Any) -> str:
    """Read arguments; the lines that refuse them, or nothing."""
    try:
        binding.arguments(msgspec.json.encode({"filter": value}))
    except (InvalidArguments, ProtocolError) as error:
        return str(error)
    return ""


@pytest.mark.pairwise
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [1, 4, 40, 55])
@pytest.mark.parametrize("number", [1, 1.0, 1.5, "1", "x", None], ids=str)
def test_a_recursive_choice_costs_what_its_size_says(kind: str, depth: int, number: Any) -> None:
    binding = reader(kind)
    read(binding, "no filter")
    value = nested(depth, number)
    size = len(msgspec.json.encode(value))
    told: list[str] = []
    assert steps_of(lambda: told.append(read(binding, value)), OF_ANY + PER_BYTE * size)
    # pydantic tries each alternative on each level anew, unless it is told which one is meant.
    is_too_deep = kind == "models" and depth > 4
    assert bool(told[0]) == (is_too_deep or number in (1.5, "x", None))
    if is_too_deep and number == 1:
        assert told[0] == 'Argument "filter": nested too deeply for a choice without a discriminator'


@cases("kind", KINDS)
def test_the_place_of_a_mistake_in_a_recursive_choice_is_named(kind: str) -> None:
    told = read(reader(kind), nested(3, "x"))
    assert told == 'Argument "filter.args[0].args[0].args[0].n": expected an integer, got "x"'


# -- Every shape ------------------------------------------------------------------------------------------------------


def wrapped(value: Any, times: int) -> Any:
    for level in range(times):
        value = {"op": "or", "args": [value]} if level % 3 else [value]
    return value


LEAVES = st.sampled_from([None, True, 0, 3.0, 1e300, -1, "", "3", "x" * 40, "[1, 2]", '{"a": "1"}', "%41", "../.."])
NAMES = st.sampled_from(["a", "op", "args", "n", "type", "text", "$ref", "anyOf", "items", "password", "x" * 30, "and"])
GROWN = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(NAMES, inner, max_size=5),
        st.builds(lambda value, times: [value] * times, inner, st.integers(1, 40)),
        st.builds(wrapped, inner, st.integers(1, 20)),
    ),
    max_leaves=8,
)


def size_of(value: Any) -> int:
    return len(msgspec.json.encode(value))


def bounded(size: int, call: Callable[[], Any]) -> None:
    """Run a call, which may refuse what it is given, within the steps that its size allows."""

    def run() -> None:
        with contextlib.suppress(ToolwireError, ValueError, msgspec.DecodeError, RecursionError, LookupError):
            call()

    steps_of(run, OF_ANY + PER_BYTE * size)


@pytest.fixture(scope="module")
def readers() -> list[Binding]:
    found = [reader(kind) for kind in KINDS]
    for each in found:
        read(each, "no filter")  # A first refusal compiles the schema.
    return found


@given(value=GROWN)
def test_arguments_of_every_shape(readers: list[Binding], value: Any) -> None:
    data = msgspec.json.encode({"filter": value})
    for each in readers:
        bounded(len(data), lambda each=each: each.arguments(data))  # type: ignore[misc]


@given(value=GROWN)
def test_results_of_every_shape(value: Any) -> None:
    data = msgspec.json.encode({"content": [{"type": "text", "text": "x"}, value], "structuredContent": value})
    bounded(len(data), lambda: value_of("t", decode_called_typed(msgspec.Raw(data)), PlainFilter, wrapped=False))
    known = KnownTools()
    known.learn([t.Tool(name="t", input_schema={"type": "object"}, output_schema=RAW["oneOf"])])
    check(known, {"filter": 0})
    bounded(len(data), lambda: check(known, {"filter": value}))


def check(known: KnownTools, value: Any) -> None:
    with contextlib.suppress(InvalidResponse):
        known.check("t", t.CallToolResult(content=[], structured_content=value))


KEYWORDS = st.sampled_from(
    ["properties", "items", "anyOf", "oneOf", "allOf", "not", "$defs", "patternProperties", "prefixItems", "if"]
)
SMALL: list[Any] = [
    {}, True, {"type": "integer"}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"pattern": "^(a+)+$"},
    {"multipleOf": 0.01}, {"enum": [1, "a", {"b": 2}]}, {"x-mcp-header": "A", "type": "string"}, {"$dynamicRef": "#m"},
]  # fmt: skip


def keyword_with(keyword: str, parts: list[Any]) -> dict[str, Any]:
    if keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return {keyword: parts}
    if keyword in ("properties", "$defs", "patternProperties"):
        return {keyword: dict(zip("abcde", parts, strict=False))}
    return {keyword: parts[0]}


SCHEMAS = st.recursive(
    st.sampled_from(SMALL),
    lambda inner: st.builds(keyword_with, KEYWORDS, st.lists(inner, min_size=1, max_size=5)),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, value=GROWN)
def test_schemas_of_foreign_servers_of_every_shape(schema: Any, value: Any) -> None:
    schema = {**schema, "$dynamicAnchor": "m"} if isinstance(schema, dict) else {"allOf": [schema]}
    size = size_of(schema)
    bounded(size, lambda: header_paths(schema))
    bounded(size, lambda: expected(schema, schema))
    tool = t.Tool(name="t", input_schema=schema, description="x")
    bounded(size, lambda: list(lint_vendors.check(tool)))
    bounded(size, lambda: RandomMaker(schema, Random(1)).whole(schema))
    try:
        validator = schemas.compile(schema, what="the schema")
    except schemas.SchemaError:
        return
    bounded(size, lambda: schemas.compile(schema, what="the schema"))
    bounded(size + size_of(value), lambda: schemas.reread(value, validator))


@given(value=GROWN)
def test_values_that_are_copied_are_looked_at_once(value: Any) -> None:
    redaction = Redaction(["op"], ["x+"])
    bounded(size_of(value), lambda: redaction.arguments(value))
    bounded(size_of(value), lambda: redaction.content(value))
    bounded(size_of(value), lambda: Excerpt(value))
    bounded(size_of(value), lambda: readable(value))
    bounded(size_of(value), lambda: t.decode(t.CallToolResult, msgspec.json.encode({"content": [], "_meta": value})))


PIECES = st.sampled_from(["/", ".", "a", "%41", "%2F", "?", "&", "a=b", "#", "-", "ab", ","])
TEMPLATES = [
    UriTemplate(text)
    for text in ("a://{x}", "a://{x}.{y}", "a://{+x}/{y}-{z}.{w}", "a://{x}{?a,b}", "a://{+p}.{q}{#f}", "a://{/x*}")
]


@given(pieces=st.lists(PIECES, max_size=60), times=st.integers(1, 20))
def test_uris_headers_and_cursors_of_every_shape(pieces: list[str], times: int) -> None:
    text = "".join(pieces) * times
    for template in TEMPLATES:
        bounded(len(text), lambda template=template: template.match("a://" + text))  # type: ignore[misc]
    bounded(len(text), lambda: UriTemplate("a://" + text))
    bounded(len(text), lambda: UriTemplate("a://{" + text.replace("/", "}{") + "}"))
    bounded(len(text), lambda: http.decode_value(text))
    bounded(len(text), lambda: http.decode_value(f"=?base64?{text}?="))
    bounded(len(text), lambda: http.encode_value(text))
    bounded(len(text), lambda: http.accepts({"accept": text}, "application/json"))
    bounded(len(text), lambda: decode_cursor(text, "tools"))


# -- What the engine would do -----------------------------------------------------------------------------------------


def test_many_headers_are_refused_and_not_compared_with_one_another() -> None:
    members = {f"a{number}": {"type": "string", "x-mcp-header": f"H{number}"} for number in range(5_000)}
    schema = {"type": "object", "properties": members}
    with pytest.raises(BadHeader, match="more than 64"):
        header_paths(schema)


@cases("count", [50, 1_000, 1_500])
def test_regular_expressions_of_a_document_share_their_memory(count: int) -> None:
    members = {f"a{number}": {"pattern": rf"\p{{L}}{{{number % 9 + 10}}}{number}"} for number in range(count)}
    with pytest.raises(schemas.SchemaError, match=r"regular expressions|regex"):
        schemas.compile({"type": "object", "properties": members}, what="the schema")


def test_validators_of_a_server_share_their_memory() -> None:
    known = KnownTools()
    patterned = {"type": "object", "properties": {"a": {"pattern": r"^\p{L}{3}$"}}}
    tools = [t.Tool(name=f"t{n}", input_schema={"type": "object"}, output_schema=patterned) for n in range(100)]
    known.learn(tools)
    for tool in tools:
        known.check(tool.name, t.CallToolResult(content=[], structured_content={"a": "abc"}))
    assert sum(each.weight for each in known._validators.values()) <= MAX_KEPT
    assert list(known._validators)[-1] == "t99"


@cases(
    ("schema", "has_short"),
    [
        ({"type": "integer"}, True),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, True),
        ({"type": "string", "pattern": "^(a|b){500}c$"}, True),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, True),
        ({"anyOf": [{"enum": [n, f"x{n}"]} for n in range(4_000)]}, True),
        ({"type": "array", "uniqueItems": True}, False),
        ({"type": "number", "multipleOf": 0.1}, False),
    ],
)
def test_every_text_that_is_short_is_cheap_enough(schema: dict[str, Any], has_short: bool) -> None:
    validator = schemas.compile(schema, what="the schema")
    assert (validator.short >= 0) == has_short
    for text in (b",", b"[", b"{", b"a"):
        assert not has_short or validator._effort.fits_text(text * validator.short)


@pytest.mark.parametrize("is_typed", [False, True])
def test_every_result_of_a_tool_is_checked_and_not_the_first_alone(is_typed: bool) -> None:
    known = KnownTools()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    known.learn([t.Tool(name="a", input_schema={}, output_schema=schema), t.Tool(name="b", input_schema={})])

    def check(value: Any, is_error: bool = False, name: str = "a") -> None:
        structured = msgspec.Raw(msgspec.json.encode(value)) if is_typed and value is not msgspec.UNSET else value
        known.check(name, t.CallToolResult(content=[], structured_content=structured, is_error=is_error))

    for _ in range(2):
        check({"n": 1})
        check({"n": "one"}, is_error=True)
        check(msgspec.UNSET, is_error=True)
        check({"n": "one"}, name="b")
        with pytest.raises(InvalidResponse, match="does not fit"):
            check({"n": "one"})
        with pytest.raises(InvalidResponse, match="no structured content"):
            check(msgspec.UNSET)
    known.learn([t.Tool(name="a", input_schema={}, output_schema={"type": "string"})])
    with pytest.raises(InvalidResponse, match="does not fit"):
        check({"n": 1})
    known.forget()
    check({"n": 1})


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_result_that_is_too_large_is_refused_also_after_small_ones(is_typed: bool) -> None:
    known = KnownTools()
    schema: dict[str, Any] = {"type": "array", "items": {"allOf": [{"type": "integer"}] * 4_000}}
    known.learn([t.Tool(name="a", input_schema={}, output_schema=schema)])
    for value, fits in (([1], True), ([1] * 100_000, False), ([1], True)):
        structured = msgspec.Raw(msgspec.json.encode(value)) if is_typed else value
        with contextlib.nullcontext() if fits else pytest.raises(InvalidResponse, match="too large"):
            known.check("a", t.CallToolResult(content=[], structured_content=structured))


@cases(
    ("schema", "value"),
    [
        ({"items": {"multipleOf": 0.01}}, [1e300] * 10_000),
        ({"items": {"multipleOf": 1e-300}}, [0.5] * 10_000),
        ({"pattern": "^([01]*1[01]{900}|0[01]*)z?[01]$"}, "01" * 200_000),
        ({"allOf": [{"items": {"minimum": number}} for number in range(2_000)]}, [0] * 100_000),
    ],
    ids=["very long numbers", "a very small divisor", "a long expression and a long text", "many rules for many items"],
)
def test_what_would_keep_the_engine_busy_is_refused(schema: Any, value: Any) -> None:
    problems = schemas.compile(schema, what="the schema").check(value)
    assert [problem.message for problem in problems] == ["too large or too deeply nested for this schema"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"multipleOf": 0.01}}, [0.25] * 5_000),
        ({"pattern": "^[A-Za-z0-9+/=]*$"}, "QUJD" * 500_000),
        ({"uniqueItems": True, "items": {"type": "integer"}}, list(range(50_000))),
        ({"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, [1, None] * 500_000),
    ],
    ids=["amounts", "a large file", "a large set", "a long list"],
)
def test_what_is_only_large_is_taken(schema: Any, value: Any) -> None:
    assert schemas.compile(schema, what="the schema").check(value) == []


ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}, "required": ["n"]}


def typed_rows(rows: list[int], n: int) -> None:
    """Take many numbers."""


@pytest.mark.parametrize("kind", ["typed", "raw"])
def test_a_large_mistake_is_refused_and_neither_repaired_nor_explained(kind: str) -> None:
    if kind == "typed":
        binding = bind(typed_rows, is_context=lambda annotation: False)
    else:
        binding = bind(lambda arguments: None, name="r", input_schema=ROWS, is_context=lambda annotation: False)
    data = msgspec.json.encode({"rows": [*range(200_000), "x"], "n": 1})
    told: list[str] = []

    def run() -> None:
        try:
            binding.arguments(data)
        except InvalidArguments as error:
            told.append(str(error))

    run()
    # No line for each item: neither to measure the value, nor to look for what is wrong.
    assert steps_of(run) < 20_000
    assert all("rows" in line for line in told)
    assert len(told) == 2


class Lists(pydantic.BaseModel):
    items: list[int] = []
    pairs: list[tuple[int, int]] = []
    many: tuple[int, ...] = ()
    unique: set[int] = set()
    frozen: frozenset[int] = frozenset()
    named: dict[str, int] = {}
    choice: list[int] | None = None
    renamed: list[int] = pydantic.Field([], alias="other name")


class Outer(pydantic.BaseModel):
    default: Lists


def models_in_lists(rows: list[Outer]) -> Any:
    """Take models that hold containers."""


COUNT = 20_000
WRONG = [f"x{number}" for number in range(COUNT)]
NUMBERS = list(range(COUNT))
LONG = {
    "items": (WRONG, NUMBERS),
    "pairs": ([[1, each] for each in WRONG], [[1, each] for each in NUMBERS]),
    "many": (WRONG, NUMBERS),
    "unique": (WRONG, NUMBERS),
    "frozen": (WRONG, NUMBERS),
    "named": (dict.fromkeys(WRONG, "x"), dict.fromkeys(WRONG, 1)),
    "choice": (WRONG, NUMBERS),
    "other name": (WRONG, NUMBERS),
}


@pytest.mark.parametrize("name", LONG)
def test_pydantic_stops_at_the_first_mistake_in_a_long_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def refusal(self: PydanticAdapter, error: Any) -> list[schemas.Problem]:
        found.append(error.error_count())
        return plain(self, error)

    plain = PydanticAdapter.refusal
    monkeypatch.setattr(PydanticAdapter, "refusal", refusal)
    binding = bind(models_in_lists, is_context=lambda annotation: False)
    wrong, right = LONG[name]
    with pytest.raises(InvalidArguments, match="rows"):
        binding.arguments(msgspec.json.encode({"rows": [{"default": {name: wrong}}]}))
    assert found == [1]
    taken = binding.arguments(msgspec.json.encode({"rows": [{"default": {name: right}}]}))
    assert taken == {"rows": [Outer.model_validate({"default": {name: right}})]}
    with pytest.raises(InvalidArguments, match="surplus"):
        binding.arguments(msgspec.json.encode({"rows": [{"default": {name: right}, "surplus": 1}]}))


def test_the_engine_is_not_asked_again_about_a_large_value_that_it_refused() -> None:
    validator = schemas.compile(ROWS, what="the schema")
    value = {"rows": [*range(50_000), "x"], "n": 1}
    assert not validator.fits(value)
    asked: list[Any] = []
    engine = validator._engine

    class Counting:
        def is_valid(self, value: Any) -> bool:
            asked.append(value)
            return bool(engine.is_valid(value))

    validator._engine = Counting()
    assert not validator.fits(value)
    same, problems = schemas.reread(value, validator, msgspec.json.encode(value), is_refused=True)
    assert same is value
    assert [problem.path for problem in problems] == [("rows",)]
    assert len(asked) == 1


def test_a_small_mistake_beside_a_large_argument_is_repaired_and_explained() -> None:
    binding = bind(typed_rows, is_context=lambda annotation: False)
    rows = list(range(100_000))
    assert binding.arguments(msgspec.json.encode({"rows": rows, "n": "3"})) == {"rows": rows, "n": 3}
    with pytest.raises(InvalidArguments, match='Argument "n": expected an integer, got "three"'):
        binding.arguments(msgspec.json.encode({"rows": rows, "n": "three"}))
