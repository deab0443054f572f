"""Forms and pages that users are asked for, and the users' answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from toolwire import adapters, schemas
from toolwire.base_errors import ServerError
from toolwire.lazy_patterns import lazy_pattern

T = TypeVar("T")


class Elicited(Generic[T]):
    """The answer of a user to a question: accepted with `data`, declined, or dismissed."""

    __slots__ = ("action", "data", "id")

    def __init__(self, action: str, data: T | None = None, id: str | None = None) -> None:
        self.action: str = action
        self.data: T | None = data
        self.id: str | None = id

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    @property
    def declined(self) -> bool:
        return self.action == "decline"

    @property
    def cancelled(self) -> bool:
        return self.action == "cancel"

    def __repr__(self) -> str:
        return f"Elicited({self.action!r}, {self.data!r})"


def _form(type: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    _check_no_secrets(adapters.adapter(type).schema("input"))
    return adapters.elicitation_schema(type)


_known_form = lru_cache(maxsize=256)(_form)


def form_of(type: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the schema of a form that asks for a type, and a function that makes a value of the answer."""
    if isinstance(type, dict):
        return _written_form(msgspec.json.encode(type))
    if isinstance(type, list):
        return _known_form(_choice(type))
    # An annotation may hold values that cannot be hashed, and no cache can keep those.
    return _known_form(type) if _hashes(type) else _form(type)


def _choice(values: list[Any]) -> Any:
    """Return the type whose values are these texts."""
    if not values or not all(isinstance(value, str) for value in values):
        raise TypeError(f"A list to choose from has texts in it, not {values!r:.100}")
    return Literal[tuple(values)]


@lru_cache(maxsize=256)
def _written_form(encoded: bytes) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    schema = msgspec.json.decode(encoded)
    members = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict):
        raise TypeError('A form written by hand is a JSON Schema with "type": "object" and "properties"')
    _check_no_secrets(schema)
    validator = schemas.compile(schema, what="the form")
    defaults = {name: member["default"] for name, member in members.items() if "default" in member}

    def unpack(content: Any) -> Any:
        value = {**defaults, **(content or {})}
        problems = validator.check(value)
        if problems:
            raise adapters.Invalid(problems)
        return value

    return schema, unpack


def unmask_answer(schema: dict[str, Any], shown: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that translates answers to the masked form `shown` into answers to the form.

    A policy masks names and choices like all texts. Raise `ServerError` for two choices that are masked to one text.
    """
    members: dict[str, tuple[str, dict[str, str]]] = {}
    for (name, member), (shown_name, shown_member) in zip(
        schema["properties"].items(), shown["properties"].items(), strict=True
    ):
        choices: dict[str, str] = {}
        for choice, text in zip(_choices(member), _choices(shown_member), strict=False):
            if choices.setdefault(text, choice) != choice:
                raise ServerError(
                    f"Masked by the policy, two choices of the form are both {text!r}: write choices that differ "
                    "without the masked part"
                )
        members[shown_name] = name, choices

    def unmask(content: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for shown_name, value in content.items():
            name, choices = members.get(shown_name, (shown_name, {}))
            if isinstance(value, list):
                found[name] = [choices.get(each, each) if isinstance(each, str) else each for each in value]
            else:
                found[name] = choices.get(value, value) if isinstance(value, str) else value
        return found

    return unmask


def _choices(member: Any) -> list[str]:
    """Return the texts of a member of a form that its answer is one of, or several of."""
    if not isinstance(member, dict):
        return []
    if member.get("type") == "array":
        return _choices(member.get("items"))
    texts = member.get("enum")
    if texts is None:
        titled = member.get("oneOf", member.get("anyOf"))
        texts = [each.get("const") for each in titled if isinstance(each, dict)] if isinstance(titled, list) else []
    return [each for each in texts if isinstance(each, str)] if isinstance(texts, list) else []


def _hashes(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


_SECRETS: Final = lazy_pattern(
    r"(^|_)(pass_?(word|wd|phrase|code)|(api|private|secret|access)_?keys?|(access|refresh|auth|bearer|api|id)_?token"
    r"|client_?secret|credentials?|(credit_?)?card_?number|cvv|cvc|iban)($|_)|^(token|secret|otp)$"
)


def _check_no_secrets(schema: dict[str, Any]) -> None:
    """ELI-1, MRTR-11: refuse a form that asks for secrets: the client sees the answer, and the model may see it."""
    members = schema.get("properties") or {"value": schema}
    for name, member in members.items():
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()
        if _SECRETS.search(words) or (isinstance(member, dict) and member.get("format") == "password"):
            raise ValueError(
                f"A form must not ask for a secret such as {name!r}: send the user to a page with elicit_url"
            )


def check_url(url: str) -> None:
    # ELI-8: what the user is asked to open is an ordinary web address.
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"A page to open must have an http or https address, not {url[:100]!r}")
    if "@" in url.split("/", 3)[2]:
        raise ValueError("A page to open must not carry a user name or password in its address")
