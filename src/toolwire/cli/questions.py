"""Questions at the terminal: for missing arguments, and for a server (elicitation)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

from msgspec import UNSET

from toolwire import schemas
from toolwire.cli import key_values
from toolwire.cli.errors import UsageError
from toolwire.client import Accept, Cancel, Decline, Elicitation
from toolwire.printable import is_printable
from toolwire.protocol import types as t
from toolwire.schemas.walking import description_of, required_names

DECLINES: Final = "-"
_CHOICES: Final = 50
_LINES: Final = 50
_YES: Final = {"y": "true", "yes": "true", "n": "false", "no": "false"}


#: The schemas of the fields of a form, by name.
Fields: TypeAlias = dict[str, dict[str, Any]]


class Person(Protocol):
    """A user who can be asked, such as `keyboard.Keyboard`."""

    def tell(self, text: str) -> None: ...
    async def ask(self, question: str) -> str | None: ...


class InputEnded(Exception):
    """The input ended before the question was answered."""


class Declined(Exception):
    """The person declined to answer."""


async def missing_arguments(person: Person, schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Ask for the required arguments that were not given, one by one; return all arguments."""
    fields = fields_of(schema)
    complete = dict(given)
    for name in required_names(schema):
        if name not in complete:
            try:
                complete[name] = await _field(person, name, fields.get(name, {}), needed=True)
            except (InputEnded, Declined):
                raise UsageError(f"the argument {name!r} is missing") from None
    return complete


def fields_of(schema: dict[str, Any]) -> Fields:
    """Return the fields of a form, with local references followed."""
    members = schema.get("properties")
    if not isinstance(members, dict):
        return {}
    return {name: key_values.resolved(member, schema) for name, member in members.items()}


def elicitation(person: Person, pause: Callable[[], None]) -> Elicitation:
    """Return callbacks that put a server's questions to the person, one at a time.

    `pause` clears the progress line first.
    """
    turn = asyncio.Lock()

    async def form(message: str, params: t.ElicitRequestParams) -> Any:
        schema = {} if params.requested_schema is UNSET else params.requested_schema
        async with turn:
            pause()
            return await _settled(_form(person, message, schema))

    async def url(message: str, params: t.ElicitRequestParams) -> Any:
        async with turn:
            pause()
            return await _settled(_url(person, message, "" if params.url is UNSET else params.url))

    return Elicitation(form=form, url=url)


async def _settled(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except InputEnded:
        return Cancel()
    except Declined:
        return Decline()


async def _form(person: Person, message: str, schema: dict[str, Any]) -> Any:
    _tell_message(person, "The server asks:", message)
    person.tell(f"  ({DECLINES} declines, the end of input cancels)")
    needed = required_names(schema)
    content: dict[str, Any] = {}
    for name, member in fields_of(schema).items():
        value = await _field(person, name, member, needed=name in needed)
        if value is not UNSET:
            content[name] = value
    if not content and await person.ask("  Agree? [y/n] ") not in ("y", "yes"):
        raise Declined
    return content


def _tell_message(person: Person, heading: str, message: str) -> None:
    """Show a text of the server. Mark several lines, so that none looks like ours."""
    lines = message.rstrip().split("\n")
    if len(lines) == 1:
        person.tell(f"{heading} {lines[0]}")
        return
    if heading.strip():
        person.tell(heading)
    for line in lines[:_LINES]:
        person.tell(f"  | {line.rstrip()}")
    if len(lines) > _LINES:
        person.tell(f"  | … and {len(lines) - _LINES:,} more lines")


async def _field(person: Person, name: str, member: dict[str, Any], *, needed: bool) -> Any:
    """Ask for one value until it fits the schema.

    UNSET if the user leaves it out.
    """
    validator = _checker(name, member)
    choices = _choices(member)
    if text := description_of(member):
        _tell_message(person, " ", text)
    for number, (_, label) in enumerate(choices[:_CHOICES], start=1):
        person.tell(f"    {number}. {label}")
    while True:
        answer = await person.ask(f"  {_question(name, member, choices, needed)}: ")
        if answer is None:
            raise InputEnded
        if answer == DECLINES:
            raise Declined
        if not answer:
            if not needed or "default" in member:
                return member.get("default", UNSET)
            if member.get("type") != "string":
                continue
        value = _value(name, answer, member, choices, validator)
        problems = [] if validator is None else validator.check({name: value})
        if not problems:
            return value
        person.tell("  " + "; ".join(schemas.sentence(problem, "value") for problem in problems))


def _question(name: str, member: dict[str, Any], choices: list[tuple[Any, str]], needed: bool) -> str:
    label = member.get("title") if isinstance(member.get("title"), str) else name
    if choices:
        kind = "numbers, separated by commas" if member.get("type") == "array" else "a number from the list"
    else:
        kind = "y/n" if member.get("type") == "boolean" else schemas.expected(member, member)
    if "default" in member:
        default = member["default"]
        return f"{label} ({kind}) [{', '.join(map(str, default)) if isinstance(default, list) else default}]"
    return f"{label} ({kind})" if needed else f"{label} ({kind}, may be left out)"


def _choices(member: dict[str, Any]) -> list[tuple[Any, str]]:
    """Return the values to choose from with their labels: the five forms of 2025-11-25 client/elicitation."""
    items = member.get("items")
    source = items if member.get("type") == "array" and isinstance(items, dict) else member
    for keyword in ("oneOf", "anyOf"):
        titled = source.get(keyword)
        if isinstance(titled, list) and titled and all(isinstance(one, dict) and "const" in one for one in titled):
            return [(one["const"], str(one.get("title", one["const"]))) for one in titled]
    values, names = source.get("enum"), source.get("enumNames")
    if not isinstance(values, list):
        return []
    if isinstance(names, list) and len(names) == len(values):
        return [(value, str(name)) for value, name in zip(values, names, strict=True)]
    return [(value, str(value)) for value in values]


def _checker(name: str, member: dict[str, Any]) -> schemas.Validator | None:
    return key_values.checker({"type": "object", "properties": {name: member}})


def read_answer(name: str, given: Any, member: dict[str, Any]) -> Any:
    """Read one scripted answer as its field asks for it.

    Text is read like typed text, JSON stays as it is.
    """
    choices = _choices(member)
    if isinstance(given, list):
        return [_chosen(part, choices) if isinstance(part, str) else part for part in given]
    return _value(name, given, member, choices, _checker(name, member)) if isinstance(given, str) else given


def _value(
    name: str, answer: str, member: dict[str, Any], choices: list[tuple[Any, str]], validator: schemas.Validator | None
) -> Any:
    if choices and member.get("type") == "array":
        return [_chosen(part.strip(), choices) for part in answer.split(",") if part.strip()]
    if choices:
        return _chosen(answer.strip(), choices)
    if member.get("type") == "boolean":
        answer = _YES.get(answer.strip().lower(), answer)
    return key_values.understood({name: answer}, validator)[name]


def _chosen(text: str, choices: list[tuple[Any, str]]) -> Any:
    """Find a choice by its value, its label or its number.

    The check of the schema refuses any other text.
    """
    for value, label in choices:
        if text in (str(value), label):
            return value
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1][0]
    return text


async def _url(person: Person, message: str, url: str) -> Any:
    """Show the whole address, and open it only with consent (2025-11-25 client/elicitation)."""
    _tell_message(person, "The server asks you to open a page:", message)
    person.tell(f"  {url}")
    if not is_web_address(url):
        person.tell("  It is not a web address, so it is not opened.")
        return Decline()
    answer = await person.ask("  Open it in the browser? [y/n] ")
    if answer is None:
        raise InputEnded
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined
    # Imported here because it looks for browsers when it is loaded.
    import webbrowser

    if not webbrowser.open(url):
        person.tell("  No browser was found: open the address yourself.")
    return Accept()


def is_web_address(url: str) -> bool:
    """Return whether a URL can be opened as shown, without blanks and control characters."""
    return url.lower().startswith(("https://", "http://")) and is_printable(url) and " " not in url
