"""Rules of `toolwire lint` on clarity: names, descriptions, arguments, results, tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct

from toolwire.hostile_text import hostile_texts
from toolwire.openapi.definition.annotations import CHANGING_VERBS
from toolwire.protocol import types as t
from toolwire.schemas.walking import description_of, mapped
from toolwire.tokens import definition_tokens

# Names that say neither what is done nor to what.
_VAGUE: Final = re.compile(
    "action|call|do|doit|exec|execute|fetch|func|function|get|go|handle|helper|invoke|main|method|misc|op|operation|"
    "perform|process|query|run|set|start|stuff|task|test|thing|tmp|tool|util|utility|work"
)
_VAGUE_ARGUMENT: Final = re.compile(r"[a-z]|args?|data|foo|in|input|kwargs|obj|params?|val|value", re.IGNORECASE)
_FEW_WORDS: Final = 3
_LONG_DESCRIPTION: Final = 1024
_MANY_ARGUMENTS: Final = 10
_MANY_TOKENS: Final = 1_000
_MANY_TOKENS_IN_ALL: Final = 10_000
_MANY_TOOLS: Final = 40
_EXAMPLE: Final = re.compile(r"\b(example|e\.g\.|such as|for instance)|`[^`]+`", re.IGNORECASE)
_RETURNS: Final = re.compile(r"\b(return|returns|returned|result|gives|answers|yields)\b", re.IGNORECASE)
#: `error`: some client loses the tool or all of them, or a text may deceive a model. `warning`: a model will have
#: trouble. `hint`: could be better.
Level: TypeAlias = Literal["error", "warning", "hint"]


class LintFinding(Struct, frozen=True):
    """A complaint about one tool, all tools, or another text of the server."""

    level: Level
    rule: str
    tool: str
    """The tool, or the owner of the text ("prompt NAME"); "" for all tools."""
    where: str
    """The argument, or the place in the definition; empty for the tool as a whole."""
    message: str
    vendors: tuple[str, ...] = ()


def tool_tokens(tool: t.Tool) -> int:
    """Estimate the tokens of a tool for a model.

    Clients send its name, description and input schema.
    """
    return definition_tokens(tool.name, tool.description or "", tool.input_schema)


def check(tools: Iterable[t.Tool], *, is_python: bool = False) -> Iterator[LintFinding]:
    """Check every tool by itself, and the tools as a whole.

    `is_python`: the source of the server is Python.
    """
    by_description: defaultdict[str, list[str]] = defaultdict(list)
    by_letters: defaultdict[str, list[str]] = defaultdict(list)
    total = count = 0
    for tool in tools:
        count += 1
        total += tool_tokens(tool)
        yield from check_tool(tool, is_python=is_python)
        by_letters["".join(_words(tool.name))].append(tool.name)
        if described := _described(tool):
            by_description[described].append(tool.name)
    for names in by_description.values():
        for name in names[1:]:
            yield LintFinding("warning", "same-description", name, "", f"has the description of {names[0]!r}")
    for names in by_letters.values():
        for name in names[1:]:
            message = f"differs from {names[0]!r} only in case and separators, and a model mixes them up"
            yield LintFinding("warning", "similar-name", name, "", message)
    if total > _MANY_TOKENS_IN_ALL or count > _MANY_TOOLS:
        message = f"{count:,} tools take about {total:,} tokens of every conversation: offer fewer, or shorter ones"
        yield LintFinding("warning", "large-catalogue", "", "", message)


def check_tool(tool: t.Tool, *, is_python: bool = False) -> Iterator[LintFinding]:
    def found(level: Any, rule: str, message: str, where: str = "") -> LintFinding:
        return LintFinding(level, rule, tool.name, where, message)

    words = _words(tool.name)
    if all(_VAGUE.fullmatch(word) for word in words) or len(tool.name) < 3:
        yield found("warning", "unclear-name", "the name does not say what the tool does")
    elif "and" in words[1:-1]:
        yield found("hint", "two-in-one", "the name has an 'and' in it: two tools are easier to choose from")
    yield from _description(tool, is_python)
    yield from check_texts(tool.name, tool)
    yield from _reading(tool, words)
    members = dict(mapped(tool.input_schema, ("properties",)))
    for name, member in members.items():
        yield from _argument(tool, name, member, is_python)
    if len(members) > _MANY_ARGUMENTS:
        yield found("warning", "many-arguments", f"takes {len(members)} arguments: split it, or group them")
    size = tool_tokens(tool)
    if size > _MANY_TOKENS:
        yield found("warning", "large-tool", f"takes about {size:,} tokens of every conversation")
    yield from _returns(tool)


def check_texts(owner: str, definition: Any) -> Iterator[LintFinding]:
    """Check the texts that a model reads for signs of deceit."""
    for place, finding in hostile_texts(definition):
        yield LintFinding("error", "hostile-text", owner, ".".join(map(str, place)), finding)


def _description(tool: t.Tool, is_python: bool) -> Iterator[LintFinding]:
    described = _described(tool)
    if not described:
        remedy = "give the function a docstring" if is_python else "say what it does and what it returns"
        yield LintFinding("warning", "no-description", tool.name, "", f"has no description: {remedy}")
    elif len(described.split()) < _FEW_WORDS or _words(described) == _words(tool.name):
        yield LintFinding("warning", "short-description", tool.name, "", "the description says no more than the name")
    elif len(described) > _LONG_DESCRIPTION:
        message = f"the description has {len(described):,} characters; OpenAI takes {_LONG_DESCRIPTION:,}"
        yield LintFinding("warning", "long-description", tool.name, "", message, ("OpenAI",))


def _reading(tool: t.Tool, words: list[str]) -> Iterator[LintFinding]:
    """Check that a tool which only reads has no name that says otherwise."""
    if tool.annotations is UNSET or tool.annotations.read_only_hint is not True:
        return
    verb = next((word for word in words[:2] if CHANGING_VERBS.fullmatch(word) is not None), None)
    if verb is not None:
        message = f"says that it only reads, and its name says {verb!r}: set readOnlyHint to what is true"
        yield LintFinding("warning", "read-only-change", tool.name, "", message)


def _argument(tool: t.Tool, name: str, member: Any, is_python: bool) -> Iterator[LintFinding]:
    if isinstance(member, dict) and member.get("format") == "int64":
        message = "may be beyond 2^53, where many clients lose digits of numbers: take it as a string"
        yield LintFinding("hint", "large-integer", tool.name, name, message)
    if description_of(member):
        if isinstance(member, dict) and _is_nested(member) and not _has_example(member, tool):
            message = "is nested; an example in its description helps a model to fill it in"
            yield LintFinding("hint", "no-example", tool.name, name, message)
        return
    if _VAGUE_ARGUMENT.fullmatch(name):
        yield LintFinding(
            "warning", "unclear-argument", tool.name, name, "neither its name nor a description says what it is"
        )
    else:
        remedy = "Args: in the docstring, or an overlay" if is_python else "say what it means, in the input schema"
        yield LintFinding("hint", "no-argument-description", tool.name, name, f"has no description: {remedy}")


def _is_nested(member: dict[str, Any]) -> bool:
    items = member.get("items")
    return bool(member.get("properties")) or (isinstance(items, dict) and bool(items.get("properties")))


def _has_example(member: dict[str, Any], tool: t.Tool) -> bool:
    return bool(member.get("examples") or _EXAMPLE.search(f"{description_of(member)} {_described(tool)}"))


def _returns(tool: t.Tool) -> Iterator[LintFinding]:
    """Check that a tool has one return type and documents it."""
    output = tool.output_schema
    if output is UNSET:
        if not _RETURNS.search(_described(tool)):
            message = "says nothing of what comes back: say it in the description"
            yield LintFinding("hint", "no-return", tool.name, "", message)
        return
    choices = output.get("anyOf", output.get("oneOf"))
    kinds = output.get("type")
    if (isinstance(choices, list) and _differ(choices)) or (isinstance(kinds, list) and len(set(kinds) - {"null"}) > 1):
        yield LintFinding(
            "warning", "several-returns", tool.name, "", "returns more than one type of value: one is easier to use"
        )


def _differ(choices: list[Any]) -> bool:
    """Return whether a choice offers more than one value that is not null."""
    return len([one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]) > 1


def _described(tool: t.Tool) -> str:
    return "" if tool.description is UNSET else tool.description.strip()


def _words(text: str) -> list[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]
