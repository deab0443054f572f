"""Rules for the arguments of a call, beyond what their schema can say.

A rule is a function of one value that returns what is wrong with it, or None. It sees the JSON value that the handler
will read: a list that was sent as a text is a list to it. The rules here are for what is dangerous most often; any
function of that form will do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from toolwire.protocol.errors import CallRefused
from toolwire.util.numbers import is_number

Rule: TypeAlias = Callable[[Any], str | None]

_MAX_MATCHED: Final = 64 * 1024


def check(
    rules: Mapping[str, Iterable[Rule]], arguments: Mapping[str, Any], name: str, known: Collection[str] = ()
) -> None:
    """Apply each rule to its argument, where that was given; `CallRefused` for the first that is not allowed.

    `known` are the arguments that there are. A server that does not mind the case of letters takes any other for the
    one that is written alike.
    """
    for argument, checks in rules.items():
        letters = argument.casefold()
        alike = (each for each in arguments if each not in known and each.casefold() == letters)
        for given in dict.fromkeys((*((argument,) if argument in arguments else ()), *alike)):
            for rule in checks:
                wrong = _apply(rule, arguments[given])
                if wrong is not None:
                    # The value itself is not repeated: it may be a secret, and the caller knows it.
                    raise CallRefused(f"{name} does not allow this {given!r}: {wrong}.", reason="rule")


def passes(rules: Iterable[Rule], value: Any) -> bool:
    """Return whether every rule allows a value; a rule that breaks allows nothing."""
    try:
        return all(_apply(rule, value) is None for rule in rules)
    except Exception:
        return False


def _apply(rule: Rule, value: Any) -> str | None:
    try:
        return rule(value)
    except ValueError as error:
        return str(error)


def at_most(size: int) -> Rule:
    """Allow a text of at most so many characters, a list of at most so many items."""

    def rule(value: Any) -> str | None:
        return f"it is longer than {size}" if isinstance(value, str | list | dict) and len(value) > size else None

    return rule


def between(low: float, high: float) -> Rule:
    """Allow a number from `low` to `high`, both included."""

    def rule(value: Any) -> str | None:
        return None if is_number(value) and low <= value <= high else f"it is not a number from {low:g} to {high:g}"

    return rule


def one_of(*allowed: Any) -> Rule:
    """Allow one of these values."""

    def rule(value: Any) -> str | None:
        # 1 and True are equal in Python and differ in JSON.
        fits = any(type(value) is type(each) and value == each for each in allowed)
        return None if fits else "it is not one of the allowed values"

    return rule


def matches(pattern: str | re.Pattern[str]) -> Rule:
    """Allow a text that the regular expression matches from its first to its last character."""
    compiled = re.compile(pattern)

    def rule(value: Any) -> str | None:
        if not isinstance(value, str) or len(value) > _MAX_MATCHED or compiled.fullmatch(value) is None:
            return "it does not have the expected form"
        return None

    return rule


def plain_text(value: Any) -> str | None:
    """Allow text without control characters, which terminals, logs and shells may take for commands.

    In a list or an object, every text is looked at.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if not all(character.isprintable() or character in "\n\t" for character in each):
                return "it contains control characters"
        elif isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, dict):
            waiting.extend(each)
            waiting.extend(each.values())
    return None


def inside(directory: str | os.PathLike[str], *, relative_to: str | os.PathLike[str] | None = None) -> Rule:
    """Allow a path that leads into a directory when `..` and symbolic links are followed.

    The rule has to judge the file that the handler opens, and cannot see where the handler looks for a relative path.
    So relative paths are refused unless `relative_to` says where: `relative_to=directory` for a handler that opens
    `directory / path`, `relative_to="."` for one that opens `path` from the working directory.

    A path that begins with `~`, or that has white space at an end, is refused: `expanduser` and types that strip white
    space would make another path of it.
    """
    allowed = Path(directory).absolute()
    base = None if relative_to is None else Path(relative_to)

    def rule(value: Any) -> str | None:
        if not isinstance(value, str) or "\0" in value or value.startswith("~") or value != value.strip():
            return "it is not a path"
        path = Path(value)
        if not path.is_absolute():
            if base is None:
                return "it is not an absolute path"
            path = base / path
        try:
            # At the time of the call, like the handler: the working directory and links may have changed.
            target, root = path.resolve(), allowed.resolve()
        except (OSError, RuntimeError, ValueError):
            return "it is not a path"
        return None if target == root or root in target.parents else "it leads outside of the allowed directory"

    return rule


def to_hosts(*hosts: str, schemes: Iterable[str] = ("https",)) -> Rule:
    """Allow an address on one of these hosts; `*.example.com` stands for every name below `example.com`."""
    allowed = frozenset(host.lower() for host in hosts)
    protocols = frozenset(schemes)

    def rule(value: Any) -> str | None:
        # Parsers disagree about backslashes and white space in addresses, which is how a check is walked around.
        if not isinstance(value, str) or re.search(r"[\s\\\x00-\x1f\x7f]", value):
            return "it is not an address"
        try:
            parts = urlsplit(value)
            host, credentials = (parts.hostname or "").removesuffix("."), "@" in parts.netloc
        except ValueError:
            return "it is not an address"
        # Some clients decode `%2f` in a host, or end the host at a character that no host has.
        if parts.scheme not in protocols or credentials or re.fullmatch(r"[\w.:-]+", host) is None:
            return f"it is not a plain {' or '.join(sorted(protocols))} address"
        if "" in host.split("."):
            return "its host has an empty label"
        below = {f"*.{host.split('.', n)[n]}" for n in range(1, host.count(".") + 1)}
        return None if host in allowed or not below.isdisjoint(allowed) else "its host is not allowed"

    return rule
