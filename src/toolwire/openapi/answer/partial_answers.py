"""Parts of answers: the optional argument `select` names the members that are needed."""

from __future__ import annotations

from typing import Any, Final

from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.openapi.answer.previews import members_in_words
from toolwire.util.json_pointer import unescape_token

SELECT: Final = "select"
#: The names under which the argument is offered. The second is for an API that has an argument `select` itself.
_SELECT_NAMES: Final = (SELECT, "select_answer")
MAX_PATHS: Final = 50
SELECT_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string", "maxLength": 200},
    "maxItems": MAX_PATHS,
    "description": "Return only these members of the answer: names, or JSON Pointers such as /items/name.",
}
_MISSING: Final = object()


def offer_select(input_schema: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Add the optional argument `select` to an input schema.

    Returns the schema and the name of the argument, which is None if its names are taken.
    """
    properties = input_schema.get("properties", {})
    name = next((each for each in _SELECT_NAMES if each not in properties), None)
    if name is None:
        return input_schema, None
    return {**input_schema, "properties": {**properties, name: SELECT_SCHEMA}}, name


class NothingSelected(Exception):
    """The answer has none of the selected members.

    The text says which it has.
    """


def selected(value: Any, paths: list[str] | str, left_out: OmittedParts | None = None) -> Any:
    """Return the selected parts of an answer, in the shape of the answer.

    `left_out` gets the parts that are not named. A path is a JSON Pointer (RFC 6901), or the name of a member. A step
    that is not an index goes into each item of a list. A list that stands alone in an object is searched too, because
    the names of its items are what people mean.
    """
    wanted: dict[str, Any] = {}
    for path in [paths] if isinstance(paths, str) else paths[:MAX_PATHS]:
        steps = _steps(path)
        if not steps:
            return value
        _add(wanted, steps)
    if not wanted:
        return value
    rest = OmittedParts()
    found = _part(value, wanted, (), rest)
    if found is _MISSING and isinstance(value, dict):
        lists = [name for name, member in value.items() if isinstance(member, list) and member]
        if len(lists) == 1:
            rest = OmittedParts()
            found = _part(value, {lists[0]: wanted}, (), rest)
    if left_out is not None:
        left_out.update(rest)
    if found is _MISSING:
        raise NothingSelected(f"The answer has nothing of what was selected. {members_in_words(value)}")
    return found


def _steps(path: str) -> list[str]:
    steps = path[1:].split("/") if path.startswith("/") else [path]
    # Each item of a list is meant anyway.
    return [unescape_token(step) for step in steps if step not in ("", "*")]


def _add(wanted: dict[str, Any], steps: list[str]) -> None:
    """Add a path to a tree of names.

    A name without any below it means all of its value.
    """
    *before, last = steps
    for step in before:
        if wanted.get(step) == {}:
            return  # All of it is wanted already.
        wanted = wanted.setdefault(step, {})
    wanted[last] = {}


def _part(value: Any, wanted: dict[str, Any], path: tuple[str | int, ...], left_out: OmittedParts) -> Any:
    if not wanted:
        return value
    if isinstance(value, dict):
        parts: dict[str, Any] = {}
        for name, member in value.items():  # In the order of the answer.
            part = _part(member, wanted[name], (*path, name), left_out) if name in wanted else _MISSING
            if part is not _MISSING:
                parts[name] = part
            elif name not in wanted:
                left_out.add((*path, name))
        return parts or _MISSING
    if isinstance(value, list):
        return _part_of_list(value, wanted, path, left_out)
    left_out.add(path)
    return _MISSING


def _part_of_list(value: list[Any], wanted: dict[str, Any], path: tuple[str | int, ...], left_out: OmittedParts) -> Any:
    of_each = {name: rest for name, rest in wanted.items() if not name.isdecimal()}
    parts: list[Any] = []
    for index, item in enumerate(value):
        of_this = wanted.get(str(index))
        if of_this is None and not of_each:
            left_out.add((*path, index))
            continue
        of_item = of_each if of_this is None else of_this and {**of_each, **of_this}
        part = _part(item, of_item, (*path, index), left_out)
        if part is not _MISSING:
            parts.append(part)
    return parts if parts or not value else _MISSING
