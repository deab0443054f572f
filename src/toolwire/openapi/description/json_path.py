"""JSONPath (RFC 9535): compiled queries for parts of a document, with counted steps.

The whole grammar is read: names, wildcards, indexes, slices, descendants, filters and the five functions. One thing is
taken beyond it: a hyphen in a name after a dot (`$.info.x-logo`), because overlays are full of such names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from toolwire import schemas
from toolwire.protocol.steps import Steps
from toolwire.util.json_pointer import escape_token

#: How long a query may be, and how deep its brackets may be.
MAX_QUERY: Final = 4_096
MAX_NESTING: Final = 32
# RFC 9535 section 2.1: integers are those that every JSON library can hold.
_LARGEST: Final = 2**53 - 1


class JsonPathError(ValueError):
    """A text that is not a JSONPath query. `column` counts from 1."""

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(f"{problem} at column {column}")
        self.column: int = column


class FoundNode(NamedTuple):
    """A selected value, and where it stands."""

    value: Any
    parent: FoundNode | None = None
    key: str | int = ""

    @property
    def pointer(self) -> str:
        """Return the JSON Pointer of the value, for error texts."""
        tokens: list[str] = []
        node: FoundNode = self
        while node.parent is not None:
            tokens.append(escape_token(str(node.key)))
            node = node.parent
        return "".join(f"/{token}" for token in reversed(tokens))


class _Nothing:
    """The absence of a value in a comparison (RFC 9535 section 2.4.1)."""


_NOTHING: Final = _Nothing()

Selector: TypeAlias = "Callable[[FoundNode, _Run], Iterator[FoundNode]]"
_Nodes: TypeAlias = "Callable[[FoundNode, _Run], Iterator[FoundNode]]"
_Value: TypeAlias = "Callable[[FoundNode, _Run], Any]"
_Logical: TypeAlias = "Callable[[FoundNode, _Run], bool]"


class _Run(NamedTuple):
    """One evaluation: the root for `$` in filters, and the steps that are left."""

    root: FoundNode
    steps: Steps


class JsonPath:
    """A compiled query."""

    def __init__(self, text: str) -> None:
        """Compile a query; raise `JsonPathError`."""
        self.text: str = text
        self._nodes = _Parser(text).query()

    def select(self, root: Any, steps: Steps) -> list[FoundNode]:
        """Return the values that the query selects in a document, each once; raise `TooManySteps`."""
        start = FoundNode(root)
        selected: dict[tuple[int, str | int], FoundNode] = {}
        for found in self._nodes(start, _Run(start, steps)):
            # A query such as `$['a','a']` selects a value twice.
            selected.setdefault((0 if found.parent is None else id(found.parent.value), found.key), found)
        return list(selected.values())


# -- Segments and selectors --------------------------------------------------------------------------------------------


def _children(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
    value = node.value
    if isinstance(value, dict):
        run.steps.spend(len(value))
        for key, each in value.items():
            yield FoundNode(each, node, key)
    elif isinstance(value, list):
        run.steps.spend(len(value))
        for index, each in enumerate(value):
            yield FoundNode(each, node, index)


def _named(name: str) -> Selector:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        run.steps.spend()
        if isinstance(node.value, dict) and name in node.value:
            yield FoundNode(node.value[name], node, name)

    return select


def _indexed(index: int) -> Selector:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        run.steps.spend()
        if isinstance(node.value, list) and -len(node.value) <= index < len(node.value):
            yield FoundNode(node.value[index], node, index % len(node.value))

    return select


def _sliced(start: int | None, end: int | None, step: int) -> Selector:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        if isinstance(node.value, list) and step != 0:
            for index in range(*slice(start, end, step).indices(len(node.value))):
                run.steps.spend()
                yield FoundNode(node.value[index], node, index)

    return select


def _filtered(test: _Logical) -> Selector:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        return (child for child in _children(node, run) if test(child, run))

    return select


def _child_segment(nodes: _Nodes, selectors: list[Selector]) -> _Nodes:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        for each in nodes(node, run):
            for selector in selectors:
                yield from selector(each, run)

    return select


def _descendant_segment(nodes: _Nodes, selectors: list[Selector]) -> _Nodes:
    def select(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
        for start in nodes(node, run):
            waiting = [start]
            while waiting:
                each = waiting.pop()
                for selector in selectors:
                    yield from selector(each, run)
                waiting += reversed([child for child in _children(each, run) if isinstance(child.value, dict | list)])

    return select


def _root(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
    yield run.root


def _current(node: FoundNode, run: _Run) -> Iterator[FoundNode]:
    yield node


# -- Comparisons -------------------------------------------------------------------------------------------------------


def _is_equal(first: Any, second: Any, steps: Steps) -> bool:
    """Compare as JSON does: `true` is not 1, and 1 is 1.0.

    RFC 9535 section 2.3.5.2.2.
    """
    steps.spend()
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(_is_equal(*each, steps) for each in zip(first, second, strict=True))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_is_equal(first[key], second[key], steps) for key in first)
    return bool(first == second)


def _is_less(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return False
    if isinstance(first, str) and isinstance(second, str):
        return first < second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first < second
    return False


_COMPARISONS: Final[dict[str, Callable[[Any, Any, Steps], bool]]] = {
    "==": _is_equal,
    "!=": lambda first, second, steps: not _is_equal(first, second, steps),
    "<=": lambda first, second, steps: _is_less(first, second) or _is_equal(first, second, steps),
    ">=": lambda first, second, steps: _is_less(second, first) or _is_equal(first, second, steps),
    "<": lambda first, second, steps: _is_less(first, second),
    ">": lambda first, second, steps: _is_less(second, first),
}


def _only_value(nodes: _Nodes) -> _Value:
    """Return the value of the only node; nothing for none or several."""

    def value(node: FoundNode, run: _Run) -> Any:
        found = nodes(node, run)
        first = next(found, None)
        return _NOTHING if first is None or next(found, None) is not None else first.value

    return value


# -- Functions (RFC 9535 section 2.4) ----------------------------------------------------------------------------------


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | list | dict) else _NOTHING


def _matches(text: Any, pattern: Any, run: _Run, whole: bool) -> bool:
    """Match a text by an I-Regexp (RFC 9485). An expression that is none matches nothing."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    run.steps.spend(20 + len(text) // 10)
    pattern = _DOT.sub(_without_line_ends, pattern)
    expression = _expression(f"^(?:{pattern})$" if whole else pattern)
    return expression is not None and expression.fits(text)


# A dot, an escape, or a class of characters, in which a dot is a dot.
_DOT: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


def _without_line_ends(found: re.Match[str]) -> str:
    # RFC 9485 section 5.3: a dot is any character but the two that end lines.
    return "[^\\n\\r]" if found[0] == "." else found[0]


@lru_cache(64)
def _expression(pattern: str) -> schemas.Validator | None:
    """Compile an expression by the engine of schemas, which bounds its size and its time."""
    try:
        return schemas.compile({"type": "string", "pattern": pattern}, what="the expression")
    except schemas.SchemaError:
        return None


# -- The grammar -------------------------------------------------------------------------------------------------------

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NAME: Final = re.compile(r"[A-Za-z_\u0080-\U0010FFFF][A-Za-z0-9_\u0080-\U0010FFFF-]*")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER: Final = re.compile(r"(?:-?0|-?[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_COMPARISON: Final = re.compile(r"==|!=|<=|>=|<|>")
_FUNCTION: Final = re.compile(r"[a-z][a-z0-9_]*(?=\()")
_CONSTANT: Final = re.compile(r"(?:true|false|null)(?![A-Za-z0-9_])")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_FOUR_DIGITS: Final = re.compile(r"[0-9A-Fa-f]{4}")


class _Operand(NamedTuple):
    """An operand of a filter: a literal, a query or a function call."""

    value: _Value | None = None
    nodes: _Nodes | None = None
    logical: _Logical | None = None


class _Parser:
    """A reader of one query, by recursive descent."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_QUERY:
            raise JsonPathError(f"a query has {MAX_QUERY:,} characters at most: it is too long", MAX_QUERY)
        self._text = text
        self._at = 0
        self._nesting = 0

    def query(self) -> _Nodes:
        if not self._skip_sign("$"):
            raise self._error("a query begins with $")
        nodes, _ = self._segments(_root)
        if self._at < len(self._text):
            raise self._error("this is not a segment of a path")
        return nodes

    # -- Segments --

    def _segments(self, nodes: _Nodes) -> tuple[_Nodes, bool]:
        """Read segments. Return also whether they select one value at most."""
        is_singular = True
        while True:
            before = self._at
            self._space()
            if self._skip_sign(".."):
                nodes, is_singular = _descendant_segment(nodes, self._selectors_after_dots()), False
            elif self._skip_sign("["):
                selectors, is_one = self._bracketed()
                nodes, is_singular = _child_segment(nodes, selectors), is_singular and is_one
            elif self._skip_sign("."):
                is_wildcard = self._skip_sign("*")
                nodes = _child_segment(nodes, [_children if is_wildcard else _named(self._name())])
                is_singular = is_singular and not is_wildcard
            else:
                self._at = before
                return nodes, is_singular

    def _selectors_after_dots(self) -> list[Selector]:
        if self._skip_sign("["):
            return self._bracketed()[0]
        return [_children if self._skip_sign("*") else _named(self._name())]

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("a name is missing; other names than words are written ['so']")
        self._at = found.end()
        return found[0]

    def _bracketed(self) -> tuple[list[Selector], bool]:
        """Read selectors up to the closing bracket.

        Returns also whether they select one value.
        """
        self._enter()
        selectors: list[Selector] = []
        is_one = True
        while True:
            self._space()
            selector, is_single = self._selector()
            selectors.append(selector)
            is_one = is_one and is_single
            self._space()
            if self._skip_sign("]"):
                self._nesting -= 1
                return selectors, is_one and len(selectors) == 1
            if not self._skip_sign(","):
                raise self._error("a comma or ] is missing")

    def _selector(self) -> tuple[Selector, bool]:
        if self._peek() in ("'", '"'):
            return _named(self._string()), True
        if self._skip_sign("*"):
            return _children, False
        if self._skip_sign("?"):
            self._space()
            return _filtered(self._either()), False
        start = self._integer()
        self._space()
        if self._peek() != ":":
            if start is None:
                raise self._error("this is not a selector: write a name in quotes, a number, *, a slice or a ?filter")
            return _indexed(start), True
        return self._slice(start), False

    def _slice(self, start: int | None) -> Selector:
        self._skip_sign(":")
        self._space()
        end = self._integer()
        self._space()
        step: int | None = None
        if self._skip_sign(":"):
            self._space()
            step = self._integer()
        return _sliced(start, end, 1 if step is None else step)

    def _integer(self) -> int | None:
        found = _INTEGER.match(self._text, self._at)
        if found is None:
            return None
        if len(found[0]) > 17 or abs(int(found[0])) > _LARGEST:
            raise self._error("this number is too large")
        if self._text[found.end() : found.end() + 1].isdigit():
            raise self._error("a number does not begin with 0")
        self._at = found.end()
        return int(found[0])

    # -- Filters --

    def _either(self) -> _Logical:
        """Read `a || b`."""
        self._enter()
        parts = [self._all()]
        while self._skip_spaced_sign("||"):
            self._space()
            parts.append(self._all())
        self._nesting -= 1
        return parts[0] if len(parts) == 1 else lambda node, run: any(each(node, run) for each in parts)

    def _all(self) -> _Logical:
        """Read `a && b`."""
        parts = [self._basic()]
        while self._skip_spaced_sign("&&"):
            self._space()
            parts.append(self._basic())
        return parts[0] if len(parts) == 1 else lambda node, run: all(each(node, run) for each in parts)

    def _basic(self) -> _Logical:
        """Read a group, a test or a comparison."""
        is_negated = self._skip_sign("!")
        if is_negated:
            self._space()
        if self._skip_sign("("):
            self._space()
            test = self._either()
            self._space()
            if not self._skip_sign(")"):
                raise self._error(") is missing")
        else:
            test = self._test(is_negated)
        return (lambda node, run: not test(node, run)) if is_negated else test

    def _test(self, is_negated: bool) -> _Logical:
        first = self._operand()
        before = self._at
        self._space()
        found = _COMPARISON.match(self._text, self._at)
        if found is not None and not is_negated:
            self._at = found.end()
            self._space()
            return self._comparison(first, _COMPARISONS[found[0]], self._operand())
        self._at = before
        if first.logical is not None:
            return first.logical
        if first.nodes is not None:
            nodes = first.nodes
            return lambda node, run: next(nodes(node, run), None) is not None
        raise self._error("a comparison is missing: a value alone is neither true nor false")

    def _comparison(self, first: _Operand, compare: Callable[[Any, Any, Steps], bool], second: _Operand) -> _Logical:
        one, other = first.value, second.value
        if one is None or other is None:
            raise self._error("only single values can be compared: a query here has names and indexes alone")
        return lambda node, run: compare(one(node, run), other(node, run), run.steps)

    def _operand(self) -> _Operand:
        sign = self._peek()
        if sign in ("@", "$"):
            self._at += 1
            nodes, is_singular = self._segments(_current if sign == "@" else _root)
            return _Operand(value=_only_value(nodes) if is_singular else None, nodes=nodes)
        if sign in ("'", '"'):
            return _literal(self._string())
        if (constant := _CONSTANT.match(self._text, self._at)) is not None:
            self._at = constant.end()
            return _literal(_CONSTANTS[constant[0]])
        if (function := _FUNCTION.match(self._text, self._at)) is not None:
            self._at = function.end()
            return self._function(function[0])
        if (number := _NUMBER.match(self._text, self._at)) is not None and len(number[0]) <= 40:
            self._at = number.end()
            return _literal(float(number[0]) if set(number[0]) & set(".eE") else int(number[0]))
        raise self._error("a value is missing: write @.name, a text in quotes, a number, true, false or null")

    def _function(self, name: str) -> _Operand:
        start = self._at
        self._enter()
        self._skip_sign("(")
        arguments: list[_Operand] = []
        self._space()
        while not self._skip_sign(")"):
            if arguments and not self._skip_sign(","):
                raise self._error("a comma or ) is missing")
            self._space()
            arguments.append(self._operand())
            self._space()
        self._nesting -= 1
        made = _call(name, arguments)
        if made is None:
            raise JsonPathError(f"{name[:20]}() is not a function of JSONPath, or has other arguments", start + 1)
        return made

    # -- Texts --

    def _string(self) -> str:
        quote = self._text[self._at]
        self._at += 1
        pieces: list[str] = []
        while (character := self._peek()) != quote:
            if character == "" or character < " ":
                raise self._error("the quote that closes a text is missing")
            self._at += 1
            pieces.append(self._escape(quote) if character == "\\" else character)
        self._at += 1
        return "".join(pieces)

    def _escape(self, quote: str) -> str:
        sign = self._peek()
        self._at += 1
        if sign == quote:
            return quote
        if sign == "u":
            return self._unicode()
        if sign not in _ESCAPES:
            raise self._error("this is not an escape")
        return _ESCAPES[sign]

    def _unicode(self) -> str:
        first = self._digits()
        if 0xD800 <= first < 0xDC00 and self._text.startswith("\\u", self._at):
            self._at += 2
            second = self._digits()
            if 0xDC00 <= second < 0xE000:
                return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
        if 0xD800 <= first < 0xE000:
            raise self._error("half of a character stands alone")
        return chr(first)

    def _digits(self) -> int:
        found = _FOUR_DIGITS.match(self._text, self._at)
        if found is None:
            raise self._error("an escape has four digits")
        self._at = found.end()
        return int(found[0], 16)

    # -- Small pieces --

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip_sign(self, sign: str) -> bool:
        if self._text.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _skip_spaced_sign(self, sign: str) -> bool:
        before = self._at
        self._space()
        if self._skip_sign(sign):
            return True
        self._at = before
        return False

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(f"brackets are {MAX_NESTING} deep at most")

    def _error(self, problem: str) -> JsonPathError:
        return JsonPathError(problem, self._at + 1)


def _literal(constant: Any) -> _Operand:
    return _Operand(value=lambda node, run: constant)


def _call(name: str, arguments: list[_Operand]) -> _Operand | None:
    """Make the call of a function.

    None where there is no such function, or where its arguments have other types.
    """
    if name in ("match", "search") and len(arguments) == 2:
        text, pattern = arguments[0].value, arguments[1].value
        return None if text is None or pattern is None else _Operand(logical=_matching(text, pattern, name == "match"))
    if len(arguments) != 1:
        return None
    value, nodes = arguments[0].value, arguments[0].nodes
    if name == "length" and value is not None:
        return _Operand(value=lambda node, run: _length(value(node, run)))
    if name == "count" and nodes is not None:
        return _Operand(value=lambda node, run: len(list(nodes(node, run))))
    if name == "value" and nodes is not None:
        return _Operand(value=_only_value(nodes))
    return None


def _matching(text: _Value, pattern: _Value, whole: bool) -> _Logical:
    return lambda node, run: _matches(text(node, run), pattern(node, run), run, whole)
