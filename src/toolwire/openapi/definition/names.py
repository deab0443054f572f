"""Names of tools: made of one operation alone, so that no neighbour changes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from toolwire.openapi.model import OperationObject, ToolDefinition

#: The longest name that every vendor takes.
MAX_NAME: Final = 64
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_UNDERSCORES: Final = re.compile(r"_{2,}")


def tool_name(operation: OperationObject) -> str:
    """Name the tool of an operation: by its id, else by method and path (`get_pets_by_petId`)."""
    if operation.operation_id is not None:
        return plain_name(operation.operation_id) or _by_path(operation)
    return _by_path(operation)


def _by_path(operation: OperationObject) -> str:
    # AWS puts the name of the operation into a fragment, Rails and similar frameworks a format behind the last segment.
    words = _VARIABLE.sub(r"_by_\1_", operation.path)
    return plain_name(f"{operation.method.lower()}_{words.strip('/') or 'root'}")


def plain_name(text: str, limit: int = MAX_NAME) -> str:
    """Reduce a text to letters, digits, `_` and `-`.

    A long one ends in a digest, so that it stays different.
    """
    name = _UNDERSCORES.sub("_", _OTHERS.sub("_", text)).strip("_-")
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('_-')}_{sha256(text.encode()).hexdigest()[:8]}"


def name_collisions(definitions: Iterable[ToolDefinition]) -> dict[str, list[ToolDefinition]]:
    """Return the names that several tools have, for a person to decide."""
    by_name: defaultdict[str, list[ToolDefinition]] = defaultdict(list)
    for definition in definitions:
        by_name[definition.name].append(definition)
    return {name: same for name, same in by_name.items() if len(same) > 1}


def collision(name: str, same: Iterable[OperationObject]) -> str:
    """Say what to do about a name that several tools have."""
    places = [f"{each.method} {each.path}" for each in same]
    return (
        f"the tool name {name!r} is that of {' and '.join(places[:4])}. "
        f'Give one of them a name: --name "{places[-1]}=NAME" of toolwire openapi add, '
        f'or operations={{"{places[-1]}": {{"name": ...}}}}'
    )
