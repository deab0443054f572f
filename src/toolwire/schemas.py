"""JSON Schema: compile it within bounds, check a value against it, say what is wrong in plain words, keep it compact.

Everything that validates against a *document* goes through `compile`; it is the only place that hands a schema to
jsonschema-rs, and nothing outside the document is ever fetched (2026-07-28 server/tools: a `$ref` must not be
dereferenced over the network; the library below would fetch both http and file by default).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from toolwire.protocol.errors import ToolwireError

Json = Any
Schema = dict[str, Any]
Path = tuple[str | int, ...]
Kind = Literal["invalid", "missing", "unknown"]

# 2026-07-28 server/tools (JSON Schema usage): bound depth, subschema count and validation time.
MAX_DEPTH: Final = 64
MAX_SUBSCHEMAS: Final = 5_000
MAX_BYTES: Final = 1 << 20
# How many subschemas in a row may hand the same value on: the engine follows them on its stack.
MAX_CHAIN: Final = 200
MAX_INSTANCE_DEPTH: Final = 256
# How many times a subschema may be applied while one value is checked; the engine does roughly ten million a second.
MAX_EFFORT: Final = 10_000_000
# Every reported error costs the engine microseconds and memory; beyond this effort only the bad members are named.
MAX_EFFORT_WITH_DETAIL: Final = 20_000
MAX_PROBLEMS: Final = 20
_MAX_COUNTED: Final = 500_000
_BACKTRACK_LIMIT: Final = 10_000
_REGEX_BYTES: Final = 1 << 20

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: Final = {
    DIALECT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}


class Problem(NamedTuple):
    """One thing that is wrong with a value, and where."""

    path: Path
    message: str
    kind: Kind = "invalid"


class Invalid(ToolwireError):
    """A value does not fit its type or schema; `problems` has every reason that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(sentence(problem, "value") for problem in problems))
        self.problems = problems


class SchemaError(ToolwireError, ValueError):
    """A schema that cannot be used: malformed, too large, of an unknown dialect, or pointing outside itself."""


# ---------------------------------------------------------------------------------------------------------------------
# Compile and check
# ---------------------------------------------------------------------------------------------------------------------


class Validator:
    """A compiled schema. `check` returns what is wrong, an empty list when nothing is."""

    def __init__(self, schema: Schema, engine: Any, effort: _Effort, build: Callable[[Schema], Any]) -> None:
        self.schema = schema
        self._engine = engine
        self._effort = effort
        self._build = build

    def check(self, instance: Json) -> list[Problem]:
        try:
            effort = self._effort.of(instance)
            if effort > MAX_EFFORT:
                return [Problem((), "too large or too deeply nested for this schema")]
            if self._engine.is_valid(instance):
                return []
            if effort > MAX_EFFORT_WITH_DETAIL:
                return self._bad_members(instance)
            return self._explain(instance)
        except RecursionError:
            return [Problem((), "too deeply nested")]
        except (ValueError, TypeError):
            # The engine reads JSON values only; anything else cannot have come from, or go to, the wire.
            return [Problem((), "not a JSON value")]

    def _explain(self, instance: Json) -> list[Problem]:
        problems: dict[Problem, None] = {}
        for error in self._engine.iter_errors(instance):
            for problem in _explained(error, self.schema, instance):
                problems.setdefault(problem)
            if len(problems) >= MAX_PROBLEMS:
                break
        return list(problems)[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _bad_members(self, instance: Json) -> list[Problem]:
        """A large value: which members of the root object fail, without the engine's full list of errors."""
        problems: list[Problem] = []
        properties = self.schema.get("properties")
        if isinstance(instance, dict) and isinstance(properties, dict):
            required = [name for name in self.schema.get("required", ()) if name not in instance]
            problems += [_missing((), name, self.schema, self.schema) for name in required]
            if self.schema.get("additionalProperties") is False and "patternProperties" not in self.schema:
                unknown = (unknown_key((), name, properties) for name in instance if name not in properties)
                problems += islice(unknown, MAX_PROBLEMS)
            shared: Schema = {
                key: self.schema[key] for key in ("$schema", "$defs", "definitions") if key in self.schema
            }
            for name, member in properties.items():
                if name in instance and self._fails(shared, member, instance[name]):
                    problems.append(Problem((name,), f"expected {expected(member, self.schema)}"))
        return problems[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _fails(self, shared: Schema, member: Json, value: Json) -> bool:
        try:
            return not self._build({**shared, "allOf": [member]}).is_valid(value)
        except SchemaError:  # a reference by position, which only the whole document resolves
            return False


def compile(schema: Json, *, what: str) -> Validator:
    """Check that a schema is usable and build its validator; errors call it `what` (`the input schema of 'add'`)."""
    if not isinstance(schema, dict):
        raise SchemaError(f"{what} must be a JSON object, not {type(schema).__name__}")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"{what} is not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"{what} is {size} bytes long, the limit is {MAX_BYTES}")
    dialect = _dialect(schema, what)
    document = _Document(schema, what)

    def build(part: Schema) -> Any:
        return _engine(part, dialect, what)

    return Validator(schema, build(schema), _Effort(document), build)


def _dialect(schema: Schema, what: str) -> str:
    # 2025-11-25 basic, 2026-07-28 server/tools: no `$schema` means 2020-12; an unsupported one is named in the error.
    declared = schema.get("$schema", DIALECT)
    name = _DIALECTS.get(declared.rstrip("#")) if isinstance(declared, str) else None
    if name is None:
        raise SchemaError(
            f"{what} uses the JSON Schema dialect {_shown(declared)}, which is not supported: "
            f"use {DIALECT!r} or leave $schema out"
        )
    return name


def _engine(schema: Schema, dialect: str, what: str) -> Any:
    """The one door to jsonschema-rs: no retrieval of anything, bounded regular expressions."""
    import jsonschema_rs

    def refuse(uri: str) -> Json:
        raise ValueError(f"{uri} is outside the schema")

    validator: Callable[..., Any] = getattr(jsonschema_rs, dialect)
    linear = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)
    backtracking = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES
    )
    reason = ""
    # The linear engine cannot be made slow; look-around and back references need the other one, which counts its steps.
    for patterns in (linear, backtracking):
        try:
            return validator(schema, pattern_options=patterns, retriever=refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = getattr(error, "message", None) or str(error).partition("\n")[0]
    raise SchemaError(f"{what} is not valid: {reason}") from None


# ---------------------------------------------------------------------------------------------------------------------
# The document: its subschemas, what refers to what, and the effort of checking
# ---------------------------------------------------------------------------------------------------------------------

_SAME_VALUE_ONE: Final = ("not", "if", "then", "else")
_SAME_VALUE_LIST: Final = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAP: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_UNUSED_MAP: Final = ("$defs", "definitions")


class _Node:
    """One subschema: which others judge the same value, and which judge its members."""

    __slots__ = ("any_item", "any_member", "item", "member", "same", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.same: list[_Node] = []
        self.member: dict[str, _Node] = {}
        self.any_member: list[_Node] = []
        self.item: list[_Node] = []
        self.any_item: list[_Node] = []


class _Document:
    """A schema document turned into nodes; refuses what is too deep, too large, endless, or outside itself."""

    def __init__(self, schema: Schema, what: str) -> None:
        self._what = what
        self._root = schema
        self._nodes: dict[int, _Node] = {}
        self._resources: dict[str, Json] = {"": schema}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._dynamic: dict[str, list[Json]] = {}
        self._references: list[tuple[_Node, str, str, str]] = []
        self.root = self._read(schema, "", 1)
        while self._references:
            self._link(*self._references.pop())
        self._refuse_endless()

    @property
    def nodes(self) -> Iterable[_Node]:
        return self._nodes.values()

    def _read(self, schema: Json, base: str, depth: int) -> _Node:
        known = self._nodes.get(id(schema))
        if known is not None and isinstance(schema, dict):
            return known
        if depth > MAX_DEPTH:
            raise SchemaError(f"{self._what} is nested more than {MAX_DEPTH} levels deep")
        if not isinstance(schema, dict):
            return _Node(1)
        values = schema.get("enum")
        node = self._nodes[id(schema)] = _Node(1 + (len(values) // 16 if isinstance(values, list) else 0))
        if len(self._nodes) > MAX_SUBSCHEMAS:
            raise SchemaError(f"{self._what} has more than {MAX_SUBSCHEMAS} subschemas")
        base = self._register(schema, base)
        below = depth + 1
        node.same += [self._read(part, base, below) for part in _direct(schema, _SAME_VALUE_ONE)]
        node.same += [self._read(part, base, below) for part in _listed(schema, _SAME_VALUE_LIST)]
        node.same += [self._read(part, base, below) for _, part in _mapped(schema, _SAME_VALUE_MAP)]
        node.any_member += [self._read(part, base, below) for part in _direct(schema, _ANY_MEMBER)]
        node.any_member += [self._read(part, base, below) for _, part in _mapped(schema, ("patternProperties",))]
        node.member = {name: self._read(part, base, below) for name, part in _mapped(schema, ("properties",))}
        node.any_item += [self._read(part, base, below) for part in _direct(schema, _ANY_ITEM)]
        node.item += [self._read(part, base, below) for part in _listed(schema, ("prefixItems", "items"))]
        for _, part in _mapped(schema, _UNUSED_MAP):
            self._read(part, base, below)
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                self._references.append((node, keyword, reference, base))
        return node

    def _register(self, schema: Schema, base: str) -> str:
        identifier = schema.get("$id")
        if isinstance(identifier, str):
            base = urldefrag(urljoin(base, identifier)).url
            self._resources[base] = schema
        if "$schema" in schema:
            _dialect(schema, self._what)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors[base, anchor] = schema
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(anchor, []).append(schema)
        return base

    def _link(self, node: _Node, keyword: str, reference: str, base: str) -> None:
        location, fragment = urldefrag(urljoin(base, reference)) if reference else (base, "")
        targets = list(self._dynamic.get(fragment, ())) if keyword == "$dynamicRef" else []
        target = self._target(location, unquote(fragment))
        if target is None and not targets:
            raise SchemaError(
                f"{self._what} refers to {_shown(reference)}, which is not in the schema; "
                "nothing outside the document is fetched: put it under $defs"
            )
        if target is not None and not any(target is other for other in targets):
            targets.append(target)
        node.same += [self._read(each, location, 2) for each in targets]

    def _target(self, location: str, fragment: str) -> Json | None:
        if location not in self._resources:
            return None
        target = self._resources[location]
        if not fragment:
            return target
        if not fragment.startswith("/"):
            return self._anchors.get((location, fragment))
        return at_pointer(target, fragment)

    def _refuse_endless(self) -> None:
        """A schema that applies itself to the same value never ends."""
        longest: dict[int, int] = {}
        for start in list(self._nodes.values()):
            chain: dict[int, Iterator[_Node]] = {} if id(start) in longest else {id(start): iter(start.same)}
            lengths = [1]
            while chain:
                here = next(reversed(chain))
                following = next(chain[here], None)
                if following is None:
                    del chain[here]
                    longest[here] = lengths.pop()
                    if lengths:
                        lengths[-1] = max(lengths[-1], 1 + longest[here])
                elif id(following) in chain:
                    raise SchemaError(f"{self._what} refers to itself without end")
                elif id(following) in longest:
                    lengths[-1] = max(lengths[-1], 1 + longest[id(following)])
                else:
                    chain[id(following)] = iter(following.same)
                    lengths.append(1)
        if max(longest.values(), default=0) > MAX_CHAIN:
            raise SchemaError(f"{self._what} has a chain of more than {MAX_CHAIN} references")


class _Effort:
    """How much work a value may cause: how often some subschema is applied to some part of the value.

    Repeating a reference multiplies work at every level, so that a short schema and a short value can keep the engine
    busy for years. Counting is cheap because each pair of subschema and part is counted once and remembered.
    """

    def __init__(self, document: _Document) -> None:
        self._root = document.root
        self._most_per_part = _most_per_part(document)

    def of(self, instance: Json) -> int:
        parts = _parts(instance)
        if self._most_per_part is not None and parts * self._most_per_part <= MAX_EFFORT:
            return parts * self._most_per_part
        return self._exactly(self._root, instance, {})

    def _exactly(self, node: _Node, instance: Json, seen: dict[tuple[int, int], int]) -> int:
        key = (id(node), id(instance))
        if key in seen:
            return seen[key]
        if len(seen) > _MAX_COUNTED:
            return MAX_EFFORT + 1
        effort = node.weight
        for other in node.same:
            effort += self._exactly(other, instance, seen)
        if isinstance(instance, dict):
            for name, value in instance.items():
                if name in node.member:
                    effort += self._exactly(node.member[name], value, seen)
                for other in node.any_member:
                    effort += self._exactly(other, value, seen)
        elif isinstance(instance, list):
            for position, value in enumerate(instance):
                if position < len(node.item):
                    effort += self._exactly(node.item[position], value, seen)
                for other in node.any_item:
                    effort += self._exactly(other, value, seen)
        seen[key] = effort
        return effort


def _most_per_part(document: _Document) -> int | None:
    """The most subschemas that one part of a value can meet, or None when that grows with the depth of the value."""
    nodes = list(document.nodes)
    most = 0
    here: dict[int, int] = {}
    for depth in range(min(MAX_DEPTH * 2, 2 + 50_000 // len(nodes))):
        above, here = here, {}
        for node in nodes:
            _meets(node, above, here, first=depth == 0)
        now = here[id(document.root)]
        if now > MAX_EFFORT:
            return None
        most = max(most, now)
        if not any(here.values()) or here == above:
            return most
    return None if here[id(document.root)] > 64 else most


def _meets(node: _Node, above: dict[int, int], here: dict[int, int], *, first: bool) -> int:
    if id(node) in here:
        return here[id(node)]
    if first:
        total = node.weight
    else:
        members = max((above.get(id(each), 1) for each in node.member.values()), default=0)
        members += sum(above.get(id(each), 1) for each in node.any_member)
        items = max((above.get(id(each), 1) for each in node.item), default=0)
        items += sum(above.get(id(each), 1) for each in node.any_item)
        total = max(members, items)
    total += sum(_meets(other, above, here, first=first) for other in node.same)
    here[id(node)] = min(total, MAX_EFFORT + 1)
    return here[id(node)]


def _parts(instance: Json) -> int:
    """How many values a value is made of; long strings count for more."""
    count = depth = 0
    level = [instance]
    while level:
        count += len(level)
        depth += 1
        if depth > MAX_INSTANCE_DEPTH:
            raise RecursionError
        below: list[Json] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                count += len(value) >> 6
        level = below
    return count


def _direct(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (schema[key] for key in keywords if isinstance(schema.get(key), (dict, bool)))


def _listed(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (part for key in keywords if isinstance(schema.get(key), list) for part in schema[key])


def _mapped(schema: Schema, keywords: Iterable[str]) -> Iterator[tuple[str, Json]]:
    return (
        (name, part)
        for key in keywords
        if isinstance(schema.get(key), dict)
        for name, part in schema[key].items()
        if isinstance(part, (dict, bool))
    )


def at_pointer(document: Json, pointer: str) -> Json | None:
    """What a JSON pointer (`/$defs/Row`) leads to, or None."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


# ---------------------------------------------------------------------------------------------------------------------
# Plain words
# ---------------------------------------------------------------------------------------------------------------------


def sentence(problem: Problem, noun: str = "argument") -> str:
    """One line for a model to read: what is wrong, where, and what was expected."""
    path, message, kind = problem
    if kind == "invalid":
        whole = "The arguments" if noun == "argument" else f"The {noun}"
        return f"{noun.capitalize()} {_shown(place(path))}: {message}" if path else f"{whole}: {message}"
    name, inside = _shown(str(path[-1])), path[:-1]
    subject = f"key {name} in {noun} {_shown(place(inside))}" if inside else f"{noun} {name}"
    return f"{kind.capitalize()} {subject}: {message}"


def place(path: Path) -> str:
    """`rows[2].name` for `("rows", 2, "name")`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{_clipped(step)}" if text else _clipped(step)
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    from difflib import get_close_matches

    folded = {other.casefold(): other for other in known}
    close = get_close_matches(name[:64].casefold(), list(folded)[:200], n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _explained(error: Any, root: Schema, whole: Json) -> list[Problem]:
    kind, path = error.kind, tuple(error.instance_path)
    schema = _walk(root, error.schema_path[:-1])
    match kind.name:
        case "required":
            return [_missing(path, kind.property, schema, root)]
        case "additionalProperties" | "unevaluatedProperties":
            known = schema.get("properties", {}) if isinstance(schema, dict) else {}
            return [unknown_key(path, name, known) for name in kind.unexpected[:MAX_PROBLEMS]]
        case "anyOf" | "oneOf" if (branch := _meant(error)) is not None:
            return [problem for inner in branch for problem in _explained(inner, root, whole)]
        case "not":
            return [Problem(path, f"{_shown(error.instance)} is not allowed")]
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            value = _walk(whole, path)
            names = list(value)[:MAX_PROBLEMS] if isinstance(value, dict) else []
            return [unknown_key(path, name, ()) for name in names]
        case "falseSchema":
            return [Problem(path, "nothing is allowed here")]
        case "uniqueItems":
            return [Problem(path, "expected items that are all different")]
        case "contains":
            return [Problem(path, "an item that is required is not there")]
        case "propertyNames":
            return [Problem(path, f"a key is not allowed: {_clipped(kind.error.message)}")]
    if not isinstance(schema, dict):
        return [Problem(path, _clipped(error.message, 200))]
    if kind.name == "oneOf" and type(kind).__name__ == "OneOfMultipleValid":
        return [Problem(path, f"fits more than one of: {expected(schema, root)}")]
    return [Problem(path, f"expected {expected(schema, root)}, got {_shown(error.instance)}")]


# Keywords that tell branches apart, and how far below the choice they do.
_TELLING: Final = ((("type", "enum", "const"), 0), (("enum", "const"), 1), (("required", "additionalProperties"), 0))


def _meant(error: Any) -> list[Any] | None:
    """Of a failed choice, the errors of the one branch that was clearly meant: by its type, its tag or its keys."""
    if not isinstance(error.instance, (dict, list)):
        return None
    branches: list[list[Any]] = getattr(error.kind, "context", None) or []
    here = list(error.instance_path)
    for telling, below in _TELLING:
        branches = [
            branch
            for branch in branches
            if not any(inner.kind.name in telling and len(inner.instance_path) == len(here) + below for inner in branch)
        ]
        if len(branches) == 1:
            return branches[0]
    return None


def _walk(root: Json, steps: Iterable[str | int]) -> Json:
    schema: Json = root
    for step in steps:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return None
    return schema


def _missing(path: Path, name: str, schema: Json, root: Schema) -> Problem:
    member = schema.get("properties", {}).get(name) if isinstance(schema, dict) else None
    return Problem((*path, name), f"expected {expected(member, root)}", "missing")


def unknown_key(path: Path, name: str, known: Iterable[str]) -> Problem:
    names = list(known)
    if (meant := nearest(name, names)) is not None:
        return Problem((*path, name), f"did you mean {_shown(meant)}?", "unknown")
    if not names:
        return Problem((*path, name), "none is expected here", "unknown")
    some = ", ".join(_shown(each) for each in names[:12]) + (", …" if len(names) > 12 else "")
    return Problem((*path, name), f"expected one of {some}", "unknown")


_FORMATS: Final = {
    "date-time": 'a date and time such as "2026-01-31T09:30:00Z"',
    "date": 'a date such as "2026-01-31"',
    "time": 'a time such as "09:30:00"',
    "duration": 'a duration such as "PT90S"',
    "uuid": "a UUID",
    "email": "an email address",
    "uri": "a URI",
    "decimal": 'a decimal number such as "12.50"',
}
_TYPES: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def expected(schema: Json, root: Schema, depth: int = 0) -> str:
    """A schema in words: `an integer of at least 1`, `one of "a", "b"`, `a string or null`."""
    if not isinstance(schema, dict) or depth > 4:
        return "a value"
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return expected(at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return _shown(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        shown = ", ".join(_shown(value) for value in values[:20]) + (", …" if len(values) > 20 else "")
        return f"one of {shown}" if len(values) != 1 else shown
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            return " or ".join(dict.fromkeys(expected(choice, root, depth + 1) for choice in choices[:8]))
    kinds = schema.get("type", ())
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if isinstance(kind, str)]
    if not names:
        names = ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    phrase = " or ".join(_TYPES.get(name, "a value") for name in names) or "a value"
    if phrase == "an object" and isinstance(members := schema.get("properties"), dict) and members:
        shown = ", ".join(_shown(name) for name in list(members)[:6]) + (", …" if len(members) > 6 else "")
        phrase = f"an object with {shown}"
    if phrase == "a string" and schema.get("format") in _FORMATS:
        phrase = _FORMATS[schema["format"]]
    phrase += _bounds(schema)
    item = schema.get("items")
    if names == ["array"] and isinstance(item, dict) and item and depth < 2:
        phrase += f", each item {expected(item, root, depth + 1)}"
    return phrase


def _bounds(schema: Schema) -> str:
    words = [
        f"{text} {schema[keyword]}{unit}"
        for keyword, text, unit in (
            ("minimum", "of at least", ""),
            ("exclusiveMinimum", "greater than", ""),
            ("maximum", "of at most", ""),
            ("exclusiveMaximum", "less than", ""),
            ("multipleOf", "that is a multiple of", ""),
            ("minLength", "of at least", " characters"),
            ("maxLength", "of at most", " characters"),
            ("minItems", "with at least", " items"),
            ("maxItems", "with at most", " items"),
            ("minProperties", "with at least", " keys"),
            ("maxProperties", "with at most", " keys"),
        )
        if isinstance(schema.get(keyword), (int, float)) and not isinstance(schema.get(keyword), bool)
    ]
    if isinstance(pattern := schema.get("pattern"), str):
        words.append(f"that matches {_clipped(pattern, 100)}")
    return " " + " and ".join(words) if words else ""


def _shown(value: Json) -> str:
    """A value as a reader should see it: short, on one line."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    try:
        return _clipped(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def _clipped(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# ---------------------------------------------------------------------------------------------------------------------
# Repair: what models send instead of the right type
# ---------------------------------------------------------------------------------------------------------------------


def understood(instance: Json, validator: Validator) -> Json:
    """The value with `"3"`, `3.0` and JSON in a string read as what the schema asks for.

    Only parts that fail as sent are touched, and never where a string is among the things expected.
    """
    try:
        for _ in range(4):  # JSON in a string may hold a number in a string
            if validator._effort.of(instance) > MAX_EFFORT_WITH_DETAIL or validator._engine.is_valid(instance):
                break
            before = instance
            for error in _innermost(validator._engine.iter_errors(instance)):
                reading = _reading(error, validator.schema)
                if reading is not _NO_READING:
                    instance = _with(instance, tuple(error.instance_path), reading)
            if instance is before:
                break
        return whole_numbers(instance, validator.schema, validator.schema)
    except (RecursionError, ValueError, TypeError):
        return instance


_NO_READING: Final = object()


def _innermost(errors: Iterable[Any]) -> Iterator[Any]:
    for error in errors:
        branch = _meant(error) if error.kind.name in ("anyOf", "oneOf") else None
        if branch is None:
            yield error
        else:
            yield from _innermost(branch)


def _reading(error: Any, root: Schema) -> Json:
    value = error.instance
    if error.kind.name not in ("type", "enum", "const", "anyOf", "oneOf") or not isinstance(value, str):
        return _NO_READING
    schema = _walk(root, error.schema_path[:-1])
    if takes_string(schema, root):
        return _NO_READING
    text = value.strip()
    try:
        reading = msgspec.json.decode(text.lower() if text.casefold() in ("true", "false") else text)
    except (msgspec.DecodeError, RecursionError):
        return _NO_READING
    return reading if _has_type(reading, schema, root) else _NO_READING


def _has_type(value: Json, schema: Json, root: Schema, depth: int = 0) -> bool:
    if not isinstance(schema, dict) or depth > 8:
        return False
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return _has_type(value, at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return bool(schema["const"] == value)
    if isinstance(values := schema.get("enum"), list):
        return value in values
    if choices := list(_listed(schema, ("anyOf", "oneOf"))):
        return any(_has_type(value, choice, root, depth + 1) for choice in choices)
    kinds = schema.get("type", ())
    return _type_of(value) in ([kinds] if isinstance(kinds, str) else kinds) or (
        isinstance(value, int) and not isinstance(value, bool) and "number" in kinds
    )


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def takes_string(schema: Json, root: Schema, depth: int = 0) -> bool:
    """Whether some string could fit."""
    if not isinstance(schema, dict) or depth > 8:
        return True
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return takes_string(at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(values := schema.get("enum"), list):
        return any(isinstance(value, str) for value in values)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            return any(takes_string(choice, root, depth + 1) for choice in choices)
    kinds = schema.get("type")
    return kinds is None or kinds == "string" or (isinstance(kinds, list) and "string" in kinds)


def whole_numbers(instance: Json, schema: Json, root: Schema, depth: int = 0) -> Json:
    """The value with `3.0` as `3` wherever the schema asks for an integer: to JSON Schema they are the same."""
    if isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        schema = at_pointer(root, unquote(reference[1:]))
    if not isinstance(schema, dict) or depth > MAX_DEPTH * 2:
        return instance
    if isinstance(instance, float):
        return int(instance) if instance.is_integer() and _wants_integer(schema, root) else instance
    if isinstance(instance, dict):
        members = dict(_mapped(schema, ("properties",)))
        rest = schema.get("additionalProperties")
        instance = {
            name: whole_numbers(value, members.get(name, rest), root, depth + 1) for name, value in instance.items()
        }
    elif isinstance(instance, list):
        first = schema.get("prefixItems", ())
        rest = schema.get("items")
        instance = [
            whole_numbers(value, first[position] if position < len(first) else rest, root, depth + 1)
            for position, value in enumerate(instance)
        ]
    for part in _listed(schema, _SAME_VALUE_LIST):
        instance = whole_numbers(instance, part, root, depth + 1)
    return instance


def _wants_integer(schema: Schema, root: Schema, depth: int = 0) -> bool:
    if schema.get("type") == "integer":
        return True
    choices = [part for part in _listed(schema, ("anyOf", "oneOf")) if isinstance(part, dict)]
    if any(part.get("type") == "number" for part in choices) or depth > 4:
        return False
    return any(_wants_integer(part, root, depth + 1) for part in choices)


def _with(document: Json, path: Path, value: Json) -> Json:
    if not path:
        return value
    step, rest = path[0], path[1:]
    copy: Json = dict(document) if isinstance(document, dict) else list(document)
    copy[step] = _with(copy[step], rest, value)
    return copy


# ---------------------------------------------------------------------------------------------------------------------
# Compact generated schemas
# ---------------------------------------------------------------------------------------------------------------------

_REF_PREFIX: Final = "#/$defs/"


def merge(definitions: dict[str, Json], schema: Schema) -> Schema:
    """Move the `$defs` of a generated schema into shared ones; a name already taken by something else is changed."""
    own = schema.get("$defs")
    if not own:
        return schema
    renamed = {}
    for name, definition in own.items():
        free, number = name, 2
        while free in definitions and definitions[free] != definition:
            free, number = f"{name}{number}", number + 1
        renamed[name] = free
        definitions.setdefault(free, definition)
    body = {key: value for key, value in schema.items() if key != "$defs"}
    changed = {name: free for name, free in renamed.items() if name != free}
    if changed:
        for free in renamed.values():
            definitions[free] = _renamed(definitions[free], changed)
        body = _renamed(body, changed)
    return body


def _renamed(schema: Json, names: dict[str, str]) -> Json:
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _renamed(value, names) for key, value in schema.items()}
    if isinstance(reference := changed.get("$ref"), str) and reference.startswith(_REF_PREFIX):
        name = reference.removeprefix(_REF_PREFIX)
        changed["$ref"] = _REF_PREFIX + names.get(name, name)
    return changed


def inline(schema: Schema) -> Schema:
    """Definitions used once move to where they are used; `$defs` stays for those that are shared or recursive."""
    definitions: dict[str, Json] = schema.get("$defs", {})
    if not definitions:
        return {key: value for key, value in schema.items() if key != "$defs"}
    body = {key: value for key, value in schema.items() if key != "$defs"}
    uses: dict[str, int] = {}
    recursive: set[str] = set()
    _count(body, definitions, uses, recursive, ())
    kept = {name for name in uses if uses[name] > 1 or name in recursive}
    # The root says what it is (`"type": "object"`) even where it is recursive: readers look for that first.
    root = _target_of(body)
    if root in kept:
        body = {**definitions[root], **{key: value for key, value in body.items() if key != "$ref"}}
        uses = {}
        _count(body, definitions, uses, recursive, ())
        kept = {name for name in uses if uses[name] > 1 or name in recursive}
    compact: Schema = _inlined(body, definitions, kept)
    if kept:
        compact["$defs"] = {
            name: _inlined(definitions[name], definitions, kept) for name in definitions if name in kept
        }
    return compact


def _count(
    schema: Json, definitions: dict[str, Json], uses: dict[str, int], recursive: set[str], inside: tuple[str, ...]
) -> None:
    for name in _refs(schema):
        if name not in definitions:
            continue
        uses[name] = uses.get(name, 0) + 1
        if name in inside:
            recursive.add(name)
        elif uses[name] == 1:
            _count(definitions[name], definitions, uses, recursive, (*inside, name))


def _refs(schema: Json) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _refs(part)
    elif isinstance(schema, dict):
        if name := _target_of(schema):
            yield name
        for key, value in schema.items():
            if key not in ("default", "enum", "const", "examples"):
                yield from _refs(value)


def _target_of(schema: Schema) -> str:
    """The name of the definition that a schema refers to, empty when it refers to none."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF_PREFIX):
        return ""
    return reference.removeprefix(_REF_PREFIX)


def _inlined(schema: Json, definitions: dict[str, Json], kept: set[str]) -> Json:
    if isinstance(schema, list):
        return [_inlined(part, definitions, kept) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = _target_of(schema)
    if name in definitions and name not in kept:
        around = {key: value for key, value in schema.items() if key != "$ref"}
        # What is said at the place of use (a description, a default) is about this use and wins.
        return {**_inlined(definitions[name], definitions, kept), **_inlined(around, definitions, kept)}
    return {
        key: value if key in ("default", "enum", "const", "examples") else _inlined(value, definitions, kept)
        for key, value in schema.items()
    }


def without_optional_null(schema: Json) -> Json:
    """The same schema with `T` for every member that may be left out and is `T or null`.

    Models send nulls where they are offered; leaving the member out says the same. An explicit null is still accepted.
    """
    if isinstance(schema, list):
        return [without_optional_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: value if key in ("default", "enum", "const", "examples") else without_optional_null(value)
        for key, value in schema.items()
    }
    properties = result.get("properties")
    if isinstance(properties, dict) and result.get("type") == "object":
        required = result.get("required", ())
        result["properties"] = {
            name: member if name in required else _without_null(member) for name, member in properties.items()
        }
    return result


def _without_null(member: Json) -> Json:
    if not isinstance(member, dict):
        return member
    if "default" in member and member["default"] is None:
        member = {key: value for key, value in member.items() if key != "default"}
    choices = member.get("anyOf")
    if not isinstance(choices, list) or {"type": "null"} not in choices:
        return member
    rest = [choice for choice in choices if choice != {"type": "null"}]
    around = {key: value for key, value in member.items() if key != "anyOf"}
    return {**rest[0], **around} if len(rest) == 1 else {"anyOf": rest, **around}
